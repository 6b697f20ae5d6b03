//! Maps the errors of sessions and runs to problem documents.

use crate::runs::StartError;
use crate::sessions;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use outlast_gateway::problem::Problem;
use outlast_pipeline::home;
use outlast_session::host::HouseError;

/// The error of a request: a problem document that axum can send.
#[derive(Debug)]
pub(super) struct HttpError(pub(super) Problem);

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        self.0.response().map(Body::from)
    }
}

impl From<Problem> for HttpError {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl From<HouseError> for HttpError {
    fn from(error: HouseError) -> Self {
        let detail = error.to_string();
        Self(match error {
            HouseError::Unknown { .. } => Problem::unknown(detail),
            HouseError::InUse { .. } => Problem::conflict("in_use", detail),
            HouseError::Wrong(_) => Problem::wrong(detail),
            _ => Problem::unavailable("unavailable", detail),
        })
    }
}

impl From<sessions::Error> for HttpError {
    fn from(error: sessions::Error) -> Self {
        let detail = error.to_string();
        Self(match error {
            sessions::Error::House(error) => return error.into(),
            sessions::Error::Refused(_) => Problem::conflict("refused", detail),
            sessions::Error::Behind => Problem::new(StatusCode::GONE, "stale", detail),
            sessions::Error::Busy => Problem::unavailable("busy", detail).after(1),
            sessions::Error::TooMany => Problem::unavailable("too_many_sessions", detail),
            sessions::Error::Unreadable(_) => Problem::unavailable("unavailable", detail),
        })
    }
}

impl From<home::Error> for HttpError {
    fn from(error: home::Error) -> Self {
        use home::Error;
        let detail = error.to_string();
        Self(match error {
            Error::NoName | Error::NotFound { .. } => Problem::unknown(detail),
            Error::Ambiguous { .. } => Problem::conflict("ambiguous", detail),
            Error::Over { .. } => Problem::conflict("over", detail),
            Error::NotUnderWay { .. } => Problem::conflict("not_under_way", detail),
            Error::NothingAsked { .. } => Problem::conflict("nothing_asked", detail),
            Error::SeveralAsk { .. } => Problem::conflict("several_ask", detail),
            Error::UnknownChoice { .. } => Problem::wrong(detail),
            _ => Problem::unavailable("unavailable", detail),
        })
    }
}

impl From<StartError> for HttpError {
    fn from(error: StartError) -> Self {
        let detail = error.to_string();
        Self(match error {
            StartError::Faults(_) | StartError::Refused { .. } => Problem::wrong(detail),
            _ => Problem::unavailable("unavailable", detail),
        })
    }
}
