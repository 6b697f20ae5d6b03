//! Responses in background mode, which continue without their connection.
//!
//! A connection fault does not affect the response: it is stored undamaged, and its rest can be fetched. A response
//! that ends with a provider error has ended. A fetch is a call like any other: the script's next fault applies to it,
//! so a rest can be damaged in turn, and `error:404` deletes the response.
//! Invariant: the storage is bounded; the oldest response is dropped.

use crate::error_response::ErrorResponse;
use crate::plan::{Plan, RequestContext, plan};
use crate::reply::{Action, Reply};
use crate::request_facts::RequestFacts;
use outlast_dialect::ApiError;
use outlast_kernel::text;
use serde_json::Value;
use std::collections::VecDeque;

const MAX_STORED_BYTES: usize = 32 << 20;
const MAX_ID_BYTES: usize = 100;

#[derive(Debug, Default)]
pub(crate) struct BackgroundResponses {
    responses: VecDeque<StoredResponse>,
    bytes: usize,
}

#[derive(Debug)]
struct StoredResponse {
    id: String,
    model: String,
    pieces: Vec<String>,
}

/// The rest of a stored response.
pub(crate) struct RemainingResponse {
    id: String,
    /// The model that was asked.
    pub(crate) model: String,
    pieces: Vec<String>,
}

/// The reason why a rest cannot be fetched.
pub(crate) enum FetchError {
    NotFound { id: String },
    InvalidCursor,
    NotStreamed,
}

impl BackgroundResponses {
    /// Returns the plan for a request, and stores the response if the request is in background mode, even if its
    /// connection fails.
    pub(crate) fn plan(&mut self, reply: &Reply, ask: RequestContext<'_>) -> Plan {
        if ask.facts.is_background
            && let Some(whole) = undamaged_plan(reply, ask)
        {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            self.store(StoredResponse {
                id: ask.stored_response_id(),
                model: ask.facts.model.clone(),
                pieces: whole
                    .pieces
                    .iter()
                    .map(|piece| text(&piece.bytes))
                    .collect(),
            });
        }
        plan(reply, ask)
    }

    fn store(&mut self, answer: StoredResponse) {
        self.bytes += answer.size();
        self.responses.push_back(answer);
        while self.bytes > MAX_STORED_BYTES {
            let Some(oldest) = self.responses.pop_front() else {
                break;
            };
            self.bytes -= oldest.size();
        }
    }

    /// Returns the rest that a path identifies.
    pub(crate) fn remaining(&self, path: &str) -> Result<RemainingResponse, FetchError> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let id = path.rsplit('/').next().unwrap_or_default();
        let field = |name: &str| {
            let fields = query.split('&').filter_map(|field| field.split_once('='));
            fields
                .into_iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| value)
        };
        let Some(answer) = self.responses.iter().find(|answer| answer.id == id) else {
            let id = text::bounded(id, MAX_ID_BYTES).into_owned();
            return Err(FetchError::NotFound { id });
        };
        if field("stream") != Some("true") {
            return Err(FetchError::NotStreamed);
        }
        let after = field("starting_after").map(str::parse::<u64>);
        let after = after.transpose().map_err(|_| FetchError::InvalidCursor)?;
        Ok(RemainingResponse {
            id: answer.id.clone(),
            model: answer.model.clone(),
            pieces: answer.pieces_after(after),
        })
    }
}

/// Returns the response without its connection fault, or `None` if there is no response.
fn undamaged_plan(reply: &Reply, ask: RequestContext<'_>) -> Option<Plan> {
    match reply.action {
        Action::Answer
        | Action::Hold { .. }
        | Action::Drip { .. }
        | Action::Cut { .. }
        | Action::DropAfter { .. }
        | Action::Stall { .. }
        | Action::Pings { .. }
        | Action::Malformed { .. }
        | Action::Linger
        | Action::Gzip { .. }
        | Action::NoFinish => {
            let action = Action::Answer;
            let reply = reply.clone();
            Some(plan(&Reply { action, ..reply }, ask))
        }
        Action::StreamError { .. } => Some(plan(reply, ask)),
        _ => None,
    }
}

impl StoredResponse {
    fn size(&self) -> usize {
        let pieces: usize = self.pieces.iter().map(String::len).sum();
        pieces + self.model.len()
    }

    /// Returns the pieces without the frames up to that number. A frame without a number belongs to the one before it.
    fn pieces_after(&self, after: Option<u64>) -> Vec<String> {
        let mut number = None;
        let mut is_after = |frame: &&str| {
            number = sequence_number(frame).or(number);
            number > after
        };
        let rest = self.pieces.iter().map(|piece| {
            let frames = piece.split_inclusive("\n\n");
            frames.filter(|frame| is_after(frame)).collect::<String>()
        });
        rest.filter(|piece| !piece.is_empty()).collect()
    }
}

fn sequence_number(frame: &str) -> Option<u64> {
    let (_, data) = frame.split_once("data: ")?;
    let data: Value = serde_json::from_str(data).ok()?;
    data["sequence_number"].as_u64()
}

impl RemainingResponse {
    /// Returns the plan for a fetch of the rest.
    pub(crate) fn plan(self, reply: &Reply, ask: RequestContext<'_>) -> Plan {
        if matches!(&reply.action, Action::Error { status, code } if *status == 404 && code.is_none())
        {
            return FetchError::NotFound { id: self.id }.plan(ask);
        }
        let facts = RequestFacts {
            model: self.model,
            is_streamed: true,
            ..ask.facts.clone()
        };
        let ask = RequestContext {
            facts: &facts,
            stored_pieces: Some(&self.pieces),
            ..ask
        };
        plan(reply, ask)
    }
}

impl FetchError {
    pub(crate) fn plan(self, ask: RequestContext<'_>) -> Plan {
        match self {
            Self::NotFound { id } => {
                let message = format!("Response with id '{id}' not found.");
                let problem = ApiError::new("invalid_request_error", &message);
                ask.error_response(&ErrorResponse::new(404, problem))
            }
            Self::InvalidCursor => ask.invalid_request(400, "`starting_after` is not a number."),
            Self::NotStreamed => {
                ask.invalid_request(400, "An answer is fetched with `stream=true` only.")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(id: usize, size: usize) -> StoredResponse {
        StoredResponse {
            id: format!("resp_{id}"),
            model: String::new(),
            pieces: vec!["x".repeat(size)],
        }
    }

    #[test]
    fn oldest_responses_are_evicted_beyond_byte_limit() {
        let mut kept = BackgroundResponses::default();
        for id in 0..100 {
            kept.store(answer(id, 1 << 20));
        }
        assert_eq!((kept.responses.len(), kept.bytes), (32, MAX_STORED_BYTES));
        let fetch = |kept: &BackgroundResponses, id: usize| {
            kept.remaining(&format!("/responses/resp_{id}?stream=true"))
                .is_ok()
        };
        assert!(!fetch(&kept, 67) && fetch(&kept, 68) && fetch(&kept, 99));
        kept.store(answer(100, MAX_STORED_BYTES + 1));
        assert_eq!((kept.responses.len(), kept.bytes), (0, 0));
    }

    #[test]
    fn pieces_after_starts_at_next_sequence_number() {
        let frame = |number: u64| format!("data: {{\"sequence_number\":{number}}}\n\n");
        let ping = "data: {}\n\n".to_owned();
        let answer = StoredResponse {
            pieces: vec![frame(0) + &frame(1), ping.clone(), frame(2) + &ping],
            ..answer(0, 0)
        };
        assert_eq!(answer.pieces_after(None), answer.pieces);
        let after_first = vec![frame(1), ping.clone(), frame(2) + &ping];
        assert_eq!(answer.pieces_after(Some(0)), after_first);
        assert_eq!(answer.pieces_after(Some(1)), [frame(2) + &ping]);
        assert!(answer.pieces_after(Some(2)).is_empty());
    }
}
