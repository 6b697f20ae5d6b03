//! Maps the errors of sessions and runs to problem documents.

use crate::live_sessions;
use crate::runs::StartError;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use outlast_gateway::problem::Problem;
use outlast_pipeline::run_store;
use outlast_session::factory::FactoryError;

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

impl From<FactoryError> for HttpError {
    fn from(error: FactoryError) -> Self {
        let detail = error.to_string();
        Self(match error {
            FactoryError::NotFound { .. } => Problem::unknown(detail),
            FactoryError::InUse { .. } => Problem::conflict("in_use", detail),
            FactoryError::Invalid(_) => Problem::wrong(detail),
            _ => Problem::unavailable("unavailable", detail),
        })
    }
}

impl From<live_sessions::Error> for HttpError {
    fn from(error: live_sessions::Error) -> Self {
        let detail = error.to_string();
        Self(match error {
            live_sessions::Error::Factory(error) => return error.into(),
            live_sessions::Error::Refused(_) => Problem::conflict("refused", detail),
            live_sessions::Error::Stale => Problem::new(StatusCode::GONE, "stale", detail),
            live_sessions::Error::Busy => Problem::unavailable("busy", detail).with_retry_after(1),
            live_sessions::Error::TooMany => Problem::unavailable("too_many_sessions", detail),
            live_sessions::Error::Unreadable(_) => Problem::unavailable("unavailable", detail),
        })
    }
}

impl From<run_store::Error> for HttpError {
    fn from(error: run_store::Error) -> Self {
        use run_store::Error;
        let detail = error.to_string();
        Self(match error {
            Error::EmptyName | Error::NotFound { .. } => Problem::unknown(detail),
            Error::Ambiguous { .. } => Problem::conflict("ambiguous", detail),
            Error::RunEnded { .. } => Problem::conflict("over", detail),
            Error::StepNotActive { .. } => Problem::conflict("not_under_way", detail),
            Error::NoOpenQuestion { .. } => Problem::conflict("nothing_asked", detail),
            Error::AmbiguousQuestion { .. } => Problem::conflict("several_ask", detail),
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
