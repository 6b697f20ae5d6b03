//! Encodes completions and errors as a provider would send them, in its own dialect.
//!
//! Every frame, id and index of the real APIs is there, so that their official clients accept the response.
//! Invariant: [`StreamDecoder`](crate::StreamDecoder) and `read_whole` read the output back as the same deltas.
//! Not here: simulated failures (see the scripted provider).

use crate::tool_arguments::is_complete_json;
use crate::{Delta, Dialect, anthropic, openai_chat, openai_responses, sse};
use outlast_kernel::event::{Reasoning, StopReason, ToolCall, Usage};
use serde_json::{Map, Value};

/// The creation time of every scripted completion, in seconds since the Unix epoch.
pub(crate) const CREATED_AT: u64 = 1_767_225_600;

/// An error in a provider's own words.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ApiError {
    /// The error type.
    pub kind: String,
    /// The error code, in the dialects that have both a type and a code.
    pub code: Option<String>,
    /// Its message.
    pub message: String,
    /// Fields that some providers add, such as the end of a limit.
    pub fields: Map<String, Value>,
    /// The request id, in the dialect that repeats it in the body.
    pub request_id: Option<String>,
}

impl ApiError {
    /// Creates an error with that type and message.
    pub fn new(kind: &str, message: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            message: message.to_owned(),
            ..Self::default()
        }
    }

    /// Sets the code of the error.
    #[must_use]
    pub fn with_code(self, code: &str) -> Self {
        let code = Some(code.to_owned());
        Self { code, ..self }
    }
}

/// The position and the form of an error in a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interruption<'a> {
    /// The model whose completion is interrupted.
    pub model: &'a str,
    /// The number of frames before the error.
    pub frames_before: usize,
    /// The form of the error.
    pub form: ErrorForm,
}

/// The form of an error in a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorForm {
    /// The most common form of the dialect.
    #[default]
    Standard,
    /// An event of its own.
    Event,
    /// The end of the completion: a finish reason or a failed response, where the dialect has such an end.
    End,
}

impl Dialect {
    /// Returns a streamed completion in pieces: the first opens it, the last ends it.
    ///
    /// Between them comes one piece for each text or thought. A tool call takes several, so that a completion can
    /// break off within it, and the pieces of consecutive calls alternate. Without a [`Delta::Stopped`] there is no
    /// last piece. A [`Delta::Cursor`], whatever its content, makes the completion one that its server keeps under that
    /// id; in a dialect whose servers keep none, it has that id.
    pub fn encode_stream(self, model: &str, deltas: &[Delta]) -> Vec<String> {
        let answer = Completion::new(model, deltas);
        match self {
            Self::Anthropic => anthropic::encode_response::frames(&answer),
            Self::OpenaiChat => openai_chat::encode_response::frames(&answer),
            Self::OpenaiResponses => openai_responses::encode_response::frames(&answer),
        }
    }

    /// Returns the same completion as one body.
    pub fn encode_response(self, model: &str, deltas: &[Delta]) -> String {
        let answer = Completion::new(model, deltas);
        match self {
            Self::Anthropic => anthropic::encode_response::body(&answer),
            Self::OpenaiChat => openai_chat::encode_response::body(&answer),
            Self::OpenaiResponses => openai_responses::encode_response::body(&answer),
        }
        .to_string()
    }

    /// Returns the body of a response with an error status.
    pub fn encode_error(self, problem: &ApiError) -> String {
        match self {
            Self::Anthropic => anthropic::encode_response::error(problem),
            Self::OpenaiChat | Self::OpenaiResponses => {
                openai_chat::encode_response::error(problem)
            }
        }
        .to_string()
    }

    /// Returns an error inside a stream.
    pub fn encode_error_frame(self, problem: &ApiError, interruption: &Interruption<'_>) -> String {
        match self {
            Self::Anthropic => event_frame(&anthropic::encode_response::error(problem)),
            Self::OpenaiChat => openai_chat::encode_response::error_frame(problem, interruption),
            Self::OpenaiResponses => {
                openai_responses::encode_response::error_frame(problem, interruption)
            }
        }
    }

    /// Returns a keep-alive without content.
    pub fn keepalive_frame(self) -> String {
        match self {
            Self::Anthropic => event_frame(&serde_json::json!({ "type": "ping" })),
            Self::OpenaiChat => ": keep-alive\n\n".to_owned(),
            Self::OpenaiResponses => event_frame(&serde_json::json!({ "type": "keepalive" })),
        }
    }

    /// Returns a frame that no client knows and every client must skip.
    pub fn unknown_frame(self, model: &str) -> String {
        match self {
            Self::Anthropic => event_frame(&serde_json::json!({
                "type": "weather_report", "index": 0, "delta": { "type": "cloud_delta", "cloud": "…" },
            })),
            Self::OpenaiChat => openai_chat::encode_response::unknown_frame(model),
            Self::OpenaiResponses => event_frame(&serde_json::json!({
                "type": "response.weather.report", "output_index": 0, "delta": { "cloud": "…" },
            })),
        }
    }
}

/// The deltas, put together: the facts that a writer needs before it writes the first frame.
pub(crate) struct Completion<'a> {
    pub(crate) model: &'a str,
    pub(crate) segments: Vec<Segment<'a>>,
    pub(crate) usage: Option<Usage>,
    /// The id from [`Delta::Cursor`]: the server stores the completion under it, if the dialect's servers store any.
    pub(crate) response_id: Option<&'a str>,
    pub(crate) stop: Option<StopReason>,
}

pub(crate) enum Segment<'a> {
    Text(Vec<&'a str>),
    Reasoning(ReasoningSegment<'a>),
    ToolCalls(Vec<&'a ToolCall>),
}

pub(crate) struct ReasoningSegment<'a> {
    pub(crate) pieces: Vec<&'a str>,
    pub(crate) done: Option<&'a Reasoning>,
}

impl<'a> Completion<'a> {
    fn new(model: &'a str, deltas: &'a [Delta]) -> Self {
        let mut answer = Self {
            model,
            segments: Vec::new(),
            usage: None,
            response_id: None,
            stop: None,
        };
        deltas.iter().for_each(|delta| answer.add(delta));
        answer
    }

    fn add(&mut self, delta: &'a Delta) {
        match (delta, self.segments.last_mut()) {
            (Delta::Usage(usage), _) => self.usage = Some(*usage),
            (Delta::Cursor(place), _) => self.response_id = Some(&place.response),
            (Delta::Stopped(reason), _) => self.stop = Some(*reason),
            (Delta::Text(text) | Delta::Reasoning(text), _) if text.is_empty() => {}
            // Incomplete calls are never sent on purpose.
            (Delta::IncompleteToolCall { .. }, _) => {}
            (Delta::Text(text), Some(Segment::Text(pieces))) => pieces.push(text),
            (Delta::Text(text), _) => self.segments.push(Segment::Text(vec![text])),
            (Delta::Reasoning(text), Some(Segment::Reasoning(thought)))
                if thought.done.is_none() =>
            {
                thought.pieces.push(text);
            }
            (Delta::Reasoning(text), _) => {
                self.segments.push(Segment::Reasoning(ReasoningSegment {
                    pieces: vec![text],
                    done: None,
                }))
            }
            (Delta::ReasoningDone(done), Some(Segment::Reasoning(thought)))
                if thought.done.is_none() =>
            {
                thought.done = Some(done);
            }
            (Delta::ReasoningDone(done), _) => {
                let text = Some(done.text.as_str()).filter(|text| !text.is_empty());
                self.segments.push(Segment::Reasoning(ReasoningSegment {
                    pieces: text.into_iter().collect(),
                    done: Some(done),
                }));
            }
            // An incomplete call was being written when everything before it was complete.
            (Delta::ToolCall(call), Some(Segment::ToolCalls(calls)))
                if is_complete_json(&call.arguments) =>
            {
                calls.push(call);
            }
            (Delta::ToolCall(call), _) => self.segments.push(Segment::ToolCalls(vec![call])),
        }
    }

    /// Returns whether its text is a refusal.
    pub(crate) fn is_refusal(&self) -> bool {
        self.stop == Some(StopReason::Refusal)
    }

    pub(crate) fn has_text(&self) -> bool {
        let is_text = |part: &Segment<'_>| matches!(part, Segment::Text(_));
        self.segments.iter().any(is_text)
    }
}

/// Returns the arguments of several calls in pieces, each with the number of its call; the calls alternate.
pub(crate) fn interleaved_arguments<'a>(calls: &[&'a ToolCall]) -> Vec<(usize, &'a str)> {
    const MIN_PIECES: usize = 3;
    const MAX_PIECE_BYTES: usize = 500;
    let in_pieces = |call: &&'a ToolCall| {
        let count = call.arguments.len().div_ceil(MAX_PIECE_BYTES);
        split_evenly(&call.arguments, count.max(MIN_PIECES))
    };
    let split: Vec<Vec<&str>> = calls.iter().map(in_pieces).collect();
    let turns = split.iter().map(Vec::len).max().unwrap_or_default();
    let turn = |turn: usize| {
        let split = split.iter().enumerate();
        split.filter_map(move |(call, pieces)| Some((call, *pieces.get(turn)?)))
    };
    (0..turns).flat_map(turn).collect()
}

/// Splits the text into that many pieces of about the same length, or into fewer.
fn split_evenly(text: &str, count: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    for left in (1..=count).rev() {
        let mut end = rest.len().div_ceil(left);
        while !rest.is_char_boundary(end) {
            end += 1;
        }
        let (piece, after) = rest.split_at(end);
        if !piece.is_empty() {
            pieces.push(piece);
        }
        rest = after;
    }
    pieces
}

/// Returns an event with the name that its data states.
pub(crate) fn event_frame(data: &Value) -> String {
    let name = data["type"].as_str().unwrap_or_default().to_owned();
    let data = data.to_string();
    sse::Event { name, data }.to_wire()
}

/// Returns the arguments as a JSON object.
pub(crate) fn arguments_object(arguments: &str) -> Value {
    match serde_json::from_str(arguments) {
        Ok(Value::Object(fields)) => Value::Object(fields),
        _ => Value::Object(Map::new()),
    }
}

#[cfg(test)]
#[path = "completion_tests.rs"]
mod tests;
