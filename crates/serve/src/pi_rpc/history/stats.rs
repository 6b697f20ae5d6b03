//! A session in numbers. What failed or was summarised away has been paid for, and is counted.

use crate::pi_rpc::message::{Block, Message, PricedUsage};
use outlast_kernel::event::Usage;
use serde::Serialize;

/// A session in numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stats {
    /// Where it is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_file: Option<String>,
    /// Its id.
    pub session_id: String,
    /// What was said to the model.
    pub user_messages: u64,
    /// What the model said, failed attempts included.
    pub assistant_messages: u64,
    /// The tools that it called.
    pub tool_calls: u64,
    /// What came of that.
    pub tool_results: u64,
    /// All of them.
    pub total_messages: u64,
    /// What they used.
    pub tokens: Tokens,
    /// What that cost, in dollars.
    pub cost: f64,
    /// How full the model's window is.
    pub context_usage: ContextUsage,
}

/// Tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tokens {
    /// Read, those from the cache not counted.
    pub input: u64,
    /// Written.
    pub output: u64,
    /// Read from the cache.
    pub cache_read: u64,
    /// Written to the cache.
    pub cache_write: u64,
    /// All of them.
    pub total: u64,
}

/// How full a model's window is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContextUsage {
    /// The tokens in it; unknown until the model has answered, and again after a compaction.
    pub tokens: Option<u64>,
    /// How many there may be.
    pub context_window: u64,
    /// The share of the first in the second, in percent.
    pub percent: Option<f64>,
}

/// What was counted so far.
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

    /// The model has read the conversation and answered.
    pub(super) fn answered(&mut self, usage: Usage) {
        let tokens = usage.read().saturating_add(usage.output);
        self.context = Some(tokens).filter(|tokens| *tokens > 0).or(self.context);
    }

    /// The conversation is a smaller one: how large nobody knows until the model has read it.
    pub(super) fn compacted(&mut self, used: PricedUsage) {
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
