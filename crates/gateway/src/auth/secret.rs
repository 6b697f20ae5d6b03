//! The token of those who steer a server, and the keys of clients that come from elsewhere.
//!
//! Invariants: neither is ever printed; comparing takes the same time wherever the difference is; the token is read by
//! nobody but the user, and one that others could have read is made anew.

use super::AccessDenied;
use http::HeaderMap;
use secrecy::{ExposeSecret, SecretString};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use subtle::{Choice, ConstantTimeEq};

/// Where the gateway's token is, within the home folder.
const GATEWAY_FILE: &str = "gateway.token";
/// The token on a request whose `Authorization` is for somebody else.
const TOKEN_HEADER: &str = "x-outlast-token";
const KEY_HEADER: &str = "x-api-key";
const TOKEN_BYTES: usize = 32;

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// Its file cannot be read or written.
    #[error("cannot keep the token in {path}: {why}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the machine says.
        why: io::Error,
    },
    /// The machine has no randomness to give.
    #[error("cannot make a token: {0}")]
    Random(getrandom::Error),
}

/// What opens the control endpoints: 32 random bytes in hexadecimal, made once.
#[derive(Clone, Debug)]
pub struct Token(SecretString);

impl Token {
    /// The gateway's token, which is kept in that folder.
    pub fn load_or_create_in(home: &Path) -> Result<Self, TokenError> {
        Self::load_or_create(&home.join(GATEWAY_FILE))
    }

    /// The token in that file; it is made when there is none. Two that come at once get the same.
    pub fn load_or_create(path: &Path) -> Result<Self, TokenError> {
        let failed = |why| TokenError::File {
            path: path.to_owned(),
            why,
        };
        if let Some(kept) = read(path).map_err(failed)? {
            return Ok(kept);
        }
        let fresh = random()?;
        keep(path, &fresh).map_err(failed)?;
        let kept = read(path).map_err(failed)?;
        kept.ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))
    }

    /// The token that a gateway has left in that folder, for those who want to ask it something.
    pub fn load_existing(home: &Path) -> Result<Option<Self>, TokenError> {
        let path = home.join(GATEWAY_FILE);
        read(&path).map_err(|why| TokenError::File { path, why })
    }

    /// Whether a request brings it.
    pub fn is_in(&self, headers: &HeaderMap) -> bool {
        let brought = bearers(headers).chain(values(headers, TOKEN_HEADER));
        is_any(brought, std::slice::from_ref(&self.0))
    }

    /// Whether that is it.
    pub fn is(&self, brought: &str) -> bool {
        is_any(
            std::iter::once(brought.as_bytes()),
            std::slice::from_ref(&self.0),
        )
    }

    /// The token itself, to be sent to the server.
    pub fn reveal(&self) -> &str {
        self.0.expose_secret()
    }
}

/// The keys that clients from elsewhere bring when the provider's keys are ours.
#[derive(Clone, Debug)]
pub struct ClientKeys(Vec<SecretString>);

impl ClientKeys {
    /// Those that are configured; without any it is the token.
    pub fn new(configured: Vec<SecretString>, token: &Token) -> Self {
        // An empty key would let everybody in who brings an empty header.
        let filled = configured
            .into_iter()
            .filter(|key| !key.expose_secret().is_empty());
        let mut keys: Vec<_> = filled.collect();
        if keys.is_empty() {
            keys.push(token.0.clone());
        }
        Self(keys)
    }

    /// Checks that a request brings one of them, in any of the places where clients put their key.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), AccessDenied> {
        let brought = bearers(headers)
            .chain(values(headers, KEY_HEADER))
            .chain(values(headers, TOKEN_HEADER));
        if is_any(brought, &self.0) {
            return Ok(());
        }
        Err(AccessDenied::ClientKey)
    }
}

/// Every pair is compared, so that the time does not say which one it was.
fn is_any<'a>(brought: impl Iterator<Item = &'a [u8]>, known: &[SecretString]) -> bool {
    let mut found = Choice::from(0);
    for one in brought {
        for secret in known {
            found |= secret.expose_secret().as_bytes().ct_eq(one);
        }
    }
    found.into()
}

fn values<'a>(headers: &'a HeaderMap, name: &'static str) -> impl Iterator<Item = &'a [u8]> {
    let all = headers.get_all(name).into_iter();
    all.map(|value| value.as_bytes().trim_ascii())
}

fn bearers(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    values(headers, "authorization").filter_map(|value| {
        let (scheme, rest) = value.split_at_checked(b"Bearer ".len())?;
        scheme
            .eq_ignore_ascii_case(b"Bearer ")
            .then(|| rest.trim_ascii())
    })
}

fn random() -> Result<String, TokenError> {
    let mut bytes = [0; TOKEN_BYTES];
    getrandom::fill(&mut bytes).map_err(TokenError::Random)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// What the file holds; `None` when there is no token in it, or one that others could have read.
fn read(path: &Path) -> io::Result<Option<Token>> {
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if !is_private(&found) {
        return Ok(None);
    }
    let text = fs::read(path)?;
    let text = String::from_utf8_lossy(text.trim_ascii());
    let is_whole = text.len() == 2 * TOKEN_BYTES && text.bytes().all(|b| b.is_ascii_hexdigit());
    Ok(is_whole.then(|| Token(SecretString::from(text.into_owned()))))
}

#[cfg(unix)]
fn is_private(found: &fs::Metadata) -> bool {
    std::os::unix::fs::PermissionsExt::mode(&found.permissions()) & 0o077 == 0
}

/// On Windows the user's data folder is private already.
#[cfg(not(unix))]
fn is_private(_: &fs::Metadata) -> bool {
    true
}

/// Puts the token there in one go. One that somebody else has put there meanwhile stays; one that is no good does not.
fn keep(path: &Path, token: &str) -> io::Result<()> {
    let draft = path.with_extension(format!("token.{}", uuid::Uuid::now_v7()));
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&draft)?;
    let placed = writeln!(file, "{token}")
        .and_then(|()| file.sync_all())
        .and_then(|()| place(&draft, path));
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => placed.and(Err(error)),
        _ => placed,
    }
}

fn place(draft: &Path, path: &Path) -> io::Result<()> {
    let is_taken = |error: &io::Error| error.kind() == io::ErrorKind::AlreadyExists;
    match fs::hard_link(draft, path) {
        Ok(()) => Ok(()),
        Err(error) if is_taken(&error) && read(path)?.is_some() => Ok(()),
        // What is there is no good, or this kind of disk has no links.
        Err(_) => fs::rename(draft, path),
    }
}
