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

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// The file name of the page itself.
const INDEX: &str = "index.html";

/// Every file: its name within `web/`, its content type and its bytes.
const TABLE: &[(&str, &str, &[u8])] = &[
    (INDEX, HTML, include_bytes!("../../../web/index.html")),
    ("api.js", SCRIPT, include_bytes!("../../../web/api.js")),
    (
        "bubbles.js",
        SCRIPT,
        include_bytes!("../../../web/bubbles.js"),
    ),
    (
        "causes.js",
        SCRIPT,
        include_bytes!("../../../web/causes.js"),
    ),
    ("chart.js", SCRIPT, include_bytes!("../../../web/chart.js")),
    ("charts.css", CSS, include_bytes!("../../../web/charts.css")),
    ("clock.js", SCRIPT, include_bytes!("../../../web/clock.js")),
    (
        "composer.js",
        SCRIPT,
        include_bytes!("../../../web/composer.js"),
    ),
    (
        "dialog.js",
        SCRIPT,
        include_bytes!("../../../web/dialog.js"),
    ),
    ("dom.js", SCRIPT, include_bytes!("../../../web/dom.js")),
    (
        "follow.js",
        SCRIPT,
        include_bytes!("../../../web/follow.js"),
    ),
    (
        "gateway-view.js",
        SCRIPT,
        include_bytes!("../../../web/gateway-view.js"),
    ),
    ("icon.svg", SVG, include_bytes!("../../../web/icon.svg")),
    ("icons.js", SCRIPT, include_bytes!("../../../web/icons.js")),
    ("keep.js", SCRIPT, include_bytes!("../../../web/keep.js")),
    ("keys.js", SCRIPT, include_bytes!("../../../web/keys.js")),
    ("main.js", SCRIPT, include_bytes!("../../../web/main.js")),
    (
        "markdown-inline.js",
        SCRIPT,
        include_bytes!("../../../web/markdown-inline.js"),
    ),
    (
        "markdown-view.js",
        SCRIPT,
        include_bytes!("../../../web/markdown-view.js"),
    ),
    (
        "markdown.js",
        SCRIPT,
        include_bytes!("../../../web/markdown.js"),
    ),
    ("notes.js", SCRIPT, include_bytes!("../../../web/notes.js")),
    ("page.js", SCRIPT, include_bytes!("../../../web/page.js")),
    ("parts.css", CSS, include_bytes!("../../../web/parts.css")),
    (
        "policies-view.js",
        SCRIPT,
        include_bytes!("../../../web/policies-view.js"),
    ),
    ("poll.js", SCRIPT, include_bytes!("../../../web/poll.js")),
    (
        "providers-view.js",
        SCRIPT,
        include_bytes!("../../../web/providers-view.js"),
    ),
    (
        "router.js",
        SCRIPT,
        include_bytes!("../../../web/router.js"),
    ),
    (
        "run-graph.js",
        SCRIPT,
        include_bytes!("../../../web/run-graph.js"),
    ),
    (
        "run-layout.js",
        SCRIPT,
        include_bytes!("../../../web/run-layout.js"),
    ),
    (
        "run-timeline.js",
        SCRIPT,
        include_bytes!("../../../web/run-timeline.js"),
    ),
    (
        "run-view.js",
        SCRIPT,
        include_bytes!("../../../web/run-view.js"),
    ),
    (
        "runs-view.js",
        SCRIPT,
        include_bytes!("../../../web/runs-view.js"),
    ),
    (
        "session-view.js",
        SCRIPT,
        include_bytes!("../../../web/session-view.js"),
    ),
    (
        "sessions-view.js",
        SCRIPT,
        include_bytes!("../../../web/sessions-view.js"),
    ),
    (
        "sessions.css",
        CSS,
        include_bytes!("../../../web/sessions.css"),
    ),
    (
        "settings-panel.js",
        SCRIPT,
        include_bytes!("../../../web/settings-panel.js"),
    ),
    ("sse.js", SCRIPT, include_bytes!("../../../web/sse.js")),
    (
        "standing.js",
        SCRIPT,
        include_bytes!("../../../web/standing.js"),
    ),
    (
        "states.js",
        SCRIPT,
        include_bytes!("../../../web/states.js"),
    ),
    ("style.css", CSS, include_bytes!("../../../web/style.css")),
    ("text.js", SCRIPT, include_bytes!("../../../web/text.js")),
    (
        "theme-early.js",
        SCRIPT,
        include_bytes!("../../../web/theme-early.js"),
    ),
    ("theme.js", SCRIPT, include_bytes!("../../../web/theme.js")),
    ("time.js", SCRIPT, include_bytes!("../../../web/time.js")),
    ("token.js", SCRIPT, include_bytes!("../../../web/token.js")),
    (
        "traffic-timeline.js",
        SCRIPT,
        include_bytes!("../../../web/traffic-timeline.js"),
    ),
    (
        "traffic.js",
        SCRIPT,
        include_bytes!("../../../web/traffic.js"),
    ),
    (
        "transcript-items.js",
        SCRIPT,
        include_bytes!("../../../web/transcript-items.js"),
    ),
    (
        "transcript-view.js",
        SCRIPT,
        include_bytes!("../../../web/transcript-view.js"),
    ),
    (
        "transcript.js",
        SCRIPT,
        include_bytes!("../../../web/transcript.js"),
    ),
];

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
    fn new(&(name, content_type, bytes): &(&'static str, &'static str, &'static [u8])) -> Self {
        let digest = Sha256::digest(bytes);
        let digits = digest.iter().take(8).map(|byte| format!("{byte:02x}"));
        Self {
            name,
            content_type,
            bytes,
            etag: format!("\"{}\"", digits.collect::<String>()),
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
