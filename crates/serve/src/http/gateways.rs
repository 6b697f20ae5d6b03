//! Endpoints beside sessions and runs: the shared state of providers, the policies, the gateways of this machine, the page.

use super::api::{Api, Operation};
use super::app_state::ExtractState;
use super::extract::{Body, PathId, QueryParams};
use super::problems::HttpError;
use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::{Method, StatusCode};
use outlast_engine::BoxFuture;
use outlast_gateway::assets;
use outlast_gateway::control::{Account, Gate, Policies, SharedState, Status, policies};
use outlast_gateway::observe::request_log::Changes;
use outlast_gateway::problem::Problem;
use outlast_kernel::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The views of a server that the page shows.
const VIEWS: [&str; 5] = ["sessions", "gateway", "runs", "providers", "policies"];

/// What a server needs of the program beside sessions and runs.
pub trait HostServices: Send + Sync {
    /// The accounts that are configured, and the gates at which calls fail.
    fn provider_state(&self) -> Result<(Vec<Account>, Vec<Gate>), String>;

    /// The gateways that run on this machine: `{port, address, status}` each, or a `problem` in place of the status.
    fn gateways(&self) -> BoxFuture<'_, Vec<Value>>;

    /// Asks one of them something.
    fn send_to_gateway(
        &self,
        port: u16,
        question: GatewayRequest,
    ) -> BoxFuture<'_, Result<Value, Problem>>;
}

/// What a gateway is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GatewayRequest {
    /// Its last requests that changed after that number.
    RequestLog(u64),
    /// To try one that waits again at once, or all.
    RetryNow(Option<String>),
    /// To end one that waits.
    Cancel(String),
}

pub(super) fn add_routes(api: &mut Api) {
    let about = Operation::get(
        "/api/about",
        "about",
        "Version, clock and views of this server",
    );
    api.add(about.response::<AboutView>(), get(show_about));
    let about = "Accounts and gates, as all processes of the user share them";
    let state = Operation::get("/api/shared_state", "show_shared_state", about);
    api.add(state.response::<SharedState>(), get(show_shared_state));
    let about = "Old name of /api/shared_state, accepted until 0.3";
    let state = Operation::get("/api/knowledge", "show_knowledge", about).deprecated();
    api.add(state.response::<SharedState>(), get(show_shared_state));
    let about = "The retry policies with their delays";
    let policies = Operation::get("/api/policies", "list_policies", about);
    api.add(policies.response::<Policies>(), get(list_policies));
    let about = "The gateways that run on this machine, and their waiting requests";
    let gateways = Operation::get("/api/gateways", "list_gateways", about);
    api.add(gateways.response::<GatewayList>(), get(list_gateways));
    let about = "The last requests of a gateway, with their attempts";
    let traffic = Operation::get("/api/gateways/{port}/traffic", "show_traffic", about);
    let traffic = traffic.query::<AfterQuery>();
    api.add(traffic.response::<Changes>(), get(show_request_log));
    let about = "Retries waiting requests of a gateway at once";
    let retry = Operation::post("/api/gateways/{port}/retry_now", "gateway_retry_now", about);
    let retry = retry.body::<RetryTarget>();
    api.add(retry.response::<Retried>(), post(gateway_retry_now));
    let about = "Cancels a waiting request of a gateway";
    let cancel = Operation::post("/api/gateways/{port}/cancel", "gateway_cancel", about);
    let cancel = cancel.body::<CancelTarget>();
    api.add(cancel.response::<Cancelled>(), post(gateway_cancel));
}

/// This server.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "About")]
struct AboutView {
    /// The version of the program.
    version: &'static str,
    /// The server's current time.
    now: Timestamp,
    /// The names of the views that the page can show.
    views: Vec<&'static str>,
    /// The default folder of sessions.
    directory: String,
}

async fn show_about(State(shared): ExtractState) -> Json<AboutView> {
    let house = shared.sessions.session_factory();
    Json(AboutView {
        version: env!("CARGO_PKG_VERSION"),
        now: house.clock().now(),
        views: VIEWS.into(),
        directory: house.folder().to_string_lossy().into_owned(),
    })
}

async fn show_shared_state(State(shared): ExtractState) -> Result<Json<SharedState>, HttpError> {
    let known = shared.host_services.provider_state();
    let (accounts, gates) = known.map_err(Problem::wrong)?;
    Ok(Json(SharedState {
        now: shared.sessions.session_factory().clock().now(),
        accounts,
        gates,
    }))
}

async fn list_policies() -> Json<Policies> {
    Json(Policies {
        policies: policies::all(),
    })
}

/// The gateways of this machine.
#[derive(Debug, Serialize, JsonSchema)]
struct GatewayList {
    /// The server's current time.
    now: Timestamp,
    /// The gateways.
    #[schemars(with = "Vec<GatewayRow>")]
    gateways: Vec<Value>,
}

/// A gateway.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Gateway")]
struct GatewayRow {
    /// The port that the gateway listens on; it identifies the gateway.
    port: u16,
    /// The address that the gateway listens on.
    address: String,
    /// The full status of the gateway; absent if it cannot be read.
    status: Option<Status>,
    /// The reason for which the status cannot be read.
    problem: Option<String>,
}

async fn list_gateways(State(shared): ExtractState) -> Json<GatewayList> {
    Json(GatewayList {
        now: shared.sessions.session_factory().clock().now(),
        gateways: shared.host_services.gateways().await,
    })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AfterQuery {
    /// The `seq` of an earlier response: only requests that changed after it are returned.
    #[serde(default)]
    after: u64,
}

fn parse_port(name: &str) -> Result<u16, Problem> {
    let port = name.parse();
    port.map_err(|_| Problem::unknown(format!("no gateway runs on port {name}")))
}

async fn show_request_log(
    State(shared): ExtractState,
    PathId(name): PathId,
    QueryParams(asked): QueryParams<AfterQuery>,
) -> Result<Json<Value>, HttpError> {
    let question = GatewayRequest::RequestLog(asked.after);
    Ok(Json(
        shared
            .host_services
            .send_to_gateway(parse_port(&name)?, question)
            .await?,
    ))
}

/// The requests to retry.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RetryTarget {
    /// The id of the request; if absent, all waiting requests.
    id: Option<String>,
}

/// The request to cancel.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CancelTarget {
    /// The id of the request.
    id: String,
}

/// The result of a retry.
#[derive(Debug, Serialize, JsonSchema)]
struct Retried {
    /// The number of requests that are retried.
    retried: u64,
}

/// The cancelled request.
#[derive(Debug, Serialize, JsonSchema)]
struct Cancelled {
    /// The id of the request.
    cancelled: String,
}

async fn gateway_retry_now(
    State(shared): ExtractState,
    PathId(name): PathId,
    Body(meant): Body<RetryTarget>,
) -> Result<Json<Value>, HttpError> {
    let question = GatewayRequest::RetryNow(meant.id);
    Ok(Json(
        shared
            .host_services
            .send_to_gateway(parse_port(&name)?, question)
            .await?,
    ))
}

async fn gateway_cancel(
    State(shared): ExtractState,
    PathId(name): PathId,
    Body(meant): Body<CancelTarget>,
) -> Result<Json<Value>, HttpError> {
    let question = GatewayRequest::Cancel(meant.id);
    Ok(Json(
        shared
            .host_services
            .send_to_gateway(parse_port(&name)?, question)
            .await?,
    ))
}

// --- What is no endpoint ---

/// A file of the page, or nothing.
pub(super) async fn page_file(request: Request) -> Response {
    let path = request.uri().path().strip_prefix('/').unwrap_or_default();
    let Some(file) = assets::file(path) else {
        let detail = "there is nothing here; /api/openapi.json says what there is";
        return HttpError(Problem::unknown(detail)).into_response();
    };
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let status = StatusCode::METHOD_NOT_ALLOWED;
        let detail = "a file of the page is asked for by GET";
        let problem = Problem::new(status, "method_not_allowed", detail);
        return HttpError(problem.with_allowed_methods("GET, HEAD")).into_response();
    }
    file.response(request.headers()).map(Into::into)
}

pub(super) async fn health() -> Json<Value> {
    Json(json!({ "status": "ok", "version": env!("CARGO_PKG_VERSION") }))
}
