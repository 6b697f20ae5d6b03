//! Access control: the host names of the server, the origins of pages that may send requests, and the secrets.
//!
//! A browser is the danger of a server on loopback: any page can make it send requests. A page cannot choose the values
//! of `Host`, `Origin` and `Sec-Fetch-Site`, so these are checked on every request, whatever its path. Invariant: a
//! host name that was not configured is refused, so DNS rebinding gets a page nowhere. Not here: the endpoints that the
//! token protects, and the requests that use stored accounts.

mod secret;

pub use secret::{ClientKeys, Token, TokenError};

use crate::problem::Problem;
use http::header::{HOST, HeaderName, ORIGIN};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use outlast_kernel::text;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A header that only browsers set: the relation of the requesting page to this server.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Maximum length of outside text that a refusal quotes, in bytes.
const MAX_QUOTED_BYTES: usize = 100;

/// The machines that can reach a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposure {
    /// Only this machine.
    Loopback,
    /// Other machines, too.
    Network,
}

impl Exposure {
    /// Returns the exposure of a listener at the given address. The peer's address says nothing: requests that come
    /// from elsewhere through a proxy on this machine come from loopback.
    pub fn for_address(address: IpAddr) -> Self {
        if address.to_canonical().is_loopback() {
            Self::Loopback
        } else {
            Self::Network
        }
    }
}

/// The configured host names of the server and the allowed page origins. Addresses, `localhost` and the server's own
/// pages are always allowed.
#[derive(Clone, Debug)]
pub struct AllowedNames {
    section: &'static str,
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl AllowedNames {
    /// Creates the allowed names from host names without a port and origins as browsers write them
    /// (`https://example.com`). `section` is the section of the settings in which they are set; refusals name it.
    pub fn new(
        section: &'static str,
        hosts: impl IntoIterator<Item = String>,
        origins: impl IntoIterator<Item = String>,
    ) -> Self {
        Self {
            section,
            hosts: hosts.into_iter().collect(),
            origins: origins.into_iter().collect(),
        }
    }

    fn allows_host(&self, host: &str) -> bool {
        let is_address = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
            Some(inner) => inner.parse::<Ipv6Addr>().is_ok(),
            None => host.parse::<Ipv4Addr>().is_ok(),
        };
        let is = |name: &str| host.eq_ignore_ascii_case(name);
        is_address || is("localhost") || self.hosts.iter().any(|name| is(name))
    }

    /// Returns whether the `Origin` header names a configured origin.
    pub fn allows_origin_header(&self, header: &HeaderValue) -> bool {
        header
            .to_str()
            .is_ok_and(|origin| self.allows_origin(origin))
    }

    fn allows_origin(&self, origin: &str) -> bool {
        let is = |known: &String| origin.eq_ignore_ascii_case(known);
        self.origins.iter().any(is)
    }
}

/// The reason for which a request is refused. Its text is sent to the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AccessDenied {
    /// The request has no `Host`, more than one, or an unreadable one.
    #[error("the request needs exactly one Host header that names a host")]
    NoHost,
    /// The request is for a host name that is not configured.
    #[error(
        "`{host}` is not a name of this server; reach it by its address or as localhost, or add the name to {section}.allowed_hosts"
    )]
    UnknownHost {
        /// The section of the settings that lists host names.
        section: &'static str,
        /// The host name.
        host: String,
    },
    /// The request comes from a page whose origin is not allowed.
    #[error("pages of `{origin}` may not use this server; add it to {section}.origins to let them")]
    UnknownOrigin {
        /// The section of the settings that lists origins.
        section: &'static str,
        /// The page's origin.
        origin: String,
    },
    /// The browser states that the request comes from a page of another site.
    #[error("pages of other sites may not use this server")]
    CrossSite,
    /// The request lacks the token.
    #[error("this needs the token, as `Authorization: Bearer …` or `x-outlast-token`")]
    TokenRequired,
    /// The request lacks a client key.
    #[error(
        "this gateway is reachable from other machines and uses stored accounts, so it needs a client key of its own, as `x-api-key` or `Authorization: Bearer …`"
    )]
    ClientKeyRequired,
}

impl From<AccessDenied> for Problem {
    fn from(refused: AccessDenied) -> Self {
        let (status, kind) = match &refused {
            AccessDenied::NoHost => (StatusCode::BAD_REQUEST, "no_host"),
            AccessDenied::UnknownHost { .. } => (StatusCode::FORBIDDEN, "unknown_host"),
            AccessDenied::UnknownOrigin { .. } => (StatusCode::FORBIDDEN, "unknown_origin"),
            AccessDenied::CrossSite => (StatusCode::FORBIDDEN, "cross_site"),
            AccessDenied::TokenRequired => (StatusCode::UNAUTHORIZED, "token_required"),
            AccessDenied::ClientKeyRequired => (StatusCode::UNAUTHORIZED, "client_key_required"),
        };
        Self::new(status, kind, refused.to_string())
    }
}

/// Formats an error of the gateway as JSON that clients of all dialects read as an error.
pub fn error_body(kind: &str, message: &str) -> String {
    let error = serde_json::json!({ "type": kind, "code": kind, "message": message });
    serde_json::json!({ "type": "error", "error": error }).to_string()
}

/// Returns whether the request is a navigation of a person, by a link or a typed address: the response is shown by
/// itself, and no other site's page can read it, put it into a frame or reach into its window.
pub fn is_navigation(headers: &HeaderMap) -> bool {
    let is = |name: &str, expected: &str| headers.get(name).is_some_and(|said| said == expected);
    is("sec-fetch-mode", "navigate") && is("sec-fetch-dest", "document")
}

/// Checks that a request is meant for this server, and that no other site's page sent it.
pub fn check(headers: &HeaderMap, uri: &Uri, names: &AllowedNames) -> Result<(), AccessDenied> {
    let target = uri.authority().map(http::uri::Authority::as_str);
    let host = check_host(only_host(headers)?, names)?;
    let target = target.map(|target| check_host(target, names)).transpose()?;
    // With both, the request target is the one that counts; two different names are suspicious.
    if target.is_some_and(|target| !target.matches(&host)) {
        return Err(AccessDenied::NoHost);
    }
    check_origin(headers, &host, names)
}

/// Returns the value of the only `Host` header.
fn only_host(headers: &HeaderMap) -> Result<&str, AccessDenied> {
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().map_err(|_| AccessDenied::NoHost),
        _ => Err(AccessDenied::NoHost),
    }
}

fn check_host<'a>(authority: &'a str, names: &AllowedNames) -> Result<Authority<'a>, AccessDenied> {
    let place = Authority::parse(authority).ok_or(AccessDenied::NoHost)?;
    if names.allows_host(place.host) {
        return Ok(place);
    }
    Err(AccessDenied::UnknownHost {
        section: names.section,
        host: quoted(place.host),
    })
}

fn check_origin(
    headers: &HeaderMap,
    host: &Authority<'_>,
    names: &AllowedNames,
) -> Result<(), AccessDenied> {
    let mut is_configured = false;
    for origin in headers.get_all(ORIGIN) {
        let origin = String::from_utf8_lossy(origin.as_bytes());
        is_configured = names.allows_origin(&origin);
        if !is_configured && !is_same_origin(&origin, host) {
            return Err(AccessDenied::UnknownOrigin {
                section: names.section,
                origin: quoted(&origin),
            });
        }
    }
    let is_foreign = |site: &HeaderValue| site == "cross-site" || site == "same-site";
    let mut sites = headers.get_all(SEC_FETCH_SITE).iter();
    if !is_configured && sites.any(is_foreign) {
        return Err(AccessDenied::CrossSite);
    }
    Ok(())
}

/// Returns whether the origin is that of pages at this host, which was found to be the server's own.
fn is_same_origin(origin: &str, host: &Authority<'_>) -> bool {
    let (default_port, place) = if let Some(place) = origin.strip_prefix("http://") {
        (80, place)
    } else if let Some(place) = origin.strip_prefix("https://") {
        (443, place)
    } else {
        return false;
    };
    let port = |place: &Authority<'_>| place.port.unwrap_or(default_port);
    Authority::parse(place)
        .is_some_and(|page| page.host.eq_ignore_ascii_case(host.host) && port(&page) == port(host))
}

fn quoted(text: &str) -> String {
    text::bounded(&text::plain(text), MAX_QUOTED_BYTES).into_owned()
}

/// A host and an optional port.
#[derive(Clone, Copy, Debug)]
struct Authority<'a> {
    host: &'a str,
    port: Option<u16>,
}

impl<'a> Authority<'a> {
    fn parse(authority: &'a str) -> Option<Self> {
        let end_of_address = authority.rfind(']').map_or(0, |at| at + 1);
        let (host, port) = match authority[end_of_address..].find(':') {
            Some(colon) => {
                let (host, port) = authority.split_at(end_of_address + colon);
                (host, Some(port[1..].parse().ok()?))
            }
            None => (authority, None),
        };
        (!host.is_empty()).then_some(Self { host, port })
    }

    fn matches(&self, other: &Self) -> bool {
        self.host.eq_ignore_ascii_case(other.host) && self.port == other.port
    }
}

#[cfg(test)]
#[path = "auth_tests.rs"]
mod tests;
