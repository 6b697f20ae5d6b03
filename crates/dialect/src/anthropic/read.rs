//! From the wire: stream frames to deltas, error bodies to failures.

use crate::error_body::{self, Seen};
use crate::{Delta, sse};
use outlast_kernel::Timestamp;
use outlast_kernel::event::{StopReason, ToolCall, Usage};
use outlast_kernel::failure::{Failure, IoKind, Transport};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The state of one streamed answer.
#[derive(Debug)]
pub struct Stream {
    provider: String,
    usage: Usage,
    stop_reason: Option<StopReason>,
    tools: BTreeMap<u64, ToolCall>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Frame {
    MessageStart {
        message: MessageStart,
    },
    ContentBlockStart {
        index: u64,
        content_block: Block,
    },
    ContentBlockDelta {
        index: u64,
        delta: BlockDelta,
    },
    ContentBlockStop {
        index: u64,
    },
    MessageDelta {
        delta: MessageDelta,
        usage: Option<WireUsage>,
    },
    MessageStop,
    Error,
    #[serde(other)]
    Unknown,
}

#[derive(Deserialize)]
struct MessageStart {
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block {
    ToolUse {
        id: String,
        name: String,
    },
    #[serde(other)]
    Unknown,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum BlockDelta {
    TextDelta {
        text: String,
    },
    ThinkingDelta {
        thinking: String,
    },
    InputJsonDelta {
        partial_json: String,
    },
    #[serde(other)]
    Unknown,
}

#[derive(Deserialize)]
struct MessageDelta {
    stop_reason: Option<String>,
}

/// Each field replaces what was known before, where it is given.
#[derive(Default, Deserialize)]
struct WireUsage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
}

impl Stream {
    /// The beginning of an answer by that provider.
    pub fn new(provider: &str) -> Self {
        Self {
            provider: provider.to_owned(),
            usage: Usage::default(),
            stop_reason: None,
            tools: BTreeMap::new(),
        }
    }

    /// What one frame says, if it says anything.
    ///
    /// The failure comes boxed: it is many times the size of a delta, and rare.
    pub fn read(
        &mut self,
        event: &sse::Event,
        now: Timestamp,
    ) -> Result<Option<Delta>, Box<Failure>> {
        let frame = serde_json::from_str(&event.data).map_err(|error| {
            let message = format!("a frame of the stream cannot be read: {error}");
            Box::new(Failure::emitted(&self.provider, &message, now).with_io(IoKind::Protocol))
        })?;
        Ok(match frame {
            Frame::MessageStart { message } => self.used(message.usage),
            Frame::ContentBlockStart {
                index,
                content_block: Block::ToolUse { id, name },
            } => {
                self.tools.insert(
                    index,
                    ToolCall {
                        id,
                        name,
                        arguments: String::new(),
                    },
                );
                None
            }
            Frame::ContentBlockDelta { index, delta } => self.delta(index, delta),
            Frame::ContentBlockStop { index } => self.tools.remove(&index).map(Delta::ToolCall),
            Frame::MessageDelta { delta, usage } => {
                self.stop_reason = delta
                    .stop_reason
                    .as_deref()
                    .map(stop_reason)
                    .or(self.stop_reason);
                self.used(usage)
            }
            Frame::MessageStop => Some(Delta::Stopped(
                self.stop_reason.unwrap_or(StopReason::Other),
            )),
            Frame::Error => return Err(Box::new(self.error(&event.data, now))),
            Frame::ContentBlockStart { .. } | Frame::Unknown => None,
        })
    }

    /// An error in the stream is read like one outside of it.
    fn error(&self, body: &str, at: Timestamp) -> Failure {
        error_body::read(Seen {
            provider: &self.provider,
            transport: Transport::Stream,
            status: None,
            headers: &[],
            body,
            at,
        })
    }

    fn delta(&mut self, index: u64, delta: BlockDelta) -> Option<Delta> {
        match delta {
            BlockDelta::TextDelta { text } => Some(Delta::Text(text)),
            BlockDelta::ThinkingDelta { thinking } => Some(Delta::Reasoning(thinking)),
            BlockDelta::InputJsonDelta { partial_json } => {
                if let Some(tool) = self.tools.get_mut(&index) {
                    tool.arguments.push_str(&partial_json);
                }
                None
            }
            BlockDelta::Unknown => None,
        }
    }

    fn used(&mut self, usage: Option<WireUsage>) -> Option<Delta> {
        let seen = usage?;
        self.usage = Usage {
            input: seen.input_tokens.unwrap_or(self.usage.input),
            output: seen.output_tokens.unwrap_or(self.usage.output),
            cache_read: seen
                .cache_read_input_tokens
                .unwrap_or(self.usage.cache_read),
            cache_write: seen
                .cache_creation_input_tokens
                .unwrap_or(self.usage.cache_write),
        };
        Some(Delta::Usage(self.usage))
    }
}

fn stop_reason(word: &str) -> StopReason {
    match word {
        "end_turn" | "stop_sequence" => StopReason::EndTurn,
        "tool_use" => StopReason::ToolUse,
        "max_tokens" => StopReason::Length,
        "refusal" => StopReason::Refusal,
        _ => StopReason::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::anthropic::write;
    use outlast_kernel::classify::classify;
    use outlast_kernel::verdict::Cause;

    const NOW: Timestamp = Timestamp::from_millis(1);

    fn read_all(frames: &[String]) -> Vec<Delta> {
        let mut decoder = sse::Decoder::new(1 << 20);
        let mut stream = Stream::new("anthropic");
        let mut deltas = Vec::new();
        decoder.push(frames.concat().as_bytes());
        while let Some(event) = decoder.next_event().unwrap() {
            deltas.extend(stream.read(&event, NOW).unwrap());
        }
        deltas
    }

    #[test]
    fn what_is_written_is_read() {
        let usage = Usage {
            input: 12,
            output: 3,
            cache_read: 4,
            cache_write: 5,
        };
        let frames = [
            write::start("m", usage),
            write::ping(),
            write::text("Hel"),
            write::text("lo"),
            write::stop(7),
        ];
        let deltas = read_all(&frames);
        let after = Usage { output: 7, ..usage };
        assert_eq!(
            deltas,
            [
                Delta::Usage(usage),
                Delta::Text("Hel".to_owned()),
                Delta::Text("lo".to_owned()),
                Delta::Usage(after),
                Delta::Stopped(StopReason::EndTurn),
            ]
        );
    }

    #[test]
    fn tool_calls_are_put_together_by_their_index() {
        let frame = |json: &str| format!("data: {json}\n\n");
        let block = |index: u32, id: &str| {
            frame(&format!(
                r#"{{"type":"content_block_start","index":{index},"content_block":{{"type":"tool_use","id":"{id}","name":"run","input":{{}}}}}}"#
            ))
        };
        let part = |index: u32, text: &str| {
            frame(&format!(
                r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"input_json_delta","partial_json":"{text}"}}}}"#
            ))
        };
        let stop = |index: u32| {
            frame(&format!(
                r#"{{"type":"content_block_stop","index":{index}}}"#
            ))
        };
        let call = |id: &str, arguments: &str| {
            Delta::ToolCall(ToolCall {
                id: id.to_owned(),
                name: "run".to_owned(),
                arguments: arguments.to_owned(),
            })
        };
        let frames = [
            block(0, "a"),
            block(1, "b"),
            part(0, "[1"),
            part(1, "[2"),
            part(0, "]"),
            part(1, "]"),
            stop(1),
            stop(0),
        ];
        assert_eq!(read_all(&frames), [call("b", "[2]"), call("a", "[1]")]);
    }

    #[test]
    fn unknown_frames_and_fields_are_skipped() {
        let frames = [
            "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"novel_delta\"}}\n\n".to_owned(),
            "data: {\"type\":\"brand_new\",\"x\":1}\n\n".to_owned(),
            "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"image\"}}\n\n".to_owned(),
        ];
        assert_eq!(read_all(&frames), []);
    }

    #[test]
    fn an_error_in_the_stream_is_a_failure_with_its_code() {
        let event = sse::Event {
            name: "error".to_owned(),
            data: write::error_body("overloaded_error", "Overloaded"),
        };
        let failure = Stream::new("anthropic").read(&event, NOW).unwrap_err();
        assert_eq!(classify(&failure).cause, Cause::Overloaded);
        assert_eq!(failure.code.as_deref(), Some("overloaded_error"));
    }

    #[test]
    fn garbage_is_a_failure_and_not_a_panic() {
        let event = sse::Event {
            name: String::new(),
            data: "<html>busy</html>".to_owned(),
        };
        let failure = Stream::new("anthropic").read(&event, NOW).unwrap_err();
        assert_eq!(failure.io, Some(IoKind::Protocol));
    }
}
