//! The files of the browser page, and the headers that they are served with.
//!
//! The files of `web/` are compiled into the program unchanged: there is no build step, and nothing is read from disk.
//! They hold no data, so every permitted client may load them; data comes from endpoints that require a token.
//! Invariant: the page runs only its own files, connects only to the server that it came from, and is shown in no
//! frame. Not here: access control (the server decides), and the endpoints.

use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use sha2::{Digest, Sha256};
use std::sync::LazyLock;

/// The file name of the page itself.
const INDEX: &str = "index.html";

macro_rules! embed {
    ($($name:literal)*) => { &[$(($name, include_bytes!(concat!("../../../web/", $name)))),*] };
}

/// Every file: its name within `web/`, and its bytes.
const TABLE: &[(&str, &[u8])] = embed! {
    "index.html" "api.js" "bubbles.js" "causes.js" "chart.js" "charts.css" "clock.js" "composer.js"
    "dialog.js" "dom.js" "follow.js" "gateway-view.js" "icon.svg" "icons.js" "keep.js" "keys.js"
    "main.js" "markdown-inline.js" "markdown-view.js" "markdown.js" "notes.js" "page.js" "parts.css"
    "policies-view.js" "poll.js" "providers-view.js" "router.js" "run-graph.js" "run-layout.js"
    "run-timeline.js" "run-view.js" "runs-view.js" "session-view.js" "sessions-view.js"
    "sessions.css" "settings-panel.js" "sse.js" "standing.js" "states.js" "style.css" "text.js"
    "theme-early.js" "theme.js" "time.js" "token.js" "traffic-timeline.js" "traffic.js"
    "transcript-items.js" "transcript-view.js" "transcript.js"
};

/// The content security policy: the page may do nothing that is not named here.
const CONTENT_SECURITY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The headers that are sent with every file.
const HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    // Browsers revalidate each time; the answer is 304 while the program is the same.
    (header::CACHE_CONTROL, "no-cache"),
];

/// One file of the page.
#[derive(Debug)]
pub struct File {
    /// The name within the page, such as `main.js`.
    pub name: &'static str,
    /// The content type.
    pub content_type: &'static str,
    /// The content.
    pub bytes: &'static [u8],
    /// The entity tag, derived from the content.
    etag: String,
}

/// Returns the file at the given path below the page's address; the page itself is at "" and at its own name.
pub fn file(path: &str) -> Option<&'static File> {
    let name = if path.is_empty() { INDEX } else { path };
    files().iter().find(|file| file.name == name)
}

/// Returns every file of the page.
pub fn files() -> &'static [File] {
    static FILES: LazyLock<Vec<File>> = LazyLock::new(|| TABLE.iter().map(File::new).collect());
    &FILES
}

impl File {
    fn new(&(name, bytes): &(&'static str, &'static [u8])) -> Self {
        Self {
            name,
            content_type: match name.rsplit_once('.') {
                Some((_, "html")) => "text/html; charset=utf-8",
                Some((_, "css")) => "text/css; charset=utf-8",
                Some((_, "svg")) => "image/svg+xml",
                _ => "text/javascript; charset=utf-8",
            },
            bytes,
            etag: format!("\"{:.16x}\"", Sha256::digest(bytes)),
        }
    }

    /// Returns the response to a GET or a HEAD with these headers. The body is included for both; for a HEAD, the
    /// caller must not send it.
    pub fn response(&self, asked: &HeaderMap) -> Response<Bytes> {
        let is_known = self.is_cached_by(asked);
        let (status, body) = match is_known {
            true => (StatusCode::NOT_MODIFIED, Bytes::new()),
            false => (StatusCode::OK, Bytes::from_static(self.bytes)),
        };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        let said = HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value)));
        headers.extend(said);
        // Sixteen digits in quotes are always a valid header value.
        if let Ok(etag) = HeaderValue::from_str(&self.etag) {
            headers.insert(header::ETAG, etag);
        }
        if !is_known {
            let form = HeaderValue::from_static(self.content_type);
            headers.insert(header::CONTENT_TYPE, form);
        }
        response
    }

    /// Returns whether the browser has the current version of the file.
    fn is_cached_by(&self, asked: &HeaderMap) -> bool {
        let values = asked.get_all(header::IF_NONE_MATCH).iter();
        let mut tags = values
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','));
        tags.any(|tag| {
            let tag = tag.trim();
            tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == self.etag
        })
    }
}

#[cfg(test)]
#[path = "assets_tests.rs"]
mod tests;
