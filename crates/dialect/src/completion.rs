//! To the wire: what a provider would send, an answer or an error, in its own dialect.
//!
//! Every frame, id and index is there that the real APIs send, so that their official clients take the answer for one.
//! Invariant: what is written here is read back by [`Reader`](crate::Reader) and `read_whole` as the same deltas.
//! Not here: what goes wrong on the way (see the scripted provider).

use crate::tool_arguments::are_whole;
use crate::{Delta, Dialect, anthropic, openai_chat, openai_responses, sse};
use outlast_kernel::event::{Reasoning, StopReason, ToolCall, Usage};
use serde_json::{Map, Value};

/// When every scripted answer was made, in seconds since the Unix epoch.
pub(crate) const CREATED_AT: u64 = 1_767_225_600;

/// An error, in a provider's own words.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ApiError {
    /// Its type.
    pub kind: String,
    /// Its code, in the dialects that have both.
    pub code: Option<String>,
    /// What is said about it.
    pub message: String,
    /// What some providers add, such as when a limit ends.
    pub fields: Map<String, Value>,
    /// The id of the request, in the dialect that repeats it here.
    pub request_id: Option<String>,
}

impl ApiError {
    /// An error of that type that says this.
    pub fn new(kind: &str, message: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            message: message.to_owned(),
            ..Self::default()
        }
    }

    /// The same error with that code.
    #[must_use]
    pub fn with_code(self, code: &str) -> Self {
        let code = Some(code.to_owned());
        Self { code, ..self }
    }
}

/// Where in a stream an error strikes, and as what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interruption<'a> {
    /// The model whose answer is interrupted.
    pub model: &'a str,
    /// How many frames came before.
    pub frames_before: usize,
    /// What the error looks like.
    pub form: ErrorForm,
}

/// What an error in a stream looks like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorForm {
    /// As this dialect mostly has it.
    #[default]
    Usual,
    /// An event of its own.
    Event,
    /// The end of the answer: a finish reason or a failed response, where the dialect has such an end.
    End,
}

impl Dialect {
    /// A streamed answer in pieces: the first opens it, the last ends it.
    ///
    /// Between them comes one piece for each text or thought. A tool call takes several, so that an answer can break
    /// off within it, and the pieces of calls that follow each other take turns. Without a [`Delta::Stopped`] there is
    /// no last piece. With a [`Delta::Place`], whatever it says, the answer is one that its server keeps under that id;
    /// in a dialect whose servers keep none, it has that id.
    pub fn frames(self, model: &str, deltas: &[Delta]) -> Vec<String> {
        let answer = Completion::new(model, deltas);
        match self {
            Self::Anthropic => anthropic::encode_response::frames(&answer),
            Self::OpenaiChat => openai_chat::encode_response::frames(&answer),
            Self::OpenaiResponses => openai_responses::encode_response::frames(&answer),
        }
    }

    /// The same answer as one body.
    pub fn whole(self, model: &str, deltas: &[Delta]) -> String {
        let answer = Completion::new(model, deltas);
        match self {
            Self::Anthropic => anthropic::encode_response::whole(&answer),
            Self::OpenaiChat => openai_chat::encode_response::whole(&answer),
            Self::OpenaiResponses => openai_responses::encode_response::whole(&answer),
        }
        .to_string()
    }

    /// The body of a response with an error status.
    pub fn error(self, problem: &ApiError) -> String {
        match self {
            Self::Anthropic => anthropic::encode_response::error(problem),
            Self::OpenaiChat | Self::OpenaiResponses => {
                openai_chat::encode_response::error(problem)
            }
        }
        .to_string()
    }

    /// An error inside a stream.
    pub fn error_frame(self, problem: &ApiError, interruption: &Interruption<'_>) -> String {
        match self {
            Self::Anthropic => frame(&anthropic::encode_response::error(problem)),
            Self::OpenaiChat => openai_chat::encode_response::error_frame(problem, interruption),
            Self::OpenaiResponses => {
                openai_responses::encode_response::error_frame(problem, interruption)
            }
        }
    }

    /// A sign of life without content.
    pub fn ping(self) -> String {
        match self {
            Self::Anthropic => frame(&serde_json::json!({ "type": "ping" })),
            Self::OpenaiChat => ": keep-alive\n\n".to_owned(),
            Self::OpenaiResponses => frame(&serde_json::json!({ "type": "keepalive" })),
        }
    }

    /// A frame that no client knows and every client must pass over.
    pub fn unknown_frame(self, model: &str) -> String {
        match self {
            Self::Anthropic => frame(&serde_json::json!({
                "type": "weather_report", "index": 0, "delta": { "type": "cloud_delta", "cloud": "…" },
            })),
            Self::OpenaiChat => openai_chat::encode_response::unknown_frame(model),
            Self::OpenaiResponses => frame(&serde_json::json!({
                "type": "response.weather.report", "output_index": 0, "delta": { "cloud": "…" },
            })),
        }
    }
}

/// What the deltas say, put together: what a writer needs to know before it writes the first frame.
pub(crate) struct Completion<'a> {
    pub(crate) model: &'a str,
    pub(crate) parts: Vec<Segment<'a>>,
    pub(crate) usage: Option<Usage>,
    /// The id under which the server keeps it, or its own.
    pub(crate) kept_as: Option<&'a str>,
    pub(crate) stop: Option<StopReason>,
}

pub(crate) enum Segment<'a> {
    Text(Vec<&'a str>),
    Thought(ReasoningSegment<'a>),
    Calls(Vec<&'a ToolCall>),
}

pub(crate) struct ReasoningSegment<'a> {
    pub(crate) pieces: Vec<&'a str>,
    pub(crate) done: Option<&'a Reasoning>,
}

impl<'a> Completion<'a> {
    fn new(model: &'a str, deltas: &'a [Delta]) -> Self {
        let mut answer = Self {
            model,
            parts: Vec::new(),
            usage: None,
            kept_as: None,
            stop: None,
        };
        deltas.iter().for_each(|delta| answer.add(delta));
        answer
    }

    fn add(&mut self, delta: &'a Delta) {
        match (delta, self.parts.last_mut()) {
            (Delta::Usage(usage), _) => self.usage = Some(*usage),
            (Delta::Place(place), _) => self.kept_as = Some(&place.response),
            (Delta::Stopped(reason), _) => self.stop = Some(*reason),
            (Delta::Text(text) | Delta::Reasoning(text), _) if text.is_empty() => {}
            // Nobody sends on purpose what is not whole.
            (Delta::CallCut { .. }, _) => {}
            (Delta::Text(text), Some(Segment::Text(pieces))) => pieces.push(text),
            (Delta::Text(text), _) => self.parts.push(Segment::Text(vec![text])),
            (Delta::Reasoning(text), Some(Segment::Thought(thought))) if thought.done.is_none() => {
                thought.pieces.push(text);
            }
            (Delta::Reasoning(text), _) => self.parts.push(Segment::Thought(ReasoningSegment {
                pieces: vec![text],
                done: None,
            })),
            (Delta::ReasoningDone(done), Some(Segment::Thought(thought)))
                if thought.done.is_none() =>
            {
                thought.done = Some(done);
            }
            (Delta::ReasoningDone(done), _) => {
                let text = Some(done.text.as_str()).filter(|text| !text.is_empty());
                self.parts.push(Segment::Thought(ReasoningSegment {
                    pieces: text.into_iter().collect(),
                    done: Some(done),
                }));
            }
            // What is cut short was being written when all before it was complete.
            (Delta::ToolCall(call), Some(Segment::Calls(calls))) if are_whole(&call.arguments) => {
                calls.push(call);
            }
            (Delta::ToolCall(call), _) => self.parts.push(Segment::Calls(vec![call])),
        }
    }

    /// Whether its text is the words of a refusal.
    pub(crate) fn is_refused(&self) -> bool {
        self.stop == Some(StopReason::Refusal)
    }

    pub(crate) fn has_text(&self) -> bool {
        let is_text = |part: &Segment<'_>| matches!(part, Segment::Text(_));
        self.parts.iter().any(is_text)
    }
}

/// The arguments of several calls in pieces, each with the number of its call; the calls take turns.
pub(crate) fn interleaved_arguments<'a>(calls: &[&'a ToolCall]) -> Vec<(usize, &'a str)> {
    const MIN_PIECES: usize = 3;
    const MAX_PIECE_BYTES: usize = 500;
    let in_pieces = |call: &&'a ToolCall| {
        let count = call.arguments.len().div_ceil(MAX_PIECE_BYTES);
        pieces(&call.arguments, count.max(MIN_PIECES))
    };
    let split: Vec<Vec<&str>> = calls.iter().map(in_pieces).collect();
    let turns = split.iter().map(Vec::len).max().unwrap_or_default();
    let turn = |turn: usize| {
        let split = split.iter().enumerate();
        split.filter_map(move |(call, pieces)| Some((call, *pieces.get(turn)?)))
    };
    (0..turns).flat_map(turn).collect()
}

/// The text in that many pieces of about the same length, or in fewer.
fn pieces(text: &str, count: usize) -> Vec<&str> {
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

/// An event that is named as its data says.
pub(crate) fn frame(data: &Value) -> String {
    let name = data["type"].as_str().unwrap_or_default().to_owned();
    let data = data.to_string();
    sse::Event { name, data }.to_wire()
}

/// The arguments as the object that they are.
pub(crate) fn object(arguments: &str) -> Value {
    match serde_json::from_str(arguments) {
        Ok(Value::Object(fields)) => Value::Object(fields),
        _ => Value::Object(Map::new()),
    }
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
