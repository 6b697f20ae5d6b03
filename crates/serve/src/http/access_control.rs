//! Access control: checks every request before anything else looks at it.
//!
//! Invariant: nothing under `/api` is answered to a page of another site, under a foreign host name, or, where a token
//! is required, without the token. The page's own files hold no data.

use super::app_state::AppState;
use super::problems::HttpError;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use outlast_gateway::assets;
use outlast_gateway::auth::{self, AccessDenied, Token};
use outlast_gateway::problem::Problem;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// Prefix of the WebSocket subprotocol that carries the token: a browser cannot set a header for a WebSocket.
const TOKEN_PROTOCOL: &str = "outlast.token.";
/// Headers that proxies add. A request with one of them does not come from this machine, whatever its address says.
const PROXY_HEADERS: [&str; 4] = ["forwarded", "via", "x-forwarded-for", "x-real-ip"];
const ALLOWED_METHODS: HeaderValue = HeaderValue::from_static("GET, POST, PATCH");
const ALLOWED_HEADERS: HeaderValue =
    HeaderValue::from_static("authorization, content-type, last-event-id, x-outlast-token");

/// The address of the client, and its connection permit, which a WebSocket keeps too.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) address: IpAddr,
    _permit: Arc<OwnedSemaphorePermit>,
}

impl Peer {
    pub(super) fn new(address: SocketAddr, place: OwnedSemaphorePermit) -> Self {
        Self {
            address: address.ip().to_canonical(),
            _permit: Arc::new(place),
        }
    }
}

pub(super) async fn check(
    State(shared): State<Arc<AppState>>,
    request: Request,
    next: Next,
) -> Response {
    // The allowed origin of a page on another site, if the request comes from one.
    let origin = request.headers().get(header::ORIGIN);
    let origin = origin.filter(|origin| shared.names.allows_origin_header(origin));
    let origin = origin.cloned();
    let is_preflight = request.method() == Method::OPTIONS && origin.is_some();
    let answer = match shared.authorize(&request, is_preflight) {
        Err(problem) => HttpError(problem).into_response(),
        Ok(()) if is_preflight => preflight(),
        Ok(()) => next.run(request).await,
    };
    with_security_headers(answer, origin)
}

impl AppState {
    /// Authorizes a request.
    fn authorize(&self, request: &Request, is_preflight: bool) -> Result<(), Problem> {
        let (headers, path) = (request.headers(), request.uri().path());
        match auth::check(headers, request.uri(), &self.names) {
            // A link from another site to the page may be followed: the page holds no data.
            Err(AccessDenied::CrossSite) if is_page(path) && auth::is_navigation(headers) => {}
            checked => checked?,
        }
        if let Some(peer) = request.extensions().get::<Peer>() {
            self.check_rate(peer.address)?;
        }
        let is_data = path == "/api" || path.starts_with("/api/");
        if !is_data || is_preflight {
            return Ok(());
        }
        match &self.token {
            Some(token) if has_token(headers, token) => Ok(()),
            Some(_) => Err(AccessDenied::TokenRequired.into()),
            None if PROXY_HEADERS.iter().any(|name| headers.contains_key(*name)) => {
                let detail = "this came through a proxy, and anybody could have sent it; set serve.require_token";
                Err(Problem::new(StatusCode::FORBIDDEN, "proxied", detail))
            }
            None => Ok(()),
        }
    }

    /// Counts a request of that address against its rate limit.
    pub(super) fn check_rate(&self, address: IpAddr) -> Result<(), Problem> {
        self.rate_limiter.try_acquire(address).map_err(|wait| {
            let seconds = wait.as_secs() + 1;
            let status = StatusCode::TOO_MANY_REQUESTS;
            let detail = format!("too many requests from {address}; come back in {seconds} s");
            Problem::new(status, "too_many_requests", detail).with_retry_after(seconds)
        })
    }
}

fn is_page(path: &str) -> bool {
    path.strip_prefix('/')
        .is_some_and(|path| assets::file(path).is_some())
}

/// Returns whether a request carries the token, in a header or as a WebSocket subprotocol.
fn has_token(headers: &HeaderMap, token: &Token) -> bool {
    let mut named = protocols(headers).filter_map(|name| name.strip_prefix(TOKEN_PROTOCOL));
    token.is_in_headers(headers) || named.any(|brought| token.matches(brought))
}

/// Returns the subprotocols that a WebSocket client offers.
fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let names = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    let names = names.filter_map(|names| names.to_str().ok());
    names.flat_map(|names| names.split(',').map(str::trim))
}

/// Returns the subprotocol that carried the token; the server has to confirm it.
pub(super) fn token_protocol(headers: &HeaderMap) -> Option<String> {
    let mut names = protocols(headers);
    let named = names.find(|name| name.starts_with(TOKEN_PROTOCOL))?;
    Some(named.to_owned())
}

fn preflight() -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, ALLOWED_METHODS);
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, ALLOWED_HEADERS);
    response
}

/// Adds the headers that keep other sites from using a response.
fn with_security_headers(mut response: Response, origin: Option<HeaderValue>) -> Response {
    let headers = response.headers_mut();
    let fixed: [(HeaderName, &str); 2] = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let policy = HeaderName::from_static("cross-origin-resource-policy");
    let no_store = HeaderValue::from_static("no-store");
    headers.entry(header::CACHE_CONTROL).or_insert(no_store);
    match origin {
        Some(origin) => {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.insert(header::VARY, HeaderValue::from_static("origin"));
            let exposed = HeaderValue::from_static("location, retry-after");
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
        }
        None => {
            headers.insert(policy, HeaderValue::from_static("same-origin"));
        }
    }
    response
}
