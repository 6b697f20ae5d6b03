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

pub(super) fn add_to(api: &mut Api) {
    let list = Operation::get(
        "/api/sessions",
        "list_sessions",
        "Sessions, the newest first",
    );
    api.add(
        list.query::<ListQuery>().answers::<SessionList>(),
        get(list_sessions),
    );
    let create = Operation::post("/api/sessions", "create_session", "Begins a session");
    let create = create.body::<NewSession>();
    api.add(create.made::<SessionView>(), post(create_session));
    let show = Operation::get(
        "/api/sessions/{id}",
        "show_session",
        "Where a session stands",
    );
    api.add(show.answers::<SessionView>(), get(show_session));
    let path = "/api/sessions/{id}/settings";
    let shown = Operation::get(path, "show_settings", "How a session is led");
    api.add(shown.answers::<SettingsView>(), get(show_settings));
    let changed = Operation::patch(path, "change_settings", "Changes how a session is led");
    let changed = changed.body::<SettingsPatch>();
    api.add(changed.answers::<SettingsView>(), patch(change_settings));
    let about = "The models that can be chosen";
    let models = Operation::get("/api/sessions/{id}/models", "list_models", about);
    api.add(models.answers::<ModelList>(), get(list_models));
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    /// How many at most, up to 500.
    limit: Option<usize>,
    /// Those that come after this one in the list.
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

/// A session that is to begin. What is not said is as the settings have it.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewSession {
    /// The folder in which it works; without it the one in which the server was started.
    directory: Option<PathBuf>,
    /// What it is about.
    title: Option<String>,
    /// Who answers.
    provider: Option<String>,
    /// The model that is asked.
    model: Option<String>,
    /// The retry policy.
    policy: Option<String>,
    /// What becomes of an answer that breaks off: it fails, it is taken back and asked for anew, or it is gone on with.
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
    const fn word(self) -> &'static str {
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
        after_content: new.after_content.map(|word| word.word().to_owned()),
    };
    let room = shared.sessions.create(wishes).await?;
    let location = HeaderValue::try_from(format!("/api/sessions/{}", room.id()));
    let location = location.map_err(|error| Problem::unreadable(error.to_string()))?;
    let view = Json(room.view().await?);
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], view).into_response())
}

async fn show_session(State(shared): ExtractState, PathId(id): PathId) -> JsonResult<SessionView> {
    Ok(Json(shared.sessions.room(&id).await?.view().await?))
}

async fn show_settings(
    State(shared): ExtractState,
    PathId(id): PathId,
) -> JsonResult<SettingsView> {
    Ok(Json(shared.sessions.room(&id).await?.settings().await?))
}

/// What is to change; what is not said stays as it is.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SettingsPatch {
    /// What it is about.
    title: Option<String>,
    /// Who answers; together with the model.
    provider: Option<String>,
    /// The model that is asked.
    model: Option<String>,
    /// The retry policy.
    policy: Option<String>,
    /// Whether failures are retried.
    auto_retry: Option<bool>,
    /// Whether the conversation is made smaller by itself.
    auto_compaction: Option<bool>,
    /// How many messages that wait are said at once, of those for the turn that runs.
    steering_mode: Option<QueueMode>,
    /// The same for those that follow.
    follow_up_mode: Option<QueueMode>,
}

async fn change_settings(
    State(shared): ExtractState,
    PathId(id): PathId,
    Body(change): Body<SettingsPatch>,
) -> JsonResult<SettingsView> {
    let room = shared.sessions.room(&id).await?;
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

/// The models that can be chosen.
#[derive(Debug, Serialize, JsonSchema)]
struct ModelList {
    /// They.
    models: Vec<ModelView>,
}

async fn list_models(State(shared): ExtractState, PathId(id): PathId) -> JsonResult<ModelList> {
    let card = shared.sessions.room(&id).await?.card().await?.sound()?;
    Ok(Json(ModelList {
        models: card.models.into_iter().map(Into::into).collect(),
    }))
}
