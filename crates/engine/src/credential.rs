//! An API key that cannot be printed.

use bytes::Bytes;
use outlast_dialect::Dialect;
use outlast_kernel::failure::Failure;
use secrecy::{ExposeSecret, SecretString};

/// Shorter ones would redact ordinary words.
const MIN_REDACTED_LENGTH: usize = 8;
const REPLACEMENT: &str = "[secret]";

/// The secret that authenticates requests to a provider.
///
/// ```
/// use outlast_engine::credential::Credential;
///
/// let key = Credential::new("sk-not-to-be-seen".to_owned());
/// assert!(!format!("{key:?}").contains("not-to-be-seen"));
/// ```
#[derive(Clone, Debug)]
pub struct Credential(SecretString);

impl Credential {
    /// Wraps the key.
    pub fn new(key: String) -> Self {
        Self(SecretString::from(key))
    }

    /// Returns whether both hold the same key.
    pub fn is_same(&self, other: &Self) -> bool {
        self.0.expose_secret() == other.0.expose_secret()
    }

    /// Returns the header in which the dialect expects the key.
    pub(crate) fn header(&self, dialect: Dialect) -> (String, String) {
        let key = self.0.expose_secret();
        match dialect {
            Dialect::Anthropic => ("x-api-key".to_owned(), key.to_owned()),
            Dialect::OpenaiChat | Dialect::OpenaiResponses => {
                ("authorization".to_owned(), format!("Bearer {key}"))
            }
        }
    }

    /// Replaces every credential in the headers of a request with this one.
    #[cfg(feature = "http")]
    pub fn replace_in(&self, headers: &mut http::HeaderMap, dialect: Dialect) {
        for name in ["authorization", "x-api-key", "api-key", "x-goog-api-key"] {
            headers.remove(name);
        }
        let (name, value) = self.header(dialect);
        let name = http::HeaderName::try_from(name);
        // A key that no header can hold is invalid; the provider will reject the request.
        if let (Ok(name), Ok(mut value)) = (name, http::HeaderValue::try_from(value)) {
            value.set_sensitive(true);
            headers.insert(name, value);
        }
    }

    /// Returns the bytes with the key redacted.
    pub fn scrubbed(&self, bytes: &Bytes) -> Bytes {
        let key = self.0.expose_secret().as_bytes();
        let place = |bytes: &[u8]| bytes.windows(key.len()).position(|piece| piece == key);
        if key.len() < MIN_REDACTED_LENGTH || place(bytes).is_none() {
            return bytes.clone();
        }
        let (mut clean, mut rest) = (Vec::with_capacity(bytes.len()), &bytes[..]);
        while let Some(begin) = place(rest) {
            clean.extend_from_slice(&rest[..begin]);
            clean.extend_from_slice(REPLACEMENT.as_bytes());
            rest = &rest[begin + key.len()..];
        }
        clean.extend_from_slice(rest);
        clean.into()
    }

    /// Redacts the key in a failure, as some providers echo the request's key.
    pub fn scrub(&self, failure: &mut Failure) {
        let key = self.0.expose_secret();
        if key.len() < MIN_REDACTED_LENGTH {
            return;
        }
        let texts = [Some(&mut failure.message), failure.code.as_mut()];
        let values = failure.headers.iter_mut().chain(&mut failure.fields);
        for text in texts
            .into_iter()
            .flatten()
            .chain(values.map(|(_, value)| value))
        {
            if text.contains(key) {
                *text = text.replace(key, REPLACEMENT);
            }
            scrub_truncated_secret(text, key);
        }
    }
}

/// Redacts the beginning of the key at the end of a truncated text.
fn scrub_truncated_secret(text: &mut String, key: &str) {
    let shown = text.trim_end_matches('…');
    let beginnings = (MIN_REDACTED_LENGTH..key.len())
        .rev()
        .filter_map(|end| key.get(..end));
    let cut = beginnings
        .filter_map(|beginning| shown.strip_suffix(beginning))
        .next();
    if let Some(kept) = cut.map(str::len) {
        text.truncate(kept);
        text.push_str(REPLACEMENT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_kernel::Timestamp;

    #[test]
    fn key_is_scrubbed_from_non_utf8_bytes() {
        let key = Credential::new("planted-key-0123456789".to_owned());
        let said =
            Bytes::from_static(b"caf\xe9 planted-key-0123456789planted-key-0123456789 planted-");
        let left = Bytes::from_static(b"caf\xe9 [secret][secret] planted-");
        assert_eq!(key.scrubbed(&said), left);
        assert_eq!(key.scrubbed(&left), left);
        let short = Credential::new("a".to_owned());
        assert_eq!(short.scrubbed(&said), said);
    }

    #[test]
    fn key_and_key_prefix_are_scrubbed_from_failure() {
        let key = Credential::new("planted-key-0123456789".to_owned());
        let table = [
            ("bad planted-key-0123456789!", "bad [secret]!"),
            ("cut planted-key-01234…", "cut [secret]"),
            ("cut planted-…", "cut [secret]"),
            ("a plan…", "a plan…"),
        ];
        for (said, left) in table {
            let mut failure = Failure::emitted("p", said, Timestamp::default());
            key.scrub(&mut failure);
            assert_eq!(failure.message, left);
        }
    }
}
