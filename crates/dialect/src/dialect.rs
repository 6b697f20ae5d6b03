//! The three dialects behind one face.

use crate::{
    Delta, Request, StreamCursor, anthropic, openai_chat, openai_responses, sse, tool_call_ids,
};
use outlast_kernel::Timestamp;
use outlast_kernel::failure::Failure;

/// A provider's way to be asked and to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// The Anthropic Messages API.
    Anthropic,
    /// The OpenAI Chat Completions API, as many others speak it, too.
    OpenaiChat,
    /// The OpenAI Responses API.
    OpenaiResponses,
}

/// What a frame was good for; the better, the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StreamActivity {
    /// A sign of life and nothing more.
    Alive,
    /// The answer was announced; nothing of it has come yet. No announcement counts twice.
    Opening,
    /// The answer moved on.
    Progress,
}

/// The state of one answer that is being read.
#[derive(Debug)]
pub struct StreamDecoder(State);

#[derive(Debug)]
enum State {
    Anthropic(anthropic::Decoder),
    OpenaiChat(openai_chat::Decoder),
    OpenaiResponses(openai_responses::Decoder),
}

impl Dialect {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Anthropic, Self::OpenaiChat, Self::OpenaiResponses];

    /// Its name, as it is typed and configured.
    pub fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenaiChat => "openai",
            Self::OpenaiResponses => "openai-responses",
        }
    }

    /// The path of the inference endpoint.
    pub fn path(self) -> &'static str {
        match self {
            Self::Anthropic => anthropic::PATH,
            Self::OpenaiChat => openai_chat::PATH,
            Self::OpenaiResponses => openai_responses::PATH,
        }
    }

    /// The body of a request.
    pub fn request(self, request: &Request) -> Vec<u8> {
        let is_good = match self {
            Self::Anthropic => tool_call_ids::is_plain,
            Self::OpenaiChat | Self::OpenaiResponses => tool_call_ids::is_any,
        };
        let request = tool_call_ids::with_valid_ids(request, is_good);
        match self {
            Self::Anthropic => anthropic::encode::request(&request),
            Self::OpenaiChat => openai_chat::encode::request(&request),
            Self::OpenaiResponses => openai_responses::encode::request(&request),
        }
        .into_bytes()
    }

    /// A reader for one streamed answer by that provider.
    pub fn reader(self, provider: &str) -> StreamDecoder {
        StreamDecoder(match self {
            Self::Anthropic => State::Anthropic(anthropic::Decoder::new(provider)),
            Self::OpenaiChat => State::OpenaiChat(openai_chat::Decoder::new(provider)),
            Self::OpenaiResponses => {
                State::OpenaiResponses(openai_responses::Decoder::new(provider))
            }
        })
    }

    /// Where to ask for the rest of a streamed answer; `None` when nobody keeps it.
    pub fn resume_path(self, place: &StreamCursor) -> Option<String> {
        match self {
            Self::OpenaiResponses => openai_responses::resume_path(place),
            Self::Anthropic | Self::OpenaiChat => None,
        }
    }

    /// A reader for the rest of a streamed answer: what lies before the place is not said again.
    pub fn decoder_after(self, provider: &str, place: &StreamCursor) -> StreamDecoder {
        match self {
            Self::OpenaiResponses => StreamDecoder(State::OpenaiResponses(
                openai_responses::Decoder::after(provider, place),
            )),
            Self::Anthropic | Self::OpenaiChat => self.reader(provider),
        }
    }

    /// What an answer that came as a whole says, or the failure that it is.
    pub fn read_whole(
        self,
        provider: &str,
        body: &str,
        now: Timestamp,
    ) -> Result<Vec<Delta>, Box<Failure>> {
        match self {
            Self::Anthropic => anthropic::read_whole(provider, body, now),
            Self::OpenaiChat => openai_chat::read_whole(provider, body, now),
            Self::OpenaiResponses => openai_responses::read_whole(provider, body, now),
        }
    }
}

impl StreamDecoder {
    /// Adds what one frame says to `deltas`.
    ///
    /// The failure comes boxed: it is many times the size of a delta, and rare.
    pub fn read(
        &mut self,
        event: &sse::Event,
        now: Timestamp,
        deltas: &mut Vec<Delta>,
    ) -> Result<StreamActivity, Box<Failure>> {
        match &mut self.0 {
            State::Anthropic(stream) => stream.read(event, now, deltas),
            State::OpenaiChat(stream) => stream.read(event, now, deltas),
            State::OpenaiResponses(stream) => stream.read(event, now, deltas),
        }
    }

    /// Whether the answer is complete and only its afterword is missing: a stream that falls silent now may be ended.
    ///
    /// Content that comes after all takes this back, and then a stream is complete only when it ends.
    pub fn is_complete(&self) -> bool {
        match &self.0 {
            State::OpenaiChat(stream) => stream.is_complete(),
            State::Anthropic(_) | State::OpenaiResponses(_) => false,
        }
    }

    /// What is left to say when the stream ends here; nothing when it ends too early.
    pub fn end(&mut self) -> Vec<Delta> {
        match &mut self.0 {
            State::OpenaiChat(stream) => stream.end(),
            State::Anthropic(_) | State::OpenaiResponses(_) => Vec::new(),
        }
    }
}
