//! The completion that the attempts of a step have produced so far, and one that is interrupted after a part of it was handed
//! on.
//!
//! Invariants: no content is handed on twice, unless its attempt was retracted before; a seam event precedes the first
//! byte of a continuation; partial tool calls and partial reasoning are never kept.

use super::{CompletionPrefix, Runner};
use crate::token_estimate;
use outlast_dialect::{Message, Part, Request, Role, StreamCursor};
use outlast_kernel::attempt::{Effect, Effects, Event, step};
use outlast_kernel::decision::AfterContent;
use outlast_kernel::event::{Body, Reasoning, StopReason, Usage};
use outlast_kernel::failure::ClassifiedFailure;
use outlast_kernel::model_info::ContinueBy;
use outlast_kernel::verdict::{Cause, Class};
use std::borrow::Cow;

/// The maximum length of the completion's end that the model is shown.
const MAX_TAIL_CHARACTERS: usize = 200;

/// The completion that the attempts have produced so far.
#[derive(Default)]
pub(super) struct PartialCompletion {
    pub(super) parts: Vec<Part>,
    pub(super) stop_reason: Option<StopReason>,
    /// Whether a call is running.
    pub(super) is_in_progress: bool,
    /// Whether content of this attempt was emitted.
    pub(super) has_emitted_content: bool,
    /// Whether the model has shown its reasoning.
    pub(super) has_reasoning: bool,
    /// The reasoning that is still arriving.
    partial_reasoning: String,
    /// The names of the tool calls that are incomplete.
    pub(super) truncated_calls: Vec<String>,
    earlier_usage: Usage,
    pub(super) usage: Usage,
}

impl PartialCompletion {
    /// Creates an empty completion, after attempts with that usage.
    pub(super) fn with_earlier_usage(earlier_usage: Usage) -> Self {
        Self {
            earlier_usage,
            ..Self::default()
        }
    }

    pub(super) fn push_text(&mut self, piece: &str) {
        if let Some(Part::Text { text }) = self.parts.last_mut() {
            text.push_str(piece);
        } else {
            let text = piece.to_owned();
            self.parts.push(Part::Text { text });
        }
    }

    /// Adds to the reasoning that is still arriving.
    pub(super) fn push_reasoning(&mut self, piece: &str) {
        self.has_reasoning = true;
        self.partial_reasoning.push_str(piece);
    }

    /// Completes the reasoning.
    pub(super) fn finish_reasoning(&mut self, reasoning: Reasoning) {
        self.has_reasoning = true;
        self.partial_reasoning.clear();
        self.parts.push(Part::Reasoning(reasoning));
    }

    /// Begins an attempt that continues these parts; the usage of earlier attempts still counts.
    pub(super) fn begin_attempt(&mut self, kept: Vec<Part>) {
        *self = Self::with_earlier_usage(self.total_usage());
        self.parts = kept;
        self.is_in_progress = true;
    }

    /// Adds the usage of calls that are not the step's, such as a compaction.
    pub(super) fn add_usage(&mut self, usage: Usage) {
        self.earlier_usage = self.earlier_usage.plus(usage);
    }

    pub(super) fn total_usage(&self) -> Usage {
        self.earlier_usage.plus(self.usage)
    }

    pub(super) fn text(&self) -> String {
        self.message().text()
    }

    pub(super) fn has_calls(&self) -> bool {
        let is_call = |part: &Part| matches!(part, Part::ToolCall(_));
        self.parts.iter().any(is_call)
    }

    pub(super) fn message(&self) -> Message {
        Message {
            role: Role::Assistant,
            parts: self.parts.clone(),
        }
    }

    /// Returns the message with reasoning that is incomplete, for the journal.
    pub(super) fn message_with_partial_reasoning(&self) -> Message {
        let mut message = self.message();
        if !self.partial_reasoning.is_empty() {
            message.parts.push(Part::Reasoning(Reasoning {
                text: self.partial_reasoning.clone(),
                proof: None,
                model: None,
            }));
        }
        message
    }

    pub(super) fn into_message(self) -> Message {
        Message {
            role: Role::Assistant,
            parts: self.parts,
        }
    }
}

/// The beginning of a completion, which the next call continues.
pub(super) struct Continuation {
    parts: Vec<Part>,
    method: ContinueBy,
    resume_token: Option<StreamCursor>,
    /// The trimmed end of the beginning, which the model repeats.
    trimmed_suffix: String,
    is_emitted: bool,
    /// The first attempt that it came from, if listeners of this process received it.
    first_attempt: Option<u32>,
}

impl Continuation {
    /// Creates a continuation from a partial completion, which listeners of this process have not received.
    pub(super) fn from_prefix(beginning: CompletionPrefix, by: ContinueBy) -> Self {
        let CompletionPrefix {
            message,
            resume_token,
        } = beginning;
        let method = match (&resume_token, by) {
            (Some(_), _) => ContinueBy::Resume,
            (None, ContinueBy::Resume) => ContinueBy::Prompt,
            (None, by) => by,
        };
        // Not every provider continues a message that ends in whitespace.
        let trimmed_suffix = match (method, message.parts.last()) {
            (ContinueBy::Prefill, Some(Part::Text { text })) => &text[text.trim_end().len()..],
            _ => "",
        };
        Self {
            trimmed_suffix: trimmed_suffix.to_owned(),
            parts: message.parts,
            method,
            resume_token,
            is_emitted: false,
            first_attempt: None,
        }
    }

    /// Returns the cursor from which the provider can send the rest.
    pub(super) fn resume_token(&self) -> Option<&StreamCursor> {
        self.resume_token.as_ref()
    }

    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Removes the repeated text from the continuation.
    pub(super) fn strip_trimmed_suffix(&mut self, text: String) -> String {
        let pairs = self.trimmed_suffix.char_indices().zip(text.chars());
        let same = pairs.take_while(|((_, a), b)| a == b);
        let length = same.map(|(_, b)| b.len_utf8()).sum::<usize>();
        match length == text.len() {
            true => drop(self.trimmed_suffix.drain(..length)),
            false => self.trimmed_suffix.clear(),
        }
        text[length..].to_owned()
    }
}

/// The usage that was billed more than once.
#[derive(Clone, Copy, Default)]
pub(super) struct RetryBilling {
    pub(super) usage: Usage,
    /// The usage that counts once the request is repeated.
    pending: Usage,
    pub(super) estimated: bool,
}

impl Runner<'_> {
    /// Returns the treatment of the content that this attempt has handed on. An invalid completion is not continued.
    pub(super) fn after_content_policy(&self, judged: &ClassifiedFailure) -> AfterContent {
        let is_invalid = self.invalid_completion.current.is_some()
            || judged.verdict.cause == Cause::MalformedOutput;
        let can_continue = self.resume_token.is_some()
            || (!self.completion.text().trim().is_empty() && !self.completion.has_calls());
        let may_continue = self.turn.traits.continues_by != ContinueBy::Restart && !is_invalid;
        match self.turn.after_content {
            AfterContent::Continue if !(may_continue && can_continue) => AfterContent::Retract,
            wanted => wanted,
        }
    }

    /// Retracts the content that the failed attempt has handed on, and the kept content that it continued.
    pub(super) fn retract(&mut self) {
        let since = self.continuation.take().and_then(|kept| kept.first_attempt);
        let last = self.emitter.attempt;
        let usage = self.usage_or_estimate();
        self.add_retry_billing(usage);
        for attempt in since.unwrap_or(last)..=last {
            self.emitter.emit(Body::Retracted { attempt });
        }
    }

    /// Keeps the content that the failed attempt has handed on, for the next one to continue.
    pub(super) fn keep_partial(&mut self) {
        let earlier = self.continuation.as_ref();
        let by = earlier.map_or(self.turn.traits.continues_by, |kept| kept.method);
        let since = earlier.and_then(|kept| kept.first_attempt);
        let prefix = CompletionPrefix {
            message: self.completion.message(),
            resume_token: self.resume_token.take(),
        };
        let mut kept = Continuation::from_prefix(prefix, by);
        let usage = self.usage_or_estimate();
        if kept.method != ContinueBy::Resume {
            // The prompt is read once more, but the output is not written again.
            let output = 0;
            self.add_retry_billing(Usage { output, ..usage });
        }
        kept.is_emitted = true;
        kept.first_attempt = since.or(Some(self.emitter.attempt));
        self.continuation = Some(kept);
    }

    /// Returns whether the next call continues a completion: that of the failed attempt, or, if it was empty, the one
    /// kept before.
    pub(super) fn keeps_partial(&mut self, effects: &Effects) -> bool {
        if effects.contains(&Effect::KeepPartial) {
            return true;
        }
        let kept = self
            .continuation
            .as_ref()
            .filter(|_| !self.completion.has_emitted_content);
        if let Some(kept) = kept {
            self.completion.parts = kept.parts.clone();
        }
        kept.is_some()
    }

    /// Returns the usage of the last attempt, or an estimate if its provider did not report it.
    fn usage_or_estimate(&mut self) -> Usage {
        let usage = self.completion.usage;
        if usage != Usage::default() {
            return usage;
        }
        self.retry_billing.estimated = true;
        Usage {
            input: token_estimate::request_tokens_with_billing(
                &self.turn.request,
                self.billed_tokens,
            ),
            output: token_estimate::message_tokens(&self.completion.message()),
            ..Usage::default()
        }
    }

    fn add_retry_billing(&mut self, usage: Usage) {
        self.retry_billing.pending = self.retry_billing.pending.plus(usage);
    }

    /// Counts the pending usage, as the request is repeated.
    pub(super) fn commit_retry_billing(&mut self) {
        let pending = std::mem::take(&mut self.retry_billing.pending);
        self.retry_billing.usage = self.retry_billing.usage.plus(pending);
    }

    /// Returns the request of the next call, with the beginning of the completion if the call is to continue one.
    pub(super) fn next_request(&self) -> Cow<'_, Request> {
        let Some(kept) = &self.continuation else {
            return Cow::Borrowed(&self.turn.request);
        };
        let mut request = self.turn.request.clone();
        let mut begun = Message {
            role: Role::Assistant,
            parts: kept.parts.clone(),
        };
        if let (ContinueBy::Prefill, Some(Part::Text { text })) =
            (kept.method, begun.parts.last_mut())
        {
            text.truncate(text.trim_end().len());
            if text.is_empty() {
                begun.parts.pop();
            }
        }
        let end = last_characters(&begun.text(), MAX_TAIL_CHARACTERS).to_owned();
        request.messages.push(begun);
        if kept.method != ContinueBy::Prefill {
            request
                .messages
                .push(Message::user(continuation_prompt(&end)));
        }
        Cow::Owned(request)
    }

    /// Emits the text that an earlier process kept, which current listeners have not received.
    pub(super) fn emit_continuation_text(&mut self) {
        if let Some(kept) = self.continuation.as_mut().filter(|kept| !kept.is_emitted) {
            kept.is_emitted = true;
            // The text belongs to the last attempt, and can be retracted with it.
            kept.first_attempt = Some(self.emitter.attempt);
            let role = Role::Assistant;
            let parts = kept.parts.clone();
            let text = Message { role, parts }.text();
            self.emitter.emit(Body::TextDelta { text });
        }
    }

    /// Returns the cursor for the rest of the completion that the next call continues.
    pub(super) fn continuation_resume_token(&self) -> Option<StreamCursor> {
        let earlier = self
            .continuation
            .as_ref()
            .filter(|_| !self.completion.has_emitted_content);
        let earlier = earlier.and_then(|kept| kept.resume_token.clone());
        self.resume_token.clone().or(earlier)
    }

    /// Emits the seam before the first byte of a continuation.
    pub(super) fn emit_seam(&mut self) {
        if let Some(kept) = self
            .continuation
            .as_ref()
            .filter(|_| !self.completion.has_emitted_content)
        {
            let by = kept.method;
            self.emitter.emit(Body::Seam { by });
        }
    }

    /// Returns whether the provider refused the continuation itself; then the model can be prompted to continue
    /// instead.
    pub(super) fn can_continue_by_prompt(&self, judged: &ClassifiedFailure) -> bool {
        let is_refused = judged.failure.retryable == Some(false)
            || matches!(
                judged.verdict.cause,
                Cause::InvalidRequest | Cause::ModelNotFound | Cause::Unknown
            );
        let continues = |kept: &Continuation| kept.method != ContinueBy::Prompt;
        is_refused
            && !self.completion.has_emitted_content
            && self.continuation.as_ref().is_some_and(continues)
    }

    /// Switches to a continuation by prompt. Content that cannot be continued that way is retracted.
    pub(super) fn continue_by_prompt(&mut self) {
        let Some(kept) = &mut self.continuation else {
            return;
        };
        let is_text = |part: &Part| matches!(part, Part::Text { text } if !text.trim().is_empty());
        let is_call = |part: &Part| matches!(part, Part::ToolCall(_));
        if !kept.parts.iter().any(is_text) || kept.parts.iter().any(is_call) {
            return self.retract();
        }
        (kept.method, kept.resume_token) = (ContinueBy::Prompt, None);
        kept.trimmed_suffix.clear();
    }

    /// Treats a completion that was interrupted after complete tool calls as one that ended with them.
    pub(super) async fn salvage(&mut self, judged: &ClassifiedFailure) -> Option<Effects> {
        let is_wanted = self.turn.after_content == AfterContent::Continue
            && judged.failure.retryable != Some(false)
            && judged.verdict.class() == Class::Transient;
        let can_run = self.completion.is_in_progress
            && self.resume_token.is_none()
            && self.completion.has_calls()
            && self.turn.tools.is_some();
        if !is_wanted || !can_run {
            return None;
        }
        let message = "the answer broke off; the calls that were complete are run".to_owned();
        self.emitter.emit(Body::Warning { message });
        self.completion.stop_reason = Some(StopReason::ToolUse);
        self.completion.is_in_progress = false;
        self.complete_step(StopReason::ToolUse, Vec::new()).await;
        Some(step(self.driver.state_mut(), Event::Succeeded))
    }

    /// Reports the usage that was billed more than once, in one event.
    pub(super) fn emit_retry_billing(&mut self) {
        let RetryBilling {
            usage, estimated, ..
        } = self.retry_billing;
        if usage != Usage::default() {
            self.emitter.emit(Body::BilledTwice { usage, estimated });
        }
    }
}

fn continuation_prompt(end: &str) -> String {
    format!(
        "Your last answer was cut off by a failed connection. Go on exactly where it ended, without repeating any of it \
         and without a remark about it. It ended with:\n{end}"
    )
}

fn last_characters(text: &str, count: usize) -> &str {
    let start = text.char_indices().rev().nth(count.saturating_sub(1));
    start.map_or(text, |(start, _)| &text[start..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn continuation(text: &str) -> Continuation {
        let text = text.to_owned();
        let parts = vec![Part::Text { text }];
        let role = Role::Assistant;
        let message = Message { role, parts };
        let resume_token = None;
        Continuation::from_prefix(
            CompletionPrefix {
                message,
                resume_token,
            },
            ContinueBy::Prefill,
        )
    }

    #[test]
    fn trailing_space_is_not_repeated_by_continuation() {
        let table: [(&str, &[&str], &str); 6] = [
            ("One \n ", &[" \n two"], "two"),
            ("One \n ", &[" ", "\n", " ", "two"], "two"),
            ("One \n ", &["two"], "two"),
            ("One \n ", &[" ", "two", " three"], "two three"),
            ("One ", &["  two"], " two"),
            ("One", &[" two"], " two"),
        ];
        for (begun, pieces, expected) in table {
            let mut kept = continuation(begun);
            let rest = pieces
                .iter()
                .map(|piece| kept.strip_trimmed_suffix((*piece).to_owned()));
            assert_eq!(rest.collect::<String>(), expected, "{begun:?} {pieces:?}");
        }
    }

    #[test]
    fn last_characters_cuts_on_char_boundary() {
        assert_eq!(last_characters("aéîö", 2), "îö");
        assert_eq!(last_characters("aé", 9), "aé");
        assert_eq!(last_characters("", 2), "");
    }
}
