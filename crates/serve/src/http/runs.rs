//! Endpoints for pipeline runs: list, show, start, retry, cancel, answer.

use super::api::{Api, Operation};
use super::app_state::{ExtractState, JsonResult};
use super::extract::{Body, PathId, QueryParams};
use super::problems::HttpError;
use crate::runs::NewRun;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::{HeaderValue, StatusCode, header};
use outlast_gateway::problem::Problem;
use outlast_kernel::Timestamp;
use outlast_pipeline::run_store::RunRequestReceipt;
use outlast_pipeline::run_view::{RunRow, RunView};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Default number of runs in a list.
const DEFAULT_LIMIT: usize = 50;

pub(super) fn add_routes(api: &mut Api) {
    let list = Operation::get(
        "/api/runs",
        "list_runs",
        "Runs of pipelines, the newest first",
    );
    api.add(
        list.query::<ListQuery>().response::<RunList>(),
        get(list_runs),
    );
    let start = Operation::post("/api/runs", "start_run", "Runs a pipeline");
    api.add(
        start.body::<NewRun>().created::<StartedRun>(),
        post(start_run),
    );
    let about = "A run: its steps, what they need, their attempts, waits and questions";
    let show = Operation::get("/api/runs/{id}", "show_run", about);
    api.add(show.response::<RunResponse>(), get(show_run));
    let about = "Retries the waiting steps of a run at once";
    let retry = Operation::post("/api/runs/{id}/retry_now", "run_retry_now", about);
    api.add(
        retry.body::<StepTarget>().response::<RunRequestReceipt>(),
        post(retry_now),
    );
    let cancel = Operation::post("/api/runs/{id}/cancel", "cancel_run", "Cancels a run");
    api.add(cancel.response::<RunRequestReceipt>(), post(cancel_run));
    let answer = Operation::post(
        "/api/runs/{id}/answer",
        "answer_run",
        "Answers the question of a run",
    );
    api.add(
        answer.body::<Choice>().response::<RunRequestReceipt>(),
        post(answer_run),
    );
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    /// The maximum number of runs in the list.
    limit: Option<usize>,
}

/// A list of runs, the newest first.
#[derive(Debug, Serialize, JsonSchema)]
struct RunList {
    /// The server's current time.
    now: Timestamp,
    /// The runs.
    runs: Vec<RunRow>,
}

async fn list_runs(
    State(shared): ExtractState,
    QueryParams(asked): QueryParams<ListQuery>,
) -> JsonResult<RunList> {
    let limit = asked.limit.unwrap_or(DEFAULT_LIMIT).max(1);
    Ok(Json(RunList {
        runs: shared.runs.list(limit).await?,
        now: shared.sessions.session_factory().clock().now(),
    }))
}

/// A run, with the server's time.
#[derive(Debug, Serialize, JsonSchema)]
struct RunResponse {
    /// The server's current time.
    now: Timestamp,
    /// The run.
    run: RunView,
}

async fn show_run(State(shared): ExtractState, PathId(id): PathId) -> JsonResult<RunResponse> {
    Ok(Json(RunResponse {
        run: shared.runs.view(&id).await?,
        now: shared.sessions.session_factory().clock().now(),
    }))
}

/// A run that was started.
#[derive(Debug, Serialize, JsonSchema)]
struct StartedRun {
    /// The id of the run.
    id: String,
}

async fn start_run(
    State(shared): ExtractState,
    Body(wanted): Body<NewRun>,
) -> Result<Response, HttpError> {
    let id = shared.run_starter.start(wanted).await?;
    let location = HeaderValue::try_from(format!("/api/runs/{id}"));
    let location = location.map_err(|error| Problem::wrong(error.to_string()))?;
    let begun = Json(StartedRun { id });
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], begun).into_response())
}

/// The step that a request is for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StepTarget {
    /// The name of the step; if absent, all waiting steps.
    step: Option<String>,
}

async fn retry_now(
    State(shared): ExtractState,
    PathId(id): PathId,
    Body(meant): Body<StepTarget>,
) -> JsonResult<RunRequestReceipt> {
    Ok(Json(
        shared.runs.retry_now(&id, meant.step.as_deref()).await?,
    ))
}

async fn cancel_run(
    State(shared): ExtractState,
    PathId(id): PathId,
) -> JsonResult<RunRequestReceipt> {
    Ok(Json(shared.runs.cancel(&id).await?))
}

/// An answer to the question of a step.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Choice {
    /// The name of the step that asks; if absent, the only step that asks.
    step: Option<String>,
    /// The key of the choice; if absent, the first choice.
    choice: Option<String>,
}

async fn answer_run(
    State(shared): ExtractState,
    PathId(id): PathId,
    Body(answer): Body<Choice>,
) -> JsonResult<RunRequestReceipt> {
    let (step, choice) = (answer.step.as_deref(), answer.choice.as_deref());
    Ok(Json(shared.runs.answer(&id, step, choice).await?))
}
