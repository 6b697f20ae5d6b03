//! The token of the control endpoints, and the keys of clients from other machines.
//!
//! Invariants: neither is ever printed; comparing takes constant time; only the user can read the token file, and a
//! token that others could have read is replaced.

use super::AccessDenied;
use http::HeaderMap;
use secrecy::{ExposeSecret, SecretString};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use subtle::{Choice, ConstantTimeEq};
use tempfile::NamedTempFile;

/// The file name of the gateway's token within the home folder.
const GATEWAY_FILE: &str = "gateway.token";
/// The header for the token on requests whose `Authorization` is meant for the provider.
const TOKEN_HEADER: &str = "x-outlast-token";
const KEY_HEADER: &str = "x-api-key";
const TOKEN_BYTES: usize = 32;

/// The reason for which there is no token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The token file cannot be read or written.
    #[error("cannot keep the token in {path}: {why}")]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        why: io::Error,
    },
    /// The operating system provides no randomness.
    #[error("cannot make a token: {0}")]
    Random(getrandom::Error),
}

/// The token that opens the control endpoints: 32 random bytes in hexadecimal, created once.
#[derive(Clone, Debug)]
pub struct Token(SecretString);

impl Token {
    /// Loads the gateway's token from the given folder, or creates it.
    pub fn load_or_create_in(home: &Path) -> Result<Self, TokenError> {
        Self::load_or_create(&home.join(GATEWAY_FILE))
    }

    /// Loads the token from the given file, or creates it. Two processes that do so at once get the same token.
    pub fn load_or_create(path: &Path) -> Result<Self, TokenError> {
        let failed = |why| TokenError::File {
            path: path.to_owned(),
            why,
        };
        if let Some(kept) = read(path).map_err(failed)? {
            return Ok(kept);
        }
        let fresh = random()?;
        save_token(path, &fresh).map_err(failed)?;
        let kept = read(path).map_err(failed)?;
        kept.ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))
    }

    /// Loads the token that a gateway has left in the given folder, for clients of that gateway.
    pub fn load_existing(home: &Path) -> Result<Option<Self>, TokenError> {
        let path = home.join(GATEWAY_FILE);
        read(&path).map_err(|why| TokenError::File { path, why })
    }

    /// Returns whether the request carries the token.
    pub fn is_in_headers(&self, headers: &HeaderMap) -> bool {
        let brought = bearers(headers).chain(values(headers, TOKEN_HEADER));
        is_any(brought, std::slice::from_ref(&self.0))
    }

    /// Returns whether the given text is the token.
    pub fn matches(&self, brought: &str) -> bool {
        is_any(
            std::iter::once(brought.as_bytes()),
            std::slice::from_ref(&self.0),
        )
    }

    /// Returns the token in plain text, to be sent to the server.
    pub fn reveal(&self) -> &str {
        self.0.expose_secret()
    }
}

/// The keys that clients from other machines must send when the gateway uses stored accounts.
#[derive(Clone, Debug)]
pub struct ClientKeys(Vec<SecretString>);

impl ClientKeys {
    /// Creates the keys from the configured ones; if none is configured, the token is the only key.
    pub fn new(configured: Vec<SecretString>, token: &Token) -> Self {
        // An empty key would admit everybody who sends an empty header.
        let filled = configured
            .into_iter()
            .filter(|key| !key.expose_secret().is_empty());
        let mut keys: Vec<_> = filled.collect();
        if keys.is_empty() {
            keys.push(token.0.clone());
        }
        Self(keys)
    }

    /// Checks that a request carries one of the keys, in any of the headers where clients put their key.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), AccessDenied> {
        let brought = bearers(headers)
            .chain(values(headers, KEY_HEADER))
            .chain(values(headers, TOKEN_HEADER));
        if is_any(brought, &self.0) {
            return Ok(());
        }
        Err(AccessDenied::ClientKeyRequired)
    }
}

/// Every pair is compared, so that the time does not reveal which one matched.
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

/// Reads the token from the file; `None` if it has none, or one that others could have read.
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

/// Writes the token atomically. A valid token that another process wrote meanwhile stays; an invalid one is replaced.
fn save_token(path: &Path, token: &str) -> io::Result<()> {
    // Only this user can read it.
    let mut draft = NamedTempFile::new_in(path.parent().unwrap_or(Path::new(".")))?;
    writeln!(draft, "{token}")?;
    draft.as_file().sync_all()?;
    match draft.persist_noclobber(path) {
        Ok(_) => Ok(()),
        Err(taken) if is_taken(&taken.error) && read(path)?.is_some() => Ok(()),
        // The existing file is invalid, or this kind of disk has no links.
        Err(failed) => failed.file.persist(path).map(drop).map_err(Into::into),
    }
}

fn is_taken(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AlreadyExists
}
