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
    model: ModelRef,
    /// The tools of the calls so far.
    tools: HashMap<String, String>,
    entries: Entries,
    conversation: Conversation,
    counter: StatsCounter,
    /// Whether the current turn began without a message of its own.
    is_prompt_missing: bool,
}

/// The number of an entry in the journal, and its time.
type EntryStamp = (u64, Timestamp);

impl<'a> Reader<'a> {
    pub(super) fn new(models: &'a Models) -> Self {
        Self {
            models,
            model: models.in_use(),
            tools: HashMap::new(),
            entries: Entries::default(),
            conversation: Conversation::default(),
            counter: StatsCounter::new(models.window()),
            is_prompt_missing: false,
        }
    }

    pub(super) fn into_history(self) -> History {
        History {
            entries: self.entries.into_vec(),
            messages: self.conversation.into_messages(),
            counter: self.counter,
        }
    }

    /// Adds an entry of the journal.
    pub(super) fn apply(&mut self, at: EntryStamp, entry: journal::Entry) {
        let mut answer = None;
        if !matches!(
            entry,
            journal::Entry::Prompt { .. } | journal::Entry::Delivered { .. }
        ) {
            self.is_prompt_missing = false;
        }
        match &entry {
            journal::Entry::Prompt { message, .. } => {
                self.is_prompt_missing = message.is_none();
                self.push_messages(at, message.as_slice(), true);
            }
            journal::Entry::Delivered { messages, note, .. } => {
                // A session cannot be forked from a message that was sent into a turn.
                let begins = !note && std::mem::take(&mut self.is_prompt_missing);
                self.push_messages(at, messages, begins);
            }
            journal::Entry::Noticed { message, .. } => {
                self.push_messages(at, std::slice::from_ref(message), false);
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
                self.model = self.models.find_by_key(&switch.to);
                self.entries.push(at, EntryBody::model_change(&self.model));
            }
            journal::Entry::Message {
                message,
                stop_reason,
                usage,
                model,
            } => {
                answer = Some(self.push_completion(at, &message.parts, model, *stop_reason, *usage))
            }
            journal::Entry::ToolFinished {
                id,
                output,
                is_error,
                ..
            } => self.result(at, id, output, *is_error),
            journal::Entry::Compacted { .. } => return self.compact(at, entry),
            _ => {}
        }
        let id = self.entries.last_id_for(at.0);
        self.conversation
            .apply((id, at.1.as_millis()), entry, answer);
    }

    fn push_messages(
        &mut self,
        at: EntryStamp,
        messages: &[outlast_dialect::Message],
        is_prompt: bool,
    ) {
        for message in messages {
            let content = Block::from_parts(&message.parts);
            let timestamp = at.1.as_millis();
            let message = match message.role {
                Role::User => Message::from_user(content, timestamp),
                Role::Assistant => Message::Assistant(Assistant {
                    content,
                    ..self.model.empty_message(timestamp)
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
        if let Some(judged) = judged.filter(|judged| judged.failure.provider != self.model.provider)
        {
            self.model = self
                .models
                .find(&judged.failure.provider, &self.model.model);
        }
        let message = judged.map_or(ABORTED_MESSAGE, |judged| &judged.failure.message);
        let answer = Assistant {
            content: Block::from_parts(parts),
            usage: self.model.price(usage),
            stop_reason: judged.map_or(Stop::Aborted, |_| Stop::Error),
            error_message: Some(message.to_owned()),
            outlast: judged.map(ErrorDetails::from),
            ..self.model.empty_message(at.1.as_millis())
        };
        self.push(at, Message::Assistant(answer));
    }

    /// Adds a message of the model, and returns it without its content.
    fn push_completion(
        &mut self,
        at: EntryStamp,
        parts: &[Part],
        model: &str,
        stop_reason: StopReason,
        usage: Usage,
    ) -> Assistant {
        if !model.is_empty() && model != self.model.model {
            self.model = self.models.find(&self.model.provider, model);
        }
        let stop_reason = Stop::from(stop_reason);
        let answer = Assistant {
            usage: self.model.price(usage),
            stop_reason,
            error_message: stop_reason.problem(),
            ..self.model.empty_message(at.1.as_millis())
        };
        self.counter.count_completion(usage);
        let content = Block::from_parts(parts);
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
        let used = self.model.price(*usage);
        let what = EntryBody::Compaction {
            summary: summary.map_or_else(
                || NO_SUMMARY_TEXT.to_owned(),
                outlast_dialect::Message::text,
            ),
            first_kept_entry_id: String::new(),
            tokens_before: *before,
            usage: used,
        };
        self.counter.count_compaction(used);
        let (is_summarised, tokens) = (summary.is_some(), *before);
        let own = self.entries.push(at, what);
        let time = at.1.as_millis();
        let first = self
            .conversation
            .compact((own.clone(), time), entry, is_summarised, tokens);
        self.entries.set_first_kept(first.unwrap_or(own));
    }

    fn push(&mut self, at: EntryStamp, message: Message) {
        self.counter.message(&message);
        self.entries.push(at, EntryBody::Message { message });
    }
}
