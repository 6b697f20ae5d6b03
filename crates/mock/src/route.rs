//! Maps paths to endpoints.

use crate::plan::{Plan, RequestContext};
use crate::request_facts::{Headers, header};
use crate::script::FAULTS;
use outlast_dialect::Dialect;
use outlast_engine::transport::Method;
use serde_json::{Value, json};

/// The endpoint of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// A completion in that dialect.
    Completion(Dialect),
    /// The rest of a stored completion.
    StoredResponse,
    /// The list of models.
    Models,
    /// The endpoint exists, but not for that method.
    WrongMethod,
    /// There is no such endpoint.
    Unknown,
}

/// Returns the endpoint of a path, which may omit the version.
pub(crate) fn route(method: Method, path: &str) -> Route {
    let path = path.split('?').next().unwrap_or_default();
    let path = path.strip_prefix("/v1").unwrap_or(path);
    let inference = Dialect::ALL
        .into_iter()
        .find(|dialect| dialect.path().strip_prefix("/v1") == Some(path));
    match (inference, method) {
        (Some(dialect), Method::Post) => Route::Completion(dialect),
        (Some(_), Method::Get) => Route::WrongMethod,
        (None, Method::Get) if path == "/models" => Route::Models,
        (None, Method::Get) if path.starts_with("/responses/") => Route::StoredResponse,
        (None, Method::Post) if path == "/models" => Route::WrongMethod,
        (None, _) => Route::Unknown,
    }
}

/// Returns the dialect of a request that is not for a completion.
pub(crate) fn dialect_of(route: Route, headers: &Headers) -> Dialect {
    match route {
        Route::Completion(dialect) => dialect,
        Route::StoredResponse => Dialect::OpenaiResponses,
        _ if header(headers, "anthropic-version").is_some() => Dialect::Anthropic,
        _ => Dialect::OpenaiChat,
    }
}

/// Lists the models: every fault without required arguments is one.
pub(crate) fn models(ask: RequestContext<'_>) -> Plan {
    let names = FAULTS.iter().filter(|row| !row.arguments.starts_with(':'));
    let names: Vec<&str> = names.map(|row| row.name).collect();
    let list = match ask.dialect {
        Dialect::Anthropic => json!({
            "data": names.iter().map(|name| anthropic_model(name)).collect::<Vec<_>>(),
            "has_more": false, "first_id": names.first(), "last_id": names.last(),
        }),
        Dialect::OpenaiChat | Dialect::OpenaiResponses => json!({
            "object": "list",
            "data": names.iter().map(|name| openai_model(name)).collect::<Vec<_>>(),
        }),
    };
    ask.document(200, "application/json", list.to_string())
}

fn anthropic_model(name: &str) -> Value {
    json!({
        "type": "model", "id": name, "display_name": name, "created_at": "2026-01-01T00:00:00Z",
        "lifecycle": "active",
    })
}

fn openai_model(name: &str) -> Value {
    json!({ "id": name, "object": "model", "created": 1_767_225_600, "owned_by": "outlast" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_route_with_and_without_version_prefix() {
        let table = [
            (
                Method::Post,
                "/v1/messages",
                Route::Completion(Dialect::Anthropic),
            ),
            (
                Method::Post,
                "/chat/completions",
                Route::Completion(Dialect::OpenaiChat),
            ),
            (
                Method::Post,
                "/v1/responses",
                Route::Completion(Dialect::OpenaiResponses),
            ),
            (Method::Get, "/v1/models", Route::Models),
            (Method::Get, "/models", Route::Models),
            (Method::Get, "/v1/models?limit=1000", Route::Models),
            (
                Method::Get,
                "/v1/responses/resp_1?stream=true",
                Route::StoredResponse,
            ),
            (Method::Get, "/v1/responses", Route::WrongMethod),
            (Method::Post, "/v1/responses/resp_1/cancel", Route::Unknown),
            (Method::Get, "/v1/messages", Route::WrongMethod),
            (Method::Post, "/v1/messages/count_tokens", Route::Unknown),
            (Method::Post, "/", Route::Unknown),
            (Method::Get, "", Route::Unknown),
        ];
        for (method, path, expected) in table {
            assert_eq!(route(method, path), expected, "{path}");
        }
    }
}
