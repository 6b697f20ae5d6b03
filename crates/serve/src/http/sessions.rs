//! Endpoints for sessions: list, create, show, change settings, choose models.

use super::api::{Api, Operation};
use super::app_state::{ExtractState, JsonResult};
use super::extract::{Body, PathId, QueryParams};
use super::problems::HttpError;
use crate::live_sessions::{
    ModelView, QueueMode, SessionList, SessionView, SettingsChange, SettingsView,
};
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, patch, post};
use http::{HeaderValue, StatusCode, header};
use outlast_gateway::problem::Problem;
use outlast_session::factory::SessionOptions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Default and maximum number of sessions in a list.
const DEFAULT_LIMIT: usize = 50;
const MAX_LIMIT: usize = 500;

pub(super) fn add_routes(api: &mut Api) {
    let list = Operation::get(
        "/api/sessions",
        "list_sessions",
        "Sessions, the newest first",
    );
    api.add(
        list.query::<ListQuery>().response::<SessionList>(),
        get(list_sessions),
    );
    let create = Operation::post("/api/sessions", "create_session", "Creates a session");
    let create = create.body::<NewSession>();
    api.add(create.created::<SessionView>(), post(create_session));
    let show = Operation::get(
        "/api/sessions/{id}",
        "show_session",
        "The state of a session",
    );
    api.add(show.response::<SessionView>(), get(show_session));
    let path = "/api/sessions/{id}/settings";
    let shown = Operation::get(path, "show_settings", "The settings of a session");
    api.add(shown.response::<SettingsView>(), get(show_settings));
    let changed = Operation::patch(path, "change_settings", "Changes the settings of a session");
    let changed = changed.body::<SettingsPatch>();
    api.add(changed.response::<SettingsView>(), patch(change_settings));
    let about = "The models that can be chosen";
    let models = Operation::get("/api/sessions/{id}/models", "list_models", about);
    api.add(models.response::<ModelList>(), get(list_models));
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    /// The maximum number of sessions in the list, up to 500.
    limit: Option<usize>,
    /// The id of a session; the list continues after it, with older sessions.
    before: Option<String>,
}

async fn list_sessions(
    State(shared): ExtractState,
    QueryParams(asked): QueryParams<ListQuery>,
) -> JsonResult<SessionList> {
    let limit = asked.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
    let list = shared.sessions.list(limit, asked.before.as_deref()).await?;
    Ok(Json(list))
}

/// A session to create. Absent fields take their values from the settings.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewSession {
    /// The folder in which the session works; if absent, the one in which the server was started.
    directory: Option<PathBuf>,
    /// The title of the session.
    title: Option<String>,
    /// The name of the provider.
    provider: Option<String>,
    /// The model.
    model: Option<String>,
    /// The retry policy.
    policy: Option<String>,
    /// The handling of an answer that is cut off: fail, retract it and retry, or continue it.
    after_content: Option<AfterContent>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum AfterContent {
    Fail,
    Retract,
    Continue,
}

impl AfterContent {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Retract => "retract",
            Self::Continue => "continue",
        }
    }
}

async fn create_session(
    State(shared): ExtractState,
    Body(new): Body<NewSession>,
) -> Result<Response, HttpError> {
    let wishes = SessionOptions {
        folder: new.directory,
        title: new.title,
        provider: new.provider,
        model: new.model,
        policy: new.policy,
        after_content: new.after_content.map(|word| word.as_str().to_owned()),
    };
    let room = shared.sessions.create(wishes).await?;
    let location = HeaderValue::try_from(format!("/api/sessions/{}", room.id()));
    let location = location.map_err(|error| Problem::unreadable(error.to_string()))?;
    let view = Json(room.view().await?);
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], view).into_response())
}

async fn show_session(State(shared): ExtractState, PathId(id): PathId) -> JsonResult<SessionView> {
    Ok(Json(shared.sessions.find(&id).await?.view().await?))
}

async fn show_settings(
    State(shared): ExtractState,
    PathId(id): PathId,
) -> JsonResult<SettingsView> {
    Ok(Json(shared.sessions.find(&id).await?.settings().await?))
}

/// A change of a session's settings. Absent fields remain unchanged.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SettingsPatch {
    /// The title of the session.
    title: Option<String>,
    /// The name of the provider; requires the model.
    provider: Option<String>,
    /// The model.
    model: Option<String>,
    /// The retry policy.
    policy: Option<String>,
    /// Whether failures are retried.
    auto_retry: Option<bool>,
    /// Whether the conversation is compacted automatically.
    auto_compaction: Option<bool>,
    /// How many queued messages for the running turn are sent at once.
    steering_mode: Option<QueueMode>,
    /// How many queued follow-up messages are sent at once.
    follow_up_mode: Option<QueueMode>,
}

async fn change_settings(
    State(shared): ExtractState,
    PathId(id): PathId,
    Body(change): Body<SettingsPatch>,
) -> JsonResult<SettingsView> {
    let room = shared.sessions.find(&id).await?;
    let model = match (change.provider, change.model) {
        (None, None) => None,
        (provider, Some(model)) => {
            let provider = match provider {
                Some(provider) => provider,
                None => room.settings().await?.provider,
            };
            Some((provider, model))
        }
        (Some(_), None) => return Err(Problem::wrong("provider: name a model of it, too").into()),
    };
    if change
        .title
        .as_deref()
        .is_some_and(|title| title.trim().is_empty())
    {
        return Err(Problem::wrong("title: it may not be empty").into());
    }
    let settings = SettingsChange {
        title: change.title,
        model,
        policy: change.policy,
        auto_retry: change.auto_retry,
        auto_compaction: change.auto_compaction,
        steering_mode: change.steering_mode,
        follow_up_mode: change.follow_up_mode,
    };
    room.change(settings).await?;
    Ok(Json(room.settings().await?))
}

/// The available models.
#[derive(Debug, Serialize, JsonSchema)]
struct ModelList {
    /// The available models.
    models: Vec<ModelView>,
}

async fn list_models(State(shared): ExtractState, PathId(id): PathId) -> JsonResult<ModelList> {
    let card = shared
        .sessions
        .find(&id)
        .await?
        .card()
        .await?
        .ensure_usable()?;
    Ok(Json(ModelList {
        models: card.models.into_iter().map(Into::into).collect(),
    }))
}
