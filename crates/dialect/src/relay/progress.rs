//! Tracks the progress of a response by its frames.
//!
//! Most frames after content are recognised by their first bytes (see `fast_path`). The others are read as usual, by a
//! decoder of their own, which detects a good end or an error.

use super::frame_scanner::FrameFields;
use super::{content, fast_path};
use crate::lenient_json::LenientParser;
use crate::openai_chat::{DONE, has_finish_reason};
use crate::{Delta, Dialect, StreamActivity, sse};
use outlast_kernel::Timestamp;
use outlast_kernel::failure::{Failure, Phase};
use serde_json::Value;

#[derive(Debug)]
pub(super) struct StreamProgress {
    pub(super) dialect: Dialect,
    pub(super) provider: String,
    pub(super) is_complete: bool,
    pub(super) relayed_error: Option<Box<Failure>>,
    /// The choice of a chat has finished, and no content has come after it.
    has_finished: bool,
    /// Content has come after such an end: this server's finish reason does not mean that it is done.
    has_content_after_finish: bool,
}

impl StreamProgress {
    pub(super) fn new(dialect: Dialect, provider: &str) -> Self {
        Self {
            dialect,
            provider: provider.to_owned(),
            is_complete: false,
            relayed_error: None,
            has_finished: false,
            has_content_after_finish: false,
        }
    }

    /// Returns whether a silent stream may be ended.
    pub(super) fn is_content_complete(&self) -> bool {
        self.is_complete || (self.has_finished && !self.has_content_after_finish)
    }

    /// Returns whether a stream that ends here is complete.
    pub(super) fn is_complete_at_end(&self) -> bool {
        self.is_complete || self.has_finished
    }

    /// Records a chat's chunk, which may end a choice.
    pub(super) fn observe_finish(&mut self, frame: &Value, has_content: bool) {
        if self.dialect == Dialect::OpenaiChat {
            let was_finished = self.has_finished;
            self.has_content_after_finish |= was_finished && has_content;
            self.has_finished = has_finish_reason(frame) || (was_finished && !has_content);
        }
    }

    /// Records a frame after content and returns its activity.
    pub(super) fn observe_frame(
        &mut self,
        frame: &[u8],
        said: &FrameFields<'_>,
        now: Timestamp,
    ) -> StreamActivity {
        if self.is_complete {
            return StreamActivity::KeepAlive;
        }
        // After an end, content is looked for.
        let quick = (!self.has_finished).then(|| fast_path::activity(self.dialect, said));
        quick.flatten().unwrap_or_else(|| {
            let mut decoder = sse::Decoder::new(usize::MAX);
            decoder.push(frame);
            match decoder.next_event() {
                Ok(Some(event)) => self.observe_event(&event, now),
                _ => StreamActivity::KeepAlive,
            }
        })
    }

    /// Records a frame that was too long to be kept whole: only its name is known. In a chat, which names none, it is
    /// content.
    pub(super) fn observe_long_frame(&mut self, head: &[u8]) -> StreamActivity {
        let kind = fast_path::event_type(&FrameFields::parse(head)).unwrap_or_default();
        let is_last = is_final_event(&String::from_utf8_lossy(kind));
        self.is_complete |= is_last && self.dialect == Dialect::OpenaiResponses;
        self.has_content_after_finish |= std::mem::take(&mut self.has_finished);
        StreamActivity::Progress
    }

    fn observe_event(&mut self, event: &sse::Event, now: Timestamp) -> StreamActivity {
        if self.dialect == Dialect::OpenaiChat && event.data.trim() == DONE {
            self.is_complete = true;
            return StreamActivity::Progress;
        }
        let mut deltas = Vec::new();
        let mut reader = self.dialect.decoder(&self.provider);
        let read = reader.decode(event, now, &mut deltas);
        let is_end = |delta: &Delta| matches!(delta, Delta::Stopped(_));
        self.is_complete |= deltas.iter().any(is_end);
        match read {
            // No announcement counts after content.
            Ok(StreamActivity::Opening) => StreamActivity::KeepAlive,
            Ok(sign) => {
                if self.dialect == Dialect::OpenaiChat {
                    let chunk = parse_data(event);
                    let has_content = content::is_content(self.dialect, &event.name, &chunk);
                    self.observe_finish(&chunk, has_content);
                }
                sign
            }
            Err(failure) => {
                self.record_error(failure);
                let is_last =
                    is_final_event(parse_data(event)["type"].as_str().unwrap_or(&event.name));
                self.is_complete |= is_last && self.dialect == Dialect::OpenaiResponses;
                StreamActivity::KeepAlive
            }
        }
    }

    fn record_error(&mut self, mut failure: Box<Failure>) {
        // A frame that cannot be read, or a response that the decoder refuses to read further, is no error of the
        // provider's; and nothing undoes a completion that is complete.
        let is_error = failure.io.is_none() && failure.verdict.is_none();
        if is_error && !self.is_content_complete() {
            failure.phase = Phase::AfterContent;
            self.relayed_error.get_or_insert(failure);
        }
    }
}

fn parse_data(event: &sse::Event) -> Value {
    LenientParser::default()
        .parse(&event.data)
        .unwrap_or_default()
}

/// Returns whether such an event is the last one.
fn is_final_event(kind: &str) -> bool {
    let name = kind.strip_prefix("response.").unwrap_or_default();
    ["completed", "incomplete", "done", "failed", "cancelled"].contains(&name)
}
