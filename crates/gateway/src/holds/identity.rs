//! The identity of a request, equal when it was sent twice: same credential, same client, same body.

use http::HeaderMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest, Sha256};
use std::fmt;

/// The headers that name the conversation or the call of a request. The number of sends is not among them.
const IDENTITY_HEADERS: [&str; 6] = [
    "user-agent",
    "idempotency-key",
    "x-claude-code-session-id",
    "session_id",
    "x-session-id",
    "conversation_id",
];

/// The hash that identifies a request when it comes again; nothing can be read from it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity([u8; 32]);

/// The parts of a request that identify it, except its body.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    /// A hash of its credential.
    pub credential: &'a [u8],
    /// The name of its client.
    pub client: &'a str,
    /// Its method.
    pub method: &'a str,
    /// Its path, with the query.
    pub path: &'a str,
    /// Its headers.
    pub headers: &'a HeaderMap,
}

/// An identity whose body is still to come, in pieces of any size.
#[derive(Clone, Debug)]
pub struct IdentityBuilder {
    parts: Sha256,
    body: Sha256,
}

impl Identity {
    /// Begins an identity with everything but the body.
    pub fn builder(parts: &Parts<'_>) -> IdentityBuilder {
        let mut making = IdentityBuilder {
            parts: Sha256::new(),
            body: Sha256::new(),
        };
        making.update_part(parts.credential);
        for text in [parts.client, parts.method, parts.path] {
            making.update_part(text.as_bytes());
        }
        for name in IDENTITY_HEADERS {
            for value in parts.headers.get_all(name) {
                making.update_part(name.as_bytes());
                making.update_part(value.as_bytes());
            }
        }
        making
    }
}

impl IdentityBuilder {
    /// Adds a part with its length, so that none can be taken for a part of another.
    fn update_part(&mut self, bytes: &[u8]) {
        self.parts.update(bytes.len().to_le_bytes());
        self.parts.update(bytes);
    }

    /// Adds a piece of the body.
    pub fn update_body(&mut self, piece: &[u8]) {
        self.body.update(piece);
    }

    /// Returns the identity when the body is complete.
    pub fn finish(mut self) -> Identity {
        self.parts.update(self.body.finalize());
        Identity(self.parts.finalize().into())
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({self})")
    }
}

impl Serialize for Identity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Identity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let byte = |index: usize| u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok();
        let mut bytes = [0; 32];
        for (index, place) in bytes.iter_mut().enumerate() {
            *place = byte(index).ok_or_else(|| de::Error::custom("no identity"))?;
        }
        Ok(Self(bytes))
    }
}
