//! The statistics of a session. Failed attempts and summarised messages were paid for, so they count.

use crate::pi_rpc::message::{Block, Message, PricedUsage};
use outlast_kernel::event::Usage;
use serde::Serialize;

/// The statistics of a session.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stats {
    /// The file that stores the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_file: Option<String>,
    /// The id of the session.
    pub session_id: String,
    /// Number of messages of the user.
    pub user_messages: u64,
    /// Number of messages of the model, failed attempts included.
    pub assistant_messages: u64,
    /// Number of tool calls.
    pub tool_calls: u64,
    /// Number of tool results.
    pub tool_results: u64,
    /// Number of all messages.
    pub total_messages: u64,
    /// Tokens used.
    pub tokens: Tokens,
    /// Cost in dollars.
    pub cost: f64,
    /// The use of the model's context window.
    pub context_usage: ContextUsage,
}

/// Token counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tokens {
    /// Input tokens, without those from the cache.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Tokens read from the cache.
    pub cache_read: u64,
    /// Tokens written to the cache.
    pub cache_write: u64,
    /// Total of all tokens.
    pub total: u64,
}

/// The use of a model's context window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContextUsage {
    /// Tokens in the window; unknown until the model has answered, and again after a compaction.
    pub tokens: Option<u64>,
    /// Size of the window, in tokens.
    pub context_window: u64,
    /// Share of the window that is in use, in percent.
    pub percent: Option<f64>,
}

/// The counts so far.
#[derive(Default)]
pub(super) struct StatsCounter {
    user: u64,
    assistant: u64,
    calls: u64,
    results: u64,
    all: u64,
    tokens: Tokens,
    cost: f64,
    context: Option<u64>,
    window: u64,
}

impl StatsCounter {
    pub(super) fn new(window: u64) -> Self {
        Self {
            window,
            ..Self::default()
        }
    }

    pub(super) fn message(&mut self, message: &Message) {
        self.all += 1;
        match message {
            Message::User(_) => self.user += 1,
            Message::ToolResult(_) => self.results += 1,
            Message::Assistant(answer) => {
                self.assistant += 1;
                let is_call = |block: &&Block| matches!(block, Block::ToolCall { .. });
                self.calls += answer.content.iter().filter(is_call).count() as u64;
                self.spend(answer.usage);
            }
            Message::BashExecution(_) | Message::CompactionSummary(_) => {}
        }
    }

    /// Counts a completion: its usage gives the size of the conversation.
    pub(super) fn count_completion(&mut self, usage: Usage) {
        let tokens = usage.total_input().saturating_add(usage.output);
        self.context = Some(tokens).filter(|tokens| *tokens > 0).or(self.context);
    }

    /// Counts a compaction: the size of the conversation is unknown until the model has read it.
    pub(super) fn count_compaction(&mut self, used: PricedUsage) {
        self.spend(used);
        self.context = None;
    }

    fn spend(&mut self, used: PricedUsage) {
        let tokens = &mut self.tokens;
        tokens.input = tokens.input.saturating_add(used.input);
        tokens.output = tokens.output.saturating_add(used.output);
        tokens.cache_read = tokens.cache_read.saturating_add(used.cache_read);
        tokens.cache_write = tokens.cache_write.saturating_add(used.cache_write);
        tokens.total = tokens.total.saturating_add(used.total_tokens);
        self.cost += used.cost.total;
    }

    pub(super) fn stats(&self, session_id: &str, session_file: Option<&str>) -> Stats {
        let window = Some(self.window).filter(|window| *window > 0);
        let share = |(tokens, window): (u64, u64)| tokens as f64 * 100.0 / window as f64;
        Stats {
            session_file: session_file.map(str::to_owned),
            session_id: session_id.to_owned(),
            user_messages: self.user,
            assistant_messages: self.assistant,
            tool_calls: self.calls,
            tool_results: self.results,
            total_messages: self.all,
            tokens: self.tokens,
            cost: self.cost,
            context_usage: ContextUsage {
                tokens: self.context,
                context_window: self.window,
                percent: self.context.zip(window).map(share),
            },
        }
    }
}
