//! The control endpoints, through which a test sets the scripts and reads the request log.
//!
//! Invariant: a web page cannot reach them through a browser: a request that names another host or comes from another
//! origin is refused.

use super::Shared;
use super::request_handler::{Body, headers};
use crate::request_facts::{Headers, header};
use crate::script::Script;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use std::net::IpAddr;

/// The path prefix of the control endpoints.
pub(super) const PREFIX: &str = "/_outlast/";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptRequest {
    script: String,
    model: Option<String>,
}

pub(super) fn handle(shared: &Shared, parts: &Parts, path: &str, body: &[u8]) -> Response<Body> {
    let headers = headers(parts);
    let authority = parts.uri.authority().map(|authority| authority.as_str());
    if !shared.is_allowed(authority, &headers) {
        let message = "these endpoints answer to localhost, to numbers and to the names that the server was given";
        return json_response(StatusCode::FORBIDDEN, &json!({ "error": message }));
    }
    let (status, answered) = match (&parts.method, path) {
        (&Method::POST, "script") => shared.set_script(body),
        (&Method::DELETE, "script") => {
            shared.scripts.lock().reset();
            (StatusCode::OK, json!({}))
        }
        (&Method::GET, "requests") => (StatusCode::OK, shared.log.to_json()),
        (&Method::DELETE, "requests") => {
            shared.log.clear();
            (StatusCode::OK, json!({}))
        }
        _ => {
            let message = "there are: POST and DELETE script, GET and DELETE requests";
            (StatusCode::NOT_FOUND, json!({ "error": message }))
        }
    };
    json_response(status, &answered)
}

impl Shared {
    fn set_script(&self, body: &[u8]) -> (StatusCode, Value) {
        let refused = |error: String| (StatusCode::BAD_REQUEST, json!({ "error": error }));
        let setting: ScriptRequest = match serde_json::from_slice(body) {
            Ok(setting) => setting,
            Err(error) => {
                return refused(format!(
                    "{error}; the body looks like {{\"script\": \"overloaded:3\", \"model\": \"gpt-4o\"}}, the model \
                     may be left out"
                ));
            }
        };
        let script: Script = match setting.script.parse() {
            Ok(script) => script,
            Err(error) => return refused(format!("{error}")),
        };
        let mut book = self.scripts.lock();
        book.set_override(setting.model, script);
        (StatusCode::OK, json!({}))
    }

    /// Returns whether a request was made for this server, and not by the page of another origin.
    fn is_allowed(&self, authority: Option<&str>, headers: &Headers) -> bool {
        let host = header(headers, "host").or(authority);
        let origin = header(headers, "origin").map(|origin| {
            let address = origin.split_once("://");
            address.map_or(origin, |(_, address)| address)
        });
        host.is_some_and(|host| self.is_own_host(host))
            && origin.is_none_or(|origin| self.is_own_host(origin))
    }

    /// An IP address cannot be made to resolve to another host; a name can.
    fn is_own_host(&self, address: &str) -> bool {
        let name = match address
            .strip_prefix('[')
            .and_then(|rest| rest.split_once(']'))
        {
            Some((name, _)) => name,
            None => address.rsplit_once(':').map_or(address, |(name, _)| name),
        };
        let known = |host: &String| host.eq_ignore_ascii_case(name);
        name.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.hosts.iter().any(known)
    }
}

fn json_response(status: StatusCode, body: &Value) -> Response<Body> {
    let body = Bytes::from(format!("{body}\n"));
    let mut response = Response::new(StreamBody::new(
        stream::iter([Ok(Frame::data(body))]).boxed(),
    ));
    *response.status_mut() = status;
    let json = hyper::header::HeaderValue::from_static("application/json");
    response
        .headers_mut()
        .insert(hyper::header::CONTENT_TYPE, json);
    response
}
