//! The page for browsers: its files, and what is said with each of them.
//!
//! The files are those of `web/`, as they stand there, within the program: nothing is built and nothing is read from a disk.
//! They hold no data and are for everybody who may ask at all; data comes from endpoints that ask for a token.
//! Invariant: the page runs nothing but its own files, asks nobody but the server that it came from, and is shown in no
//! frame.
//! Not here: who may ask (whoever serves it decides), and the endpoints.

use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use sha2::{Digest, Sha256};
use std::sync::LazyLock;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The page itself.
const INDEX: &str = "index.html";

/// Every file: its name within `web/`, what it is, and its bytes.
const TABLE: &[(&str, &str, &[u8])] = &[
    (INDEX, HTML, include_bytes!("../../../web/index.html")),
    ("style.css", CSS, include_bytes!("../../../web/style.css")),
    ("app.js", SCRIPT, include_bytes!("../../../web/app.js")),
];

/// What the page may do. Nothing that is not named here.
const CONTENT_SECURITY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What is said with every file.
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
    // It is asked for again each time, and answered with 304 while the program is the same.
    (header::CACHE_CONTROL, "no-cache"),
];

/// One file of the page.
#[derive(Debug)]
pub struct File {
    /// Its name within the page, such as `app.js`.
    pub name: &'static str,
    /// What it is.
    pub content_type: &'static str,
    /// Its content.
    pub bytes: &'static [u8],
    /// A mark of its content.
    etag: String,
}

/// The file at that path below the place where the page is; the page itself is at "" and at its own name.
pub fn file(path: &str) -> Option<&'static File> {
    let name = if path.is_empty() { INDEX } else { path };
    files().iter().find(|file| file.name == name)
}

/// Every file of the page.
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

    /// What a GET or a HEAD with these headers is answered. The body is there for both: whoever writes it knows which.
    pub fn response(&self, asked: &HeaderMap) -> Response<Bytes> {
        let is_known = self.is_known_to(asked);
        let (status, body) = match is_known {
            true => (StatusCode::NOT_MODIFIED, Bytes::new()),
            false => (StatusCode::OK, Bytes::from_static(self.bytes)),
        };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        let said = HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value)));
        headers.extend(said);
        // Sixteen digits in quotes are a header.
        if let Ok(etag) = HeaderValue::from_str(&self.etag) {
            headers.insert(header::ETAG, etag);
        }
        if !is_known {
            let form = HeaderValue::from_static(self.content_type);
            headers.insert(header::CONTENT_TYPE, form);
        }
        response
    }

    /// Whether a browser has it already.
    fn is_known_to(&self, asked: &HeaderMap) -> bool {
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
#[path = "page_tests.rs"]
mod tests;
