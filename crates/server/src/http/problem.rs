//! What a client is told that asked for something that is not done: a problem, as RFC 9457 has it.

use crate::guard::Refused;
use crate::host::HouseError;
use crate::sessions;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use outlast_kernel::text;
use schemars::JsonSchema;
use serde::Serialize;

/// The most of a detail that is told, in bytes.
const LONGEST: usize = 4 << 10;
/// What a problem's body is.
pub(super) const CONTENT_TYPE: &str = "application/problem+json";

/// A problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Problem {
    /// Always `about:blank`: the status says what kind of problem it is.
    #[serde(rename = "type")]
    pub kind: String,
    /// The status in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What is wrong, and what to do about it.
    pub detail: String,
    /// A word for programs.
    pub code: String,
    #[serde(skip)]
    headers: HeaderMap,
}

impl Problem {
    /// A problem of that status.
    pub fn new(status: StatusCode, code: &str, detail: impl AsRef<str>) -> Self {
        let detail = text::plain(detail.as_ref());
        Self {
            kind: "about:blank".to_owned(),
            title: status.canonical_reason().unwrap_or("Problem").to_owned(),
            status: status.as_u16(),
            detail: text::bounded(&detail, LONGEST).into_owned(),
            code: code.to_owned(),
            headers: HeaderMap::new(),
        }
    }

    /// The same with another header.
    #[must_use]
    pub fn with(mut self, name: header::HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// What was asked for cannot be read.
    pub fn unreadable(detail: impl AsRef<str>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", detail)
    }

    /// What was asked for can be read and cannot be had.
    pub fn wrong(detail: impl AsRef<str>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_value", detail)
    }

    /// There is no such thing.
    pub fn unknown(detail: impl AsRef<str>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", detail)
    }

    /// As things are, that is not done.
    pub fn conflict(code: &str, detail: impl AsRef<str>) -> Self {
        Self::new(StatusCode::CONFLICT, code, detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::BAD_REQUEST);
        let body = serde_json::to_string(&self).unwrap_or_default();
        let kind = HeaderValue::from_static(CONTENT_TYPE);
        let mut response = (status, [(header::CONTENT_TYPE, kind)], body).into_response();
        response.headers_mut().extend(self.headers);
        response
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        let status = StatusCode::from_u16(refused.status()).unwrap_or(StatusCode::FORBIDDEN);
        let problem = Self::new(status, refused.kind(), refused.to_string());
        match refused.challenge() {
            Some(challenge) => problem.with(header::WWW_AUTHENTICATE, challenge),
            None => problem,
        }
    }
}

impl From<HouseError> for Problem {
    fn from(error: HouseError) -> Self {
        let detail = error.to_string();
        match error {
            HouseError::Unknown { .. } => Self::unknown(detail),
            HouseError::InUse { .. } => Self::conflict("in_use", detail),
            HouseError::Wrong(_) => Self::wrong(detail),
            HouseError::Failed(_) => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail)
            }
        }
    }
}

impl From<sessions::Error> for Problem {
    fn from(error: sessions::Error) -> Self {
        let detail = error.to_string();
        match error {
            sessions::Error::House(error) => error.into(),
            sessions::Error::Refused(_) => Self::conflict("refused", detail),
            sessions::Error::TooMany => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_sessions", detail)
            }
            sessions::Error::Unreadable(_) => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail)
            }
        }
    }
}
