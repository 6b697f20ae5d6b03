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
    estimate: u64,
    known: u64,
    /// The part of the estimate that is not conversation: system prompt and tools.
    fixed: u64,
    /// Maximum number of tokens, in the unit of `known`.
    limit: u64,
    /// The size of the request in bytes, with and without the conversation.
    bytes: u64,
    fixed_bytes: u64,
}

impl SizeBudget {
    pub(super) fn new(job: &Job<'_>) -> Self {
        let (request, window, reason) = (job.request, job.size.window, job.reason);
        let estimate = token_estimate::tokens(request).max(1);
        let proven = window.filter(|_| reason == CompactionReason::Overflow);
        let known = estimate
            .max(job.size.tokens)
            .max(proven.unwrap_or_default());
        let limit = window.map_or(known / 2, |window| {
            let answer = request.max_tokens.map_or(DEFAULT_OUTPUT_TOKENS, u64::from);
            window.saturating_sub(answer.min(window / 4))
        });
        let worth_it = match reason {
            CompactionReason::Manual => known.saturating_sub(1),
            _ => share(known, 90),
        };
        let bytes = token_estimate::bytes(request);
        let spoken: u64 = request
            .messages
            .iter()
            .map(token_estimate::message_bytes)
            .sum();
        Self {
            reason,
            window,
            estimate,
            known,
            fixed: token_estimate::tokens(request)
                .saturating_sub(token_estimate::messages_tokens(&request.messages)),
            limit: limit.min(worth_it),
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
    pub(super) fn scaled(&self, estimated: u64) -> u64 {
        proportion(estimated, self.known, self.estimate)
    }

    /// Converts actual tokens to estimated ones.
    pub(super) fn estimated(&self, tokens: u64) -> u64 {
        proportion(tokens, self.estimate, self.known)
    }

    /// Returns how many estimated tokens stay as they are: `keep`, at most 30 % of the window.
    pub(super) fn kept(&self, keep: u64) -> u64 {
        let most = share(self.window.unwrap_or(self.known), 30);
        self.estimated(keep.min(most))
    }

    /// Returns the maximum length of a quoted prompt, in bytes.
    pub(super) fn quote(&self) -> usize {
        let most = self.window.unwrap_or(self.known) / 4;
        usize::try_from(most.clamp(MIN_QUOTE_BYTES, MAX_QUOTE_BYTES)).unwrap_or(usize::MAX)
    }

    /// Returns the maximum number of tokens of a summary.
    pub(super) fn summary(&self, most: u32) -> u32 {
        let quarter = self.window.map_or(u64::MAX, |window| window / 4);
        most.min(u32::try_from(quarter).unwrap_or(u32::MAX)).max(1)
    }

    /// Returns the maximum number of tokens of a summary request, for a model whose own limit is not known.
    pub(super) const fn for_summariser(&self) -> u64 {
        self.known / 2
    }

    /// Returns whether a part of that many estimated tokens can be reduced enough to matter.
    pub(super) fn is_worth_summarising(&self, part: u64) -> bool {
        self.scaled(part) > share(self.known, 10)
            || (self.reason == CompactionReason::Manual && part > 0)
    }

    pub(super) fn fits(&self, messages: &[Message]) -> bool {
        if self.is_byte_limited() {
            return self.bytes_with(messages) <= self.bytes / 2;
        }
        self.tokens_with(messages) <= self.limit
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
    pub(super) fn elided(&self, messages: &[Message]) -> Vec<Message> {
        let goal = if self.is_byte_limited() {
            let most = share(self.bytes / 2, 90).saturating_sub(self.fixed_bytes);
            Goal {
                most,
                weigh: token_estimate::message_bytes,
            }
        } else {
            // Remove a little more than needed, or the next message would not fit again.
            let most = self
                .estimated(share(self.limit, 75))
                .saturating_sub(self.fixed);
            Goal {
                most,
                weigh: token_estimate::message_tokens,
            }
        };
        elide::elided(messages, goal)
    }

    /// Returns the messages with parts left out until they have at most that many estimated tokens, if they can.
    pub(super) fn shorten_to(&self, messages: &[Message], most: u64) -> Vec<Message> {
        let weigh = token_estimate::message_tokens;
        elide::elided(messages, Goal { most, weigh })
    }

    /// Explains why there is no smaller conversation than this one, and tells the user which action to take.
    pub(super) fn refusal(&self, smallest: &[Message], why_no_summary: Option<&str>) -> String {
        let summary = why_no_summary.map_or(String::new(), |why| format!(" (no summary: {why})"));
        if self.is_byte_limited() {
            let (before, after, most) = (self.bytes, self.bytes_with(smallest), self.bytes / 2);
            return format!(
                "the request has {before} bytes and can only be cut to {after}, where {most} are wanted: start a new \
                 session, or leave out images and long files"
            );
        }
        let (before, after, most) = (self.known, self.tokens_with(smallest), self.limit);
        let window = self
            .window
            .map_or(String::new(), |window| format!(" in a window of {window}"));
        format!(
            "the conversation has about {before} tokens and can only be cut to {after}, where {most} are wanted{window}\
             {summary}: start a new session, choose a model with a larger window, or leave out long files"
        )
    }

    fn tokens_with(&self, messages: &[Message]) -> u64 {
        self.scaled(
            self.fixed
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
pub(super) fn share(of: u64, percent: u64) -> u64 {
    proportion(of, percent, 100)
}

/// Returns `number` times `by` divided by `through`, rounded up.
fn proportion(number: u64, by: u64, through: u64) -> u64 {
    let product = u128::from(number) * u128::from(by);
    u64::try_from(product.div_ceil(u128::from(through.max(1)))).unwrap_or(u64::MAX)
}
