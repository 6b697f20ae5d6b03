//! Which problem a client is told of for what goes wrong.

use crate::guard::Refused;
use crate::host::HouseError;
use crate::problem::Problem;
use crate::sessions;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::StatusCode;

impl Problem {
    /// What was asked for cannot be read.
    pub(super) fn unreadable(detail: impl AsRef<str>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", detail)
    }

    /// What was asked for can be read and cannot be had.
    pub(super) fn wrong(detail: impl AsRef<str>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_value", detail)
    }

    /// There is no such thing.
    pub fn unknown(detail: impl AsRef<str>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", detail)
    }

    /// As things are, that is not done.
    pub(super) fn conflict(code: &'static str, detail: impl AsRef<str>) -> Self {
        Self::new(StatusCode::CONFLICT, code, detail)
    }

    /// It cannot be done now, and perhaps later.
    pub fn unavailable(code: &'static str, detail: impl AsRef<str>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, code, detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        self.response().map(Body::from)
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        Self::from(&refused)
    }
}

impl From<HouseError> for Problem {
    fn from(error: HouseError) -> Self {
        let detail = error.to_string();
        match error {
            HouseError::Unknown { .. } => Self::unknown(detail),
            HouseError::InUse { .. } => Self::conflict("in_use", detail),
            HouseError::Wrong(_) => Self::wrong(detail),
            HouseError::Failed(_) => Self::unavailable("unavailable", detail),
        }
    }
}

impl From<sessions::Error> for Problem {
    fn from(error: sessions::Error) -> Self {
        let detail = error.to_string();
        match error {
            sessions::Error::House(error) => error.into(),
            sessions::Error::Refused(_) => Self::conflict("refused", detail),
            sessions::Error::Behind => Self::new(StatusCode::GONE, "stale", detail),
            sessions::Error::Busy => Self::unavailable("busy", detail).after(1),
            sessions::Error::TooMany => Self::unavailable("too_many_sessions", detail),
            sessions::Error::Unreadable(_) => Self::unavailable("unavailable", detail),
        }
    }
}
