//! Extractors for path, query and body; an invalid part becomes a problem document that says what is wrong.

use super::app_state::AppState;
use super::problems::HttpError;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use http::request::Parts;
use http::{StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use outlast_gateway::problem::Problem;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// The id in the last part of a path.
pub(super) struct PathId(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for PathId {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, HttpError> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let Path(name) = path.map_err(|error| Problem::unknown(error.body_text()))?;
        Ok(Self(name))
    }
}

/// The query parameters. Unknown parameters are refused: a misspelt one would otherwise be ignored.
pub(super) struct QueryParams<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryParams<T> {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, HttpError> {
        let query = Query::<T>::try_from_uri(&parts.uri);
        let Query(asked) = query.map_err(|error| Problem::unreadable(error.body_text()))?;
        Ok(Self(asked))
    }
}

/// A JSON body. An empty body counts as an empty object.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<Arc<AppState>> for Body<T> {
    type Rejection = HttpError;

    async fn from_request(request: Request, shared: &Arc<AppState>) -> Result<Self, HttpError> {
        let kind = request.headers().get(header::CONTENT_TYPE);
        let is_json = kind.is_some_and(|kind| is_json(kind.as_bytes()));
        let limited = Limited::new(request.into_body(), shared.limits.body);
        let reading = tokio::time::timeout(shared.limits.body_time, limited.collect());
        let Ok(read) = reading.await else {
            let detail = "the request took too long to come";
            return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "timeout", detail).into());
        };
        let bytes = read.map_err(|error| body_error(&*error))?.to_bytes();
        if bytes.trim_ascii().is_empty() {
            return read_json(b"{}").map(Self);
        }
        // A browser sends any other content type across sites without a preflight.
        if !is_json {
            let detail = "the body is JSON: say so with `content-type: application/json`";
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return Err(Problem::new(status, "unsupported_media_type", detail).into());
        }
        read_json(&bytes).map(Self)
    }
}

fn is_json(kind: &[u8]) -> bool {
    let kind = kind.split(|b| *b == b';').next().unwrap_or_default();
    kind.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

fn body_error(error: &(dyn std::error::Error + 'static)) -> Problem {
    if error.is::<LengthLimitError>() {
        let detail = "the body is longer than serve.max_body allows";
        let status = StatusCode::PAYLOAD_TOO_LARGE;
        return Problem::new(status, "request_too_large", detail);
    }
    Problem::unreadable("the body could not be read to its end")
}

/// Parses JSON; an error names the path of the field.
pub(super) fn read_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, HttpError> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let read = serde_path_to_error::deserialize(&mut reader);
    let value = read.map_err(|error| {
        let (path, inner) = (error.path().to_string(), error.into_inner());
        let place = if path == "." {
            String::new()
        } else {
            format!("{path}: ")
        };
        let detail = format!("{place}{inner}");
        match inner.is_data() {
            true => Problem::wrong(detail),
            false => Problem::unreadable(detail),
        }
    })?;
    let end = reader.end();
    end.map_err(|error| Problem::unreadable(error.to_string()))?;
    Ok(value)
}
