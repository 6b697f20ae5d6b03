//! Errors for HTTP clients as problem documents (RFC 9457).

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use outlast_kernel::text;
use schemars::JsonSchema;
use serde::Serialize;

/// The content type of a problem.
pub const CONTENT_TYPE: &str = "application/problem+json";

/// Maximum length of a detail, in bytes.
const MAX_DETAIL_BYTES: usize = 4 << 10;

/// The reason for which a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The HTTP status.
    pub status: StatusCode,
    /// The error code, one word for programs.
    pub code: &'static str,
    /// The text for people: the error and its remedy.
    pub detail: String,
    /// The methods that the resource allows.
    allowed: Option<&'static str>,
    /// The number of seconds after which a retry is worthwhile.
    retry_after: Option<u64>,
}

/// The body of a problem document, in its serialized form.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub struct ProblemBody<'a> {
    /// The problem type, always `about:blank`; the status and the code identify the problem.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The reason phrase of the HTTP status.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// The error and its remedy, as text for people.
    detail: &'a str,
    /// The error code, one word for programs.
    code: &'static str,
}

impl Problem {
    /// Creates a problem of that status and code. The detail may contain text from outside.
    pub fn new(status: StatusCode, code: &'static str, detail: impl AsRef<str>) -> Self {
        let detail = text::plain(detail.as_ref());
        Self {
            status,
            code,
            detail: text::bounded(&detail, MAX_DETAIL_BYTES).into_owned(),
            allowed: None,
            retry_after: None,
        }
    }

    /// Creates the problem of a request that cannot be parsed.
    pub fn unreadable(detail: impl AsRef<str>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", detail)
    }

    /// Creates the problem of a request that can be parsed and has an invalid value.
    pub fn wrong(detail: impl AsRef<str>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_value", detail)
    }

    /// Creates the problem of a resource that does not exist.
    pub fn unknown(detail: impl AsRef<str>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", detail)
    }

    /// Creates the problem of a request that the present state does not allow.
    pub fn conflict(code: &'static str, detail: impl AsRef<str>) -> Self {
        Self::new(StatusCode::CONFLICT, code, detail)
    }

    /// Creates the problem of a request that fails now and may succeed later.
    pub fn unavailable(code: &'static str, detail: impl AsRef<str>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, code, detail)
    }

    /// Adds the number of seconds after which the client should retry.
    #[must_use]
    pub const fn with_retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// Adds the methods that are allowed, as `Allow` names them.
    pub fn with_allowed_methods(mut self, methods: &'static str) -> Self {
        self.allowed = Some(methods);
        self
    }

    /// Returns the body in its serialized form.
    pub fn body(&self) -> ProblemBody<'_> {
        ProblemBody {
            kind: "about:blank",
            title: self.status.canonical_reason().unwrap_or("Unknown"),
            status: self.status.as_u16(),
            detail: &self.detail,
            code: self.code,
        }
    }

    /// Returns the whole response.
    pub fn response(&self) -> Response<Bytes> {
        // Texts and numbers always serialize.
        let body = serde_json::to_vec(&self.body()).unwrap_or_default();
        let mut response = Response::new(body.into());
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        let form = HeaderValue::from_static(CONTENT_TYPE);
        headers.insert(header::CONTENT_TYPE, form);
        let no_store = HeaderValue::from_static("no-store");
        headers.insert(header::CACHE_CONTROL, no_store);
        self.add_headers(headers);
        response
    }

    /// Adds the headers that a 401 and a 405 must have: the way to a successful request.
    pub fn add_headers(&self, headers: &mut HeaderMap) {
        if self.status == StatusCode::UNAUTHORIZED {
            let bearer = HeaderValue::from_static("Bearer realm=\"outlast\"");
            headers.insert(header::WWW_AUTHENTICATE, bearer);
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(methods) = self.allowed {
            headers.insert(header::ALLOW, HeaderValue::from_static(methods));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn problem_response_follows_rfc_9457() {
        let problem = Problem::new(StatusCode::NOT_FOUND, "no_such_request", "it is gone");
        let response = problem.response();
        assert_eq!(response.status(), 404);
        assert_eq!(
            response.headers()["content-type"],
            "application/problem+json"
        );
        assert_eq!(response.headers()["cache-control"], "no-store");
        assert!(!response.headers().contains_key("www-authenticate"));
        let body: Value = serde_json::from_slice(response.body()).unwrap();
        let expected = json!({
            "type": "about:blank", "title": "Not Found", "status": 404,
            "detail": "it is gone", "code": "no_such_request",
        });
        assert_eq!(body, expected);
        let problem = Problem::new(StatusCode::UNAUTHORIZED, "token_required", "no");
        let response = problem.with_allowed_methods("GET").response();
        assert_eq!(response.headers()["allow"], "GET");
        let challenge = &response.headers()["www-authenticate"];
        assert_eq!(challenge, "Bearer realm=\"outlast\"");
    }
}
