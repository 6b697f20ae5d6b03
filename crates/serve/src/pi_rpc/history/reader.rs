//! Reads a journal entry by entry, and adds each to the history.

use super::conversation::Conversation;
use super::entry::{Entries, EntryBody};
use super::stats::StatsCounter;
use super::{History, NO_SUMMARY_TEXT};
use crate::pi_rpc::message::{
    ABORTED_MESSAGE, Assistant, Block, ErrorDetails, Message, Stop, ToolResult,
};
use crate::pi_rpc::models::{ModelRef, Models};
use outlast_dialect::{Part, Role};
use outlast_engine::journal;
use outlast_kernel::Timestamp;
use outlast_kernel::event::{StopReason, Usage};
use outlast_kernel::failure::ClassifiedFailure;
use std::collections::HashMap;

/// The state of a history while it is read.
pub(super) struct Reader<'a> {
    models: &'a Models,
    /// The model in use, as far as the journal names it.
    asked: ModelRef,
    /// The tools of the calls so far.
    tools: HashMap<String, String>,
    entries: Entries,
    conversation: Conversation,
    counted: StatsCounter,
    /// Whether the current turn began without a message of its own.
    begins_without: bool,
}

/// The number of an entry in the journal, and its time.
type EntryStamp = (u64, Timestamp);

impl<'a> Reader<'a> {
    pub(super) fn new(models: &'a Models) -> Self {
        Self {
            models,
            asked: models.in_use(),
            tools: HashMap::new(),
            entries: Entries::default(),
            conversation: Conversation::default(),
            counted: StatsCounter::new(models.window()),
            begins_without: false,
        }
    }

    pub(super) fn into_history(self) -> History {
        History {
            entries: self.entries.into_vec(),
            messages: self.conversation.into_messages(),
            counted: self.counted,
        }
    }

    /// Adds an entry of the journal.
    pub(super) fn take_in(&mut self, at: EntryStamp, entry: journal::Entry) {
        let mut answer = None;
        if !matches!(
            entry,
            journal::Entry::Prompt { .. } | journal::Entry::Said { .. }
        ) {
            self.begins_without = false;
        }
        match &entry {
            journal::Entry::Prompt { message, .. } => {
                self.begins_without = message.is_none();
                self.say(at, message.as_slice(), true);
            }
            journal::Entry::Said { messages, note, .. } => {
                // A session cannot be forked from a message that was sent into a turn.
                let begins = !note && std::mem::take(&mut self.begins_without);
                self.say(at, messages, begins);
            }
            journal::Entry::Noticed { message, .. } => {
                self.say(at, std::slice::from_ref(message), false);
            }
            journal::Entry::AttemptFailed {
                judged,
                message,
                usage,
                ..
            } => self.fail(at, judged.as_ref(), &message.parts, *usage),
            journal::Entry::Switched {
                model: Some(switch),
                ..
            } => {
                self.asked = self.models.keyed(&switch.to);
                self.entries.push(at, EntryBody::model_change(&self.asked));
            }
            journal::Entry::Message {
                message,
                stop_reason,
                usage,
                model,
            } => answer = Some(self.answer(at, &message.parts, model, *stop_reason, *usage)),
            journal::Entry::ToolFinished {
                id,
                output,
                is_error,
                ..
            } => self.result(at, id, output, *is_error),
            journal::Entry::Compacted { .. } => return self.compact(at, entry),
            _ => {}
        }
        let id = self.entries.last_id(at.0);
        self.conversation
            .take_in((id, at.1.as_millis()), entry, answer);
    }

    fn say(&mut self, at: EntryStamp, messages: &[outlast_dialect::Message], is_prompt: bool) {
        for message in messages {
            let content = Block::all(&message.parts);
            let timestamp = at.1.as_millis();
            let message = match message.role {
                Role::User => Message::of_user(content, timestamp),
                Role::Assistant => Message::Assistant(Assistant {
                    content,
                    ..self.asked.blank(timestamp)
                }),
            };
            self.push(at, message);
            self.entries.mark_prompt(is_prompt);
        }
    }

    fn fail(
        &mut self,
        at: EntryStamp,
        judged: Option<&ClassifiedFailure>,
        parts: &[Part],
        usage: Usage,
    ) {
        if let Some(judged) = judged.filter(|judged| judged.failure.provider != self.asked.provider)
        {
            self.asked = self
                .models
                .find(&judged.failure.provider, &self.asked.model);
        }
        let message = judged.map_or(ABORTED_MESSAGE, |judged| &judged.failure.message);
        let answer = Assistant {
            content: Block::all(parts),
            usage: self.asked.used(usage),
            stop_reason: judged.map_or(Stop::Aborted, |_| Stop::Error),
            error_message: Some(message.to_owned()),
            outlast: judged.map(ErrorDetails::from),
            ..self.asked.blank(at.1.as_millis())
        };
        self.push(at, Message::Assistant(answer));
    }

    /// Adds a message of the model, and returns it without its content.
    fn answer(
        &mut self,
        at: EntryStamp,
        parts: &[Part],
        model: &str,
        stop_reason: StopReason,
        usage: Usage,
    ) -> Assistant {
        if !model.is_empty() && model != self.asked.model {
            self.asked = self.models.find(&self.asked.provider, model);
        }
        let stop_reason = Stop::from(stop_reason);
        let answer = Assistant {
            usage: self.asked.used(usage),
            stop_reason,
            error_message: stop_reason.problem(),
            ..self.asked.blank(at.1.as_millis())
        };
        self.counted.answered(usage);
        let content = Block::all(parts);
        for block in &content {
            if let Block::ToolCall { id, name, .. } = block {
                self.tools.insert(id.clone(), name.clone());
            }
        }
        let whole = Assistant {
            content,
            ..answer.clone()
        };
        self.push(at, Message::Assistant(whole));
        answer
    }

    fn result(&mut self, at: EntryStamp, id: &str, output: &str, is_error: bool) {
        let name = self.tools.get(id).cloned().unwrap_or_default();
        let result = outlast_dialect::ToolResult {
            id: id.to_owned(),
            output: output.to_owned(),
            is_error,
        };
        let result = ToolResult::new(result, name, at.1.as_millis());
        self.push(at, Message::ToolResult(result));
    }

    fn compact(&mut self, at: EntryStamp, entry: journal::Entry) {
        let journal::Entry::Compacted {
            messages,
            before,
            model,
            usage,
            ..
        } = &entry
        else {
            return;
        };
        let summary = messages.first().filter(|_| model.is_some());
        let used = self.asked.used(*usage);
        let what = EntryBody::Compaction {
            summary: summary.map_or_else(
                || NO_SUMMARY_TEXT.to_owned(),
                outlast_dialect::Message::text,
            ),
            first_kept_entry_id: String::new(),
            tokens_before: *before,
            usage: used,
        };
        self.counted.compacted(used);
        let (is_summarised, tokens) = (summary.is_some(), *before);
        let own = self.entries.push(at, what);
        let time = at.1.as_millis();
        let first =
            self.conversation
                .become_smaller((own.clone(), time), entry, is_summarised, tokens);
        self.entries.set_first_kept(first.unwrap_or(own));
    }

    fn push(&mut self, at: EntryStamp, message: Message) {
        self.counted.message(&message);
        self.entries.push(at, EntryBody::Message { message });
    }
}
