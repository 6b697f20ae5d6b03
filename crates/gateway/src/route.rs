//! The route of a request: its dialect, and the provider that it goes to.

use http::{HeaderMap, Method};
use outlast_dialect::Dialect;

/// The meaning of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) kind: Kind,
    /// The dialect of the request, and of the gateway's own errors.
    pub(super) dialect: Dialect,
}

/// The treatment of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A request to a model: held, retried, watched.
    Inference,
    /// A small request that costs nothing to repeat: held and retried.
    Lookup,
    /// Any other request: forwarded once, as it is.
    Other,
}

impl Route {
    /// Returns the route of a request.
    pub(super) fn for_request(method: &Method, path: &str, headers: &HeaderMap) -> Self {
        let path = path.trim_end_matches('/');
        let ends = |end: &str| method == Method::POST && path.ends_with(end);
        let (kind, dialect) = if ends("/messages") {
            (Kind::Inference, Dialect::Anthropic)
        } else if ends("/chat/completions") {
            (Kind::Inference, Dialect::OpenaiChat)
        } else if ends("/responses") {
            (Kind::Inference, Dialect::OpenaiResponses)
        } else if ends("/messages/count_tokens") {
            (Kind::Lookup, Dialect::Anthropic)
        } else if ends("/embeddings") {
            (Kind::Lookup, Dialect::OpenaiChat)
        } else {
            (Kind::Other, guess_dialect(path, headers))
        };
        Self { kind, dialect }
    }

    /// Returns whether the request is for a model, of any kind: then it is held and sent again if it fails.
    pub(super) fn is_retried(self) -> bool {
        self.kind != Kind::Other
    }
}

/// Returns the dialect by the headers, if the path does not tell.
fn guess_dialect(path: &str, headers: &HeaderMap) -> Dialect {
    let is_anthropic = path.contains("/messages")
        || headers.contains_key("anthropic-version")
        || headers.contains_key("x-api-key");
    match is_anthropic {
        true => Dialect::Anthropic,
        false if path.contains("/responses") => Dialect::OpenaiResponses,
        false => Dialect::OpenaiChat,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_and_headers_determine_kind_and_dialect() {
        let anthropic = HeaderMap::from_iter([(
            "anthropic-version".parse().unwrap(),
            "2023-06-01".parse().unwrap(),
        )]);
        let none = HeaderMap::new();
        let (inference, lookup, other) = (Kind::Inference, Kind::Lookup, Kind::Other);
        let messages = Dialect::Anthropic;
        let (chat, responses) = (Dialect::OpenaiChat, Dialect::OpenaiResponses);
        let table = [
            ("POST /v1/messages", &none, inference, messages),
            ("POST /v1/messages/count_tokens", &none, lookup, messages),
            ("POST /v1/chat/completions/", &none, inference, chat),
            ("POST /v1/responses", &none, inference, responses),
            ("GET /v1/responses/resp_1", &none, other, responses),
            ("POST /v1/embeddings", &none, lookup, chat),
            ("GET /v1/models", &none, other, chat),
            ("GET /v1/models", &anthropic, other, messages),
            ("GET /v1/messages", &none, other, messages),
            ("POST /v1/messages/batches", &none, other, messages),
            ("POST /v1/files", &none, other, chat),
        ];
        for (asked, headers, kind, dialect) in table {
            let (method, path) = asked.split_once(' ').unwrap();
            let method: Method = method.parse().unwrap();
            let route = Route::for_request(&method, path, headers);
            assert_eq!(route, Route { kind, dialect }, "{asked}");
        }
    }
}
