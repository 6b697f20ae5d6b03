//! Asking a gateway that runs, over HTTP on this machine, with its token.

use super::place::Running;
use anyhow::{Context, bail};
use futures_util::StreamExt;
use outlast_engine::Transport;
use outlast_engine::transport::{Http, HttpSettings, Method, Request};
use outlast_kernel::text;
use outlast_server::guard::Token;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// It is on this machine, and answers at once.
const PATIENCE: Duration = Duration::from_secs(10);
/// Ten thousand requests that wait are a few MiB.
const MOST_BYTES: usize = 64 << 20;

/// Another gateway may have it.
const NO_SUCH_REQUEST: &str = "no_such_request";

/// What can be asked of a gateway.
#[derive(Clone, Copy)]
pub(super) enum Question<'a> {
    /// What waits.
    Status,
    /// Let one that waits, or all, try again.
    RetryNow(Option<&'a str>),
    /// End one that waits.
    Cancel(&'a str),
}

impl Question<'_> {
    fn request(self, token: &str) -> Request {
        let (method, path, body) = match self {
            Self::Status => (Method::Get, "status", String::new()),
            Self::RetryNow(None) => (Method::Post, "retry-now", "{}".to_owned()),
            Self::RetryNow(Some(id)) => {
                (Method::Post, "retry-now", json!({ "id": id }).to_string())
            }
            Self::Cancel(id) => (Method::Post, "cancel", json!({ "id": id }).to_string()),
        };
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        Request {
            method,
            path: format!("/_outlast/{path}"),
            headers: vec![
                header("x-outlast-token", token),
                header("content-type", "application/json"),
            ],
            body: body.into(),
        }
    }
}

/// Asks a gateway of this home; the answer is its JSON, or nothing where no such request waits.
pub(super) async fn ask(
    running: &Running,
    home: &Path,
    question: Question<'_>,
) -> anyhow::Result<Value> {
    let token = Token::left_in(home)?.context("there is no token of a gateway in this home")?;
    let url = running.url();
    let settings = HttpSettings {
        base_url: url.clone(),
        connect_timeout: PATIENCE,
        ..HttpSettings::default()
    };
    let http = Http::new(&settings)?;
    let asked = exchange(&http, question.request(token.reveal()));
    let answer = tokio::time::timeout(PATIENCE, asked).await;
    let answer = answer.with_context(|| format!("the gateway at {url} does not answer"))?;
    let (status, body) = answer.with_context(|| format!("cannot ask the gateway at {url}"))?;
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    match (status, body["error"]["code"].as_str()) {
        (200, _) => return Ok(body),
        (404, Some(NO_SUCH_REQUEST)) => return Ok(Value::Null),
        _ => {}
    }
    let said = body["error"]["message"].as_str().unwrap_or_default();
    bail!(
        "the gateway at {url} answers with status {status}: {}",
        text::message(said)
    )
}

async fn exchange(http: &Http, request: Request) -> anyhow::Result<(u16, Vec<u8>)> {
    let failed = |error: outlast_engine::transport::Error| anyhow::anyhow!(error.message);
    let mut response = http.send(request).await.map_err(failed)?;
    let mut body = Vec::new();
    while let Some(piece) = response.body.next().await {
        body.extend_from_slice(&piece.map_err(failed)?);
        if body.len() > MOST_BYTES {
            bail!("its answer is too long");
        }
    }
    Ok((response.status, body))
}
