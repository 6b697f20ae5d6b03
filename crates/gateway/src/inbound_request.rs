//! A client's request, and the facts that it states about itself.

use super::body_store::Body;
use super::clients::{self, Profile, ResponseFormat};
use super::holds::{self, Identity, IdentityBuilder};
use super::route::{Kind, Route};
use super::upstreams::Upstreams;
use crate::auth::ClientKeys;
use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Method};
use outlast_dialect::Dialect;
use outlast_engine::credential::Credential;
use outlast_kernel::Timestamp;
use outlast_kernel::gate::{KeyMark, key_account};
use outlast_kernel::policy::Policy;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// Bodies above this size are parsed on a blocking thread, in bytes.
const BLOCKING_PARSE_BYTES: usize = 1 << 20;
/// The header that names the policy of a request.
const POLICY_HEADER: HeaderName = HeaderName::from_static("x-outlast-policy");
/// The header that names the client, if it is not recognised.
const CLIENT_HEADER: HeaderName = HeaderName::from_static("x-outlast-client");
/// The prefix of the gateway's own headers, which are not forwarded.
const OWN_HEADER_PREFIX: &str = "x-outlast-";

/// The headers in which clients send their keys.
const CREDENTIAL_HEADERS: [HeaderName; 4] = [
    HeaderName::from_static("x-api-key"),
    header::AUTHORIZATION,
    HeaderName::from_static("api-key"),
    HeaderName::from_static("x-goog-api-key"),
];

/// The headers that concern only the connection between the client and the gateway.
const HOP_BY_HOP: [HeaderName; 10] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::CONTENT_LENGTH,
];

/// A request that is to be answered.
pub(super) struct InboundRequest {
    pub(super) id: String,
    pub(super) received_at: Timestamp,
    pub(super) method: Method,
    /// The path with its query.
    pub(super) target: String,
    headers: HeaderStorage,
    pub(super) body: Body,
    pub(super) route: Route,
    pub(super) profile: &'static Profile,
    pub(super) is_streamed: bool,
    pub(super) model: Box<str>,
    /// Tells the client's credential from others; not the credential itself.
    pub(super) credential_fingerprint: Box<str>,
    /// Tells the client's key from others; `None` without one.
    key_mark: Option<KeyMark>,
    pub(super) policy: Arc<Policy>,
}

/// The headers, as they are forwarded.
enum HeaderStorage {
    Parsed(HeaderMap),
    /// Headers without the buffers from which they were read, for a long wait.
    Packed(Box<[u8]>),
}

/// A policy that was requested and does not exist.
#[derive(Debug, thiserror::Error)]
#[error("the header x-outlast-policy: {0}")]
pub(super) struct UnknownPolicy(String);

impl InboundRequest {
    /// Creates the request from its parsed parts.
    pub(super) async fn new(
        parts: http::request::Parts,
        body: Body,
        upstreams: &Upstreams,
        received_at: Timestamp,
    ) -> Result<Self, UnknownPolicy> {
        let path = parts.uri.path();
        let route = Route::for_request(&parts.method, path, &parts.headers);
        let target = parts.uri.path_and_query();
        let target = target.map_or(path, |target| target.as_str()).to_owned();
        let text = |name| parts.headers.get::<HeaderName>(name)?.to_str().ok();
        let forced = text(CLIENT_HEADER).or(upstreams.client.as_deref());
        let profile = clients::recognise(&parts.headers, forced);
        let policy = match text(POLICY_HEADER) {
            Some(name) => Policy::named(name)
                .map_err(|error| UnknownPolicy(error.to_string()))?
                .into(),
            None => Arc::clone(upstreams.policy_for(path)),
        };
        let (model, is_streamed) = match route.kind {
            // If the body cannot be read back, sending it fails, too.
            Kind::Inference | Kind::Lookup => {
                read_model_and_stream(body.bytes().await.unwrap_or_default()).await
            }
            Kind::Other => ("".into(), false),
        };
        Ok(Self {
            id: new_id(received_at),
            received_at,
            target,
            body,
            route,
            profile,
            is_streamed,
            model,
            credential_fingerprint: credential_fingerprint(&parts.headers),
            key_mark: key_mark(&parts.headers),
            policy,
            method: parts.method,
            headers: HeaderStorage::Parsed(forwarded_request_headers(parts.headers, route.kind)),
        })
    }

    /// Returns the request without the gateway's own client keys.
    pub(super) fn without_gateway_keys(mut self, keys: &ClientKeys) -> Self {
        let mut headers = self.headers().into_owned();
        for name in CREDENTIAL_HEADERS {
            let alone = headers
                .get(&name)
                .map(|value| (name.clone(), value.clone()));
            let alone = HeaderMap::from_iter(alone);
            if keys.check(&alone).is_ok() {
                headers.remove(name);
            }
        }
        self.key_mark = key_mark(&headers);
        self.headers = HeaderStorage::Parsed(headers);
        self
    }

    /// Returns the form of the response that the client expects.
    pub(super) fn response_format(&self) -> ResponseFormat {
        match (self.route.kind, self.is_streamed) {
            (Kind::Other, _) => ResponseFormat::Opaque,
            (_, true) => ResponseFormat::Streamed(self.route.dialect),
            (_, false) => ResponseFormat::Whole,
        }
    }

    /// Returns the headers for the provider.
    pub(super) fn headers(&self) -> Cow<'_, HeaderMap> {
        match &self.headers {
            HeaderStorage::Parsed(headers) => Cow::Borrowed(headers),
            HeaderStorage::Packed(packed) => Cow::Owned(unpack_headers(packed)),
        }
    }

    /// Returns the account that the client's key stands for at an upstream, as sessions with the same key name it; empty without
    /// a key.
    pub(super) fn key_account(&self, provider: &str, address: &str) -> String {
        self.key_mark
            .map_or(String::new(), |mark| key_account(provider, mark, address))
    }

    /// Returns the identity by which the request is recognised when its client sends it again.
    pub(super) fn identity(&self, body: &[u8]) -> Identity {
        let mut identity = Identity::builder(&holds::Parts {
            credential: self.credential_fingerprint.as_bytes(),
            client: self.profile.name,
            method: self.method.as_str(),
            path: &self.target,
            headers: &self.headers(),
        });
        match self.route.dialect {
            Dialect::OpenaiResponses => hash_stable_members(body, &mut identity),
            Dialect::Anthropic | Dialect::OpenaiChat => identity.update_body(body),
        }
        identity.finish()
    }

    /// Releases the buffers from which the headers were read.
    pub(super) fn pack_headers(&mut self) {
        if let HeaderStorage::Parsed(headers) = &self.headers {
            self.headers = HeaderStorage::Packed(pack_headers(headers));
        }
    }

    pub(super) fn dialect(&self) -> Dialect {
        self.route.dialect
    }

    /// Returns everything in the request that is or may be a credential: keys are found in cookies and in queries, too.
    pub(super) fn credentials(&self) -> Vec<Credential> {
        let headers = self.headers();
        let names = CREDENTIAL_HEADERS.into_iter().chain([header::COOKIE]);
        let values = names.filter_map(|name| headers.get(name));
        let texts = values.filter_map(|value| value.to_str().ok());
        let (_, query) = self.target.split_once('?').unwrap_or_default();
        let queried = query.split('&').filter_map(|one| one.split_once('='));
        texts
            .map(|text| text.strip_prefix("Bearer ").unwrap_or(text))
            .chain(queried.map(|(_, value)| value))
            .map(|text| Credential::new(text.to_owned()))
            .collect()
    }

    /// Returns the path without its query.
    pub(super) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }
}

/// A member that Codex writes in another order each time.
const VOLATILE_MEMBER: &str = "client_metadata";

/// Hashes the members of a body, except the one that changes when it is sent again.
fn hash_stable_members(body: &[u8], identity: &mut IdentityBuilder) {
    let mut body_of = serde_json::Deserializer::from_slice(body);
    if body_of.deserialize_map(MemberHasher(identity)).is_err() {
        identity.update_body(body);
    }
}

/// Hashes members one by one: there may be millions.
struct MemberHasher<'a>(&'a mut IdentityBuilder);

impl<'de> Visitor<'de> for MemberHasher<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<Map: MapAccess<'de>>(self, mut members: Map) -> Result<(), Map::Error> {
        while let Some((name, value)) = members.next_entry::<Cow<'_, str>, &RawValue>()? {
            if name != VOLATILE_MEMBER {
                self.0.update_body(name.as_bytes());
                self.0.update_body(&[0]);
                self.0.update_body(value.get().as_bytes());
            }
        }
        Ok(())
    }
}

/// Creates an id that begins with the time, so that ids sort. It is no secret: the system is not asked for randomness
/// each time.
fn new_id(now: Timestamp) -> String {
    let (head, tail) = (
        fastrand::u64(..).to_ne_bytes(),
        fastrand::u16(..).to_ne_bytes(),
    );
    let mut chance = [0; 10];
    chance[..8].copy_from_slice(&head);
    chance[8..].copy_from_slice(&tail);
    let id = uuid::Builder::from_unix_timestamp_millis(now.as_millis(), &chance);
    id.into_uuid().to_string()
}

/// Returns the model, and whether a stream is requested. A long body is parsed on a thread that serves no other
/// requests.
async fn read_model_and_stream(body: Bytes) -> (Box<str>, bool) {
    if body.len() < BLOCKING_PARSE_BYTES {
        return parse_model_and_stream(&body);
    }
    let read = tokio::task::spawn_blocking(move || parse_model_and_stream(&body)).await;
    read.unwrap_or_default()
}

fn parse_model_and_stream(body: &[u8]) -> (Box<str>, bool) {
    let asked = Dialect::peek_request(body);
    let model = asked.model.unwrap_or_default();
    let model = outlast_kernel::text::bounded(&model, 200);
    (model.into_owned().into(), asked.stream)
}

/// Returns the mark of the key that a client has sent.
fn key_mark(headers: &HeaderMap) -> Option<KeyMark> {
    let mut values = CREDENTIAL_HEADERS.into_iter().map(|name| headers.get(name));
    let key = values.find_map(|value| value?.to_str().ok())?;
    Some(KeyMark::of(key.strip_prefix("Bearer ").unwrap_or(key)))
}

/// Returns a few characters that tell credentials apart, and from which none can be guessed.
fn credential_fingerprint(headers: &HeaderMap) -> Box<str> {
    let mut hash = Sha256::new();
    let mut any = false;
    for name in CREDENTIAL_HEADERS {
        if let Some(value) = headers.get(name) {
            any = true;
            hash.update(value.as_bytes());
            hash.update([0]);
        }
    }
    if !any {
        return "no-key".into();
    }
    let hash = hash.finalize();
    let halves = hash.iter().take(5).flat_map(|byte| [byte >> 4, byte & 15]);
    let digits = halves.filter_map(|half| char::from_digit(half.into(), 16));
    "key-".chars().chain(digits).collect::<String>().into()
}

/// Returns the headers for the provider. If the gateway reads the response, compression is not allowed.
fn forwarded_request_headers(mut headers: HeaderMap, kind: Kind) -> HeaderMap {
    remove_hop_by_hop(&mut headers);
    let ours = headers
        .keys()
        .filter(|name| name.as_str().starts_with(OWN_HEADER_PREFIX));
    let ours: Vec<HeaderName> = ours.cloned().collect();
    for name in &ours {
        headers.remove(name);
    }
    headers.remove(header::HOST);
    headers.remove(header::EXPECT);
    if kind != Kind::Other {
        headers.insert(
            header::ACCEPT_ENCODING,
            HeaderValue::from_static("identity"),
        );
    }
    headers
}

/// Returns the headers of a response that are forwarded to the client.
pub(super) fn forwarded_response_headers(mut headers: HeaderMap) -> HeaderMap {
    remove_hop_by_hop(&mut headers);
    headers
}

/// Removes hop-by-hop headers: those that are so by definition, and those that `Connection` names.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// Returns the same headers without the buffer from which they were read.
pub(super) fn compact_headers(headers: &HeaderMap) -> HeaderMap {
    unpack_headers(&pack_headers(headers))
}

/// Encodes names and values, each after its length.
fn pack_headers(headers: &HeaderMap) -> Box<[u8]> {
    let mut packed = Vec::with_capacity(headers.len() * 48);
    for (name, value) in headers {
        for piece in [name.as_str().as_bytes(), value.as_bytes()] {
            packed.extend_from_slice(&u32::try_from(piece.len()).unwrap_or(0).to_le_bytes());
            packed.extend_from_slice(piece);
        }
    }
    packed.into_boxed_slice()
}

fn unpack_headers(packed: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let mut rest = packed;
    while let (Some(name), Some(value)) = (piece(&mut rest), piece(&mut rest)) {
        let name = HeaderName::from_bytes(name);
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    headers
}

fn piece<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (piece, after) = after.split_at_checked(length)?;
    *rest = after;
    Some(piece)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&str, &str)]) -> HeaderMap {
        let parse = |(name, value): &(&str, &str)| {
            let name: HeaderName = name.parse().unwrap();
            (name, value.parse().unwrap())
        };
        let mut headers = HeaderMap::new();
        for (name, value) in list.iter().map(parse) {
            headers.append(name, value);
        }
        headers
    }

    #[test]
    fn hop_by_hop_and_own_headers_are_not_forwarded() {
        let sent = headers(&[
            ("host", "localhost"),
            ("connection", "keep-alive, x-private"),
            ("x-private", "1"),
            ("x-outlast-policy", "none"),
            ("expect", "100-continue"),
            ("accept-encoding", "gzip, br"),
            ("x-unknown", "a"),
            ("x-unknown", "b"),
        ]);
        let passed = forwarded_request_headers(sent.clone(), Kind::Inference);
        let expected = headers(&[
            ("accept-encoding", "identity"),
            ("x-unknown", "a"),
            ("x-unknown", "b"),
        ]);
        assert_eq!(passed, expected);
        assert_eq!(
            forwarded_request_headers(sent, Kind::Other)["accept-encoding"],
            "gzip, br"
        );
    }

    #[test]
    fn packed_headers_round_trip() {
        let mut all = headers(&[("x-a", "1"), ("x-a", "2"), ("x-empty", "")]);
        all.append("x-odd", HeaderValue::from_bytes(b"caf\xe9").unwrap());
        assert_eq!(unpack_headers(&pack_headers(&all)), all);
    }

    #[test]
    fn key_is_found_in_every_header_that_may_carry_it() {
        for sent in [
            ("x-api-key", "planted"),
            ("authorization", "Bearer planted"),
        ] {
            assert_eq!(key_mark(&headers(&[sent])), Some(KeyMark::of("planted")));
        }
        assert_eq!(key_mark(&HeaderMap::new()), None);
    }

    #[test]
    fn credential_fingerprint_differs_and_hides_key() {
        let one = credential_fingerprint(&headers(&[("x-api-key", "planted-one")]));
        let other = credential_fingerprint(&headers(&[("authorization", "Bearer planted-one")]));
        assert_ne!(one, other);
        assert!(!one.contains("planted") && one.len() == 14);
        assert_eq!(&*credential_fingerprint(&HeaderMap::new()), "no-key");
    }
}
