//! One interface to the three dialects.

use crate::{
    Delta, Request, StreamCursor, anthropic, openai_chat, openai_responses, sse, tool_call_ids,
};
use outlast_kernel::Timestamp;
use outlast_kernel::failure::Failure;

/// A provider's wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// The Anthropic Messages API.
    Anthropic,
    /// The OpenAI Chat Completions API, which many other providers offer, too.
    OpenaiChat,
    /// The OpenAI Responses API.
    OpenaiResponses,
}

/// The activity that a frame shows, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StreamActivity {
    /// A keep-alive and nothing more.
    KeepAlive,
    /// The completion was announced without content. No announcement counts twice.
    Opening,
    /// The completion advanced.
    Progress,
}

/// The state of one response that is being read.
#[derive(Debug)]
pub struct StreamDecoder(State);

#[derive(Debug)]
enum State {
    Anthropic(anthropic::Decoder),
    OpenaiChat(openai_chat::Decoder),
    OpenaiResponses(openai_responses::Decoder),
}

impl Dialect {
    /// All dialects.
    pub const ALL: [Self; 3] = [Self::Anthropic, Self::OpenaiChat, Self::OpenaiResponses];

    /// Returns the name, as it is typed and configured.
    pub fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenaiChat => "openai",
            Self::OpenaiResponses => "openai-responses",
        }
    }

    /// Returns the path of the inference endpoint.
    pub fn path(self) -> &'static str {
        match self {
            Self::Anthropic => anthropic::PATH,
            Self::OpenaiChat => openai_chat::PATH,
            Self::OpenaiResponses => openai_responses::PATH,
        }
    }

    /// Returns the body of a request.
    pub fn encode_request(self, request: &Request) -> Vec<u8> {
        let is_good = match self {
            Self::Anthropic => tool_call_ids::is_portable_id,
            Self::OpenaiChat | Self::OpenaiResponses => tool_call_ids::is_non_empty,
        };
        let request = tool_call_ids::with_valid_ids(request, is_good);
        match self {
            Self::Anthropic => anthropic::encode::request(&request),
            Self::OpenaiChat => openai_chat::encode::request(&request),
            Self::OpenaiResponses => openai_responses::encode::request(&request),
        }
        .into_bytes()
    }

    /// Returns a decoder for one streamed response by that provider.
    pub fn decoder(self, provider: &str) -> StreamDecoder {
        StreamDecoder(match self {
            Self::Anthropic => State::Anthropic(anthropic::Decoder::new(provider)),
            Self::OpenaiChat => State::OpenaiChat(openai_chat::Decoder::new(provider)),
            Self::OpenaiResponses => {
                State::OpenaiResponses(openai_responses::Decoder::new(provider))
            }
        })
    }

    /// Returns the path for the rest of a streamed completion; `None` when no server keeps it.
    pub fn resume_path(self, place: &StreamCursor) -> Option<String> {
        match self {
            Self::OpenaiResponses => openai_responses::resume_path(place),
            Self::Anthropic | Self::OpenaiChat => None,
        }
    }

    /// Returns a decoder for the rest of a streamed completion: content before the cursor is not repeated.
    pub fn decoder_after(self, provider: &str, place: &StreamCursor) -> StreamDecoder {
        match self {
            Self::OpenaiResponses => StreamDecoder(State::OpenaiResponses(
                openai_responses::Decoder::resume_after(provider, place),
            )),
            Self::Anthropic | Self::OpenaiChat => self.decoder(provider),
        }
    }

    /// Reads a response that came as a whole: its deltas, or the failure.
    pub fn decode_response(
        self,
        provider: &str,
        body: &str,
        now: Timestamp,
    ) -> Result<Vec<Delta>, Box<Failure>> {
        match self {
            Self::Anthropic => anthropic::decode_response(provider, body, now),
            Self::OpenaiChat => openai_chat::decode_response(provider, body, now),
            Self::OpenaiResponses => openai_responses::decode_response(provider, body, now),
        }
    }
}

impl StreamDecoder {
    /// Adds the deltas of one frame to `deltas`.
    ///
    /// The failure is boxed: it is many times the size of a delta, and rare.
    pub fn decode(
        &mut self,
        event: &sse::Event,
        now: Timestamp,
        deltas: &mut Vec<Delta>,
    ) -> Result<StreamActivity, Box<Failure>> {
        match &mut self.0 {
            State::Anthropic(stream) => stream.decode(event, now, deltas),
            State::OpenaiChat(stream) => stream.decode(event, now, deltas),
            State::OpenaiResponses(stream) => stream.decode(event, now, deltas),
        }
    }

    /// Returns whether the completion is complete and only its last frames are missing: a stream that is silent now
    /// may be ended.
    ///
    /// Content that comes after all revokes this, and then a stream is complete only when it ends.
    pub fn is_complete(&self) -> bool {
        match &self.0 {
            State::OpenaiChat(stream) => stream.is_complete(),
            State::Anthropic(_) | State::OpenaiResponses(_) => false,
        }
    }

    /// Returns the remaining deltas when the stream ends here; none when it ends too early.
    pub fn finish(&mut self) -> Vec<Delta> {
        match &mut self.0 {
            State::OpenaiChat(stream) => stream.finish(),
            State::Anthropic(_) | State::OpenaiResponses(_) => Vec::new(),
        }
    }
}
