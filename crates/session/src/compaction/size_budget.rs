//! The size that a compacted conversation has to fit into.
//!
//! Our own estimate may be too low. The usage that was billed for the conversation shows by how much, and an overflow proves
//! that it has at least as many tokens as the window holds. Invariant: a result that does not fit is never accepted.

use super::elide::{self, Goal};
use outlast_dialect::Message;
use outlast_engine::compaction::{CompactedConversation, Job};
use outlast_engine::token_estimate;
use outlast_kernel::event::CompactionReason;

/// Tokens reserved for a completion whose limit is not known.
const DEFAULT_OUTPUT_TOKENS: u64 = 8192;
/// Limits for a quoted prompt, in bytes: the most that is quoted, and the least even when there is little room.
const MAX_QUOTE_BYTES: u64 = 8192;
const MIN_QUOTE_BYTES: u64 = 512;

/// The size of a request, and its limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct SizeBudget {
    reason: CompactionReason,
    window: Option<u64>,
    /// The size of the request in tokens, by our own estimate and as far as it is known.
    estimated_tokens: u64,
    known_tokens: u64,
    /// The part of the estimate that is not conversation: system prompt and tools.
    fixed_tokens: u64,
    /// Maximum number of tokens, in the unit of `known`.
    max_tokens: u64,
    /// The size of the request in bytes, with and without the conversation.
    bytes: u64,
    fixed_bytes: u64,
}

impl SizeBudget {
    pub(super) fn new(job: &Job<'_>) -> Self {
        let (request, window, reason) = (job.request, job.size.window, job.reason);
        let estimated_tokens = token_estimate::request_tokens(request).max(1);
        let proven = window.filter(|_| reason == CompactionReason::Overflow);
        let known_tokens = estimated_tokens
            .max(job.size.tokens)
            .max(proven.unwrap_or_default());
        let limit = window.map_or(known_tokens / 2, |window| {
            let answer = request.max_tokens.map_or(DEFAULT_OUTPUT_TOKENS, u64::from);
            window.saturating_sub(answer.min(window / 4))
        });
        let worth_it = match reason {
            CompactionReason::Manual => known_tokens.saturating_sub(1),
            _ => percent_of(known_tokens, 90),
        };
        let bytes = token_estimate::request_bytes(request);
        let spoken: u64 = request
            .messages
            .iter()
            .map(token_estimate::message_bytes)
            .sum();
        Self {
            reason,
            window,
            estimated_tokens,
            known_tokens,
            fixed_tokens: token_estimate::request_tokens(request)
                .saturating_sub(token_estimate::messages_tokens(&request.messages)),
            max_tokens: limit.min(worth_it),
            bytes,
            fixed_bytes: bytes.saturating_sub(spoken),
        }
    }

    /// Returns whether bytes are the problem, not tokens: then sending everything once more, to a summariser, does not help.
    pub(super) const fn is_byte_limited(&self) -> bool {
        let reason = self.reason;
        matches!(
            reason,
            CompactionReason::TooManyBytes | CompactionReason::SlowUpload
        )
    }

    /// Converts estimated tokens to actual ones.
    pub(super) fn known_tokens_for(&self, estimated: u64) -> u64 {
        proportion(estimated, self.known_tokens, self.estimated_tokens)
    }

    /// Converts actual tokens to estimated ones.
    pub(super) fn estimated_tokens_for(&self, tokens: u64) -> u64 {
        proportion(tokens, self.estimated_tokens, self.known_tokens)
    }

    /// Returns how many estimated tokens stay as they are: `keep`, at most 30 % of the window.
    pub(super) fn max_kept_tokens(&self, keep: u64) -> u64 {
        let most = percent_of(self.window.unwrap_or(self.known_tokens), 30);
        self.estimated_tokens_for(keep.min(most))
    }

    /// Returns the maximum length of a quoted prompt, in bytes.
    pub(super) fn max_quote_bytes(&self) -> usize {
        let most = self.window.unwrap_or(self.known_tokens) / 4;
        usize::try_from(most.clamp(MIN_QUOTE_BYTES, MAX_QUOTE_BYTES)).unwrap_or(usize::MAX)
    }

    /// Returns the maximum number of tokens of a summary.
    pub(super) fn max_summary_tokens(&self, most: u32) -> u32 {
        let quarter = self.window.map_or(u64::MAX, |window| window / 4);
        most.min(u32::try_from(quarter).unwrap_or(u32::MAX)).max(1)
    }

    /// Returns the maximum number of tokens of a summary request, for a model whose own limit is not known.
    pub(super) const fn max_summary_request_tokens(&self) -> u64 {
        self.known_tokens / 2
    }

    /// Returns whether a part of that many estimated tokens can be reduced enough to matter.
    pub(super) fn is_worth_summarising(&self, part: u64) -> bool {
        self.known_tokens_for(part) > percent_of(self.known_tokens, 10)
            || (self.reason == CompactionReason::Manual && part > 0)
    }

    pub(super) fn fits(&self, messages: &[Message]) -> bool {
        if self.is_byte_limited() {
            return self.bytes_with(messages) <= self.bytes / 2;
        }
        self.tokens_with(messages) <= self.max_tokens
    }

    /// Returns the conversation as a result if it fits; otherwise gives the messages back as the error.
    pub(super) fn accept(
        &self,
        messages: Vec<Message>,
        model: Option<&str>,
    ) -> Result<CompactedConversation, Vec<Message>> {
        if !self.fits(&messages) {
            return Err(messages);
        }
        Ok(CompactedConversation {
            size: self.tokens_with(&messages),
            messages,
            model: model.map(str::to_owned),
        })
    }

    /// Returns the conversation with parts left out until it fits with some reserve, or as close to it as possible.
    pub(super) fn elide(&self, messages: &[Message]) -> Vec<Message> {
        let goal = if self.is_byte_limited() {
            let max_weight = percent_of(self.bytes / 2, 90).saturating_sub(self.fixed_bytes);
            Goal {
                max_weight,
                weigh: token_estimate::message_bytes,
            }
        } else {
            // Remove a little more than needed, or the next message would not fit again.
            let max_weight = self
                .estimated_tokens_for(percent_of(self.max_tokens, 75))
                .saturating_sub(self.fixed_tokens);
            Goal {
                max_weight,
                weigh: token_estimate::message_tokens,
            }
        };
        elide::elide(messages, goal)
    }

    /// Returns the messages with parts left out until they have at most that many estimated tokens, if they can.
    pub(super) fn shorten_to(&self, messages: &[Message], max_weight: u64) -> Vec<Message> {
        let weigh = token_estimate::message_tokens;
        elide::elide(messages, Goal { max_weight, weigh })
    }

    /// Explains why there is no smaller conversation than this one, and tells the user which action to take.
    pub(super) fn refusal_message(
        &self,
        smallest: &[Message],
        why_no_summary: Option<&str>,
    ) -> String {
        let summary = why_no_summary.map_or(String::new(), |why| format!(" (no summary: {why})"));
        if self.is_byte_limited() {
            let (before, after, most) = (self.bytes, self.bytes_with(smallest), self.bytes / 2);
            return format!(
                "the request has {before} bytes and can only be cut to {after}, where {most} are wanted: start a new \
                 session, or leave out images and long files"
            );
        }
        let (before, after, most) = (
            self.known_tokens,
            self.tokens_with(smallest),
            self.max_tokens,
        );
        let window = self
            .window
            .map_or(String::new(), |window| format!(" in a window of {window}"));
        format!(
            "the conversation has about {before} tokens and can only be cut to {after}, where {most} are wanted{window}\
             {summary}: start a new session, choose a model with a larger window, or leave out long files"
        )
    }

    fn tokens_with(&self, messages: &[Message]) -> u64 {
        self.known_tokens_for(
            self.fixed_tokens
                .saturating_add(token_estimate::messages_tokens(messages)),
        )
    }

    fn bytes_with(&self, messages: &[Message]) -> u64 {
        self.fixed_bytes
            + messages
                .iter()
                .map(token_estimate::message_bytes)
                .sum::<u64>()
    }
}

/// Returns that many percent of a number, rounded up.
pub(super) fn percent_of(of: u64, percent: u64) -> u64 {
    proportion(of, percent, 100)
}

/// Returns `number` times `by` divided by `through`, rounded up.
fn proportion(number: u64, by: u64, through: u64) -> u64 {
    let product = u128::from(number) * u128::from(by);
    u64::try_from(product.div_ceil(u128::from(through.max(1)))).unwrap_or(u64::MAX)
}
