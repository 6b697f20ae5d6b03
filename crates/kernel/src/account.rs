//! Decides which accounts may be used, and until when others are blocked.
//!
//! A block says that requests with an account are pointless until a time, with the source of that time and the model,
//! if it is not for all.
//! Invariants: a guess blocks for an hour at most; a provider's statement outweighs a guess; one success proves that a
//! block is over.
//! Not here: keys (see the engine) and the storage of blocks (see the store).

use crate::Timestamp;
use crate::verdict::{Authority, Cause, Class, Hint, Scope, Verdict};
use serde::{Deserialize, Serialize};
use std::time::Duration;

const GUESSED_USAGE_BLOCK: Duration = Duration::from_secs(5 * 60);
const MAX_GUESSED_BLOCK: Duration = Duration::from_secs(60 * 60);

/// A block of an account until a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// The account.
    pub account: String,
    /// The model that is blocked; `None` means all.
    pub model: Option<String>,
    /// The cause of the failure.
    pub cause: Cause,
    /// The time at which the block began.
    pub since: Timestamp,
    /// The time from which a request may succeed again.
    pub until: Timestamp,
    /// The reliability of that time.
    pub authority: Authority,
}

impl Block {
    /// Returns the block that follows from a failure with this verdict, if the verdict is about the account.
    ///
    /// ```
    /// use outlast_kernel::account::Block;
    /// use outlast_kernel::failure::Failure;
    /// use outlast_kernel::{Timestamp, classify::classify};
    ///
    /// let now = Timestamp::default();
    /// let spent = Failure::http("openai", 402, "Insufficient credits", now);
    /// assert!(Block::from_verdict("work", "gpt-5.1", &classify(&spent), now).is_some());
    /// let busy = Failure::http("openai", 503, "Overloaded", now);
    /// assert!(Block::from_verdict("work", "gpt-5.1", &classify(&busy), now).is_none());
    /// ```
    pub fn from_verdict(
        account: &str,
        model: &str,
        verdict: &Verdict,
        now: Timestamp,
    ) -> Option<Self> {
        let guess = match verdict.cause {
            Cause::UsageLimit => GUESSED_USAGE_BLOCK,
            Cause::Billing | Cause::Auth | Cause::Permission => MAX_GUESSED_BLOCK,
            _ => return None,
        };
        let (until, authority) = match &verdict.hint {
            Some(hint) if hint.authority == Authority::Guessed => {
                (hint.not_before.min(now + MAX_GUESSED_BLOCK), hint.authority)
            }
            Some(hint) => (hint.not_before, hint.authority),
            None => (now + guess, Authority::Guessed),
        };
        let one_model = verdict.scope == Scope::Model || verdict.cause == Cause::Permission;
        Some(Self {
            account: account.to_owned(),
            model: one_model.then(|| model.to_owned()),
            cause: verdict.cause,
            since: now,
            until,
            authority,
        })
    }

    fn applies_to(&self, account: &str, model: &str) -> bool {
        self.account == account && self.model.as_deref().is_none_or(|own| own == model)
    }

    fn has_same_target(&self, other: &Self) -> bool {
        self.account == other.account && self.model == other.model
    }
}

/// All known blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocks(Vec<Block>);

impl Blocks {
    /// Records a block. A guess does not shorten a stated block.
    pub fn add(&mut self, block: Block) {
        match self
            .0
            .iter_mut()
            .find(|known| known.has_same_target(&block))
        {
            Some(known)
                if block.authority == Authority::Guessed
                    && known.authority != Authority::Guessed
                    && known.until > block.since => {}
            Some(known) => *known = block,
            None => self.0.push(block),
        }
    }

    /// Records that a call with that account, begun at that time, succeeded; returns whether that lifted a block. A
    /// block learnt after the call had begun may well be true all the same.
    pub fn clear_after_success(&mut self, account: &str, model: &str, begun: Timestamp) -> bool {
        let before = self.0.len();
        let proved_wrong = |block: &Block| block.applies_to(account, model) && block.since <= begun;
        self.0.retain(|block| !proved_wrong(block));
        self.0.len() != before
    }

    /// Removes expired blocks, and shortens guesses that a wrong clock has made too long.
    pub fn prune(&mut self, now: Timestamp) {
        self.0.retain(|block| block.until > now);
        let longest = now + MAX_GUESSED_BLOCK;
        for block in &mut self.0 {
            if block.authority == Authority::Guessed {
                block.until = block.until.min(longest);
            }
        }
    }

    /// Returns the block that applies to that account now, the longest of several.
    pub fn active_block(&self, account: &str, model: &str, now: Timestamp) -> Option<&Block> {
        let active = |block: &&Block| block.applies_to(account, model) && block.until > now;
        self.0.iter().filter(active).max_by_key(|block| block.until)
    }

    /// Returns all blocks.
    pub fn iter(&self) -> impl Iterator<Item = &Block> {
        self.0.iter()
    }
}

impl FromIterator<Block> for Blocks {
    fn from_iter<All: IntoIterator<Item = Block>>(blocks: All) -> Self {
        Self(blocks.into_iter().collect())
    }
}

/// The account to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice<'a> {
    /// No block applies to it.
    Free(&'a str),
    /// All accounts are blocked; this one will be free first.
    Blocked(&'a str, &'a Block),
}

/// Chooses among accounts, which come in order of preference. The account used before is kept while it is free: its
/// caches are warm. If all are blocked, the one that will be free first is still worth one request.
pub fn choose<'a>(
    accounts: &[&'a str],
    used_before: Option<&str>,
    blocked: impl Fn(&str) -> Option<&'a Block>,
) -> Option<Choice<'a>> {
    let same = accounts
        .iter()
        .filter(|account| used_before == Some(**account));
    let free = same
        .chain(accounts)
        .find(|account| blocked(account).is_none());
    if let Some(account) = free {
        return Some(Choice::Free(account));
    }
    let blocks = accounts
        .iter()
        .filter_map(|account| Some((*account, blocked(account)?)));
    // A limit passes by itself; whether a key is accepted again cannot be predicted.
    let is_hopeless = |block: &Block| block.cause.class() != Class::Transient;
    blocks
        .min_by_key(|(_, block)| (is_hopeless(block), block.until))
        .map(|(account, block)| Choice::Blocked(account, block))
}

/// Returns the verdict when all accounts are blocked: the wait is for the first of them.
pub fn with_earliest_unblock(verdict: &Verdict, first: &Block) -> Verdict {
    let sooner = verdict
        .hint
        .as_ref()
        .is_none_or(|hint| first.until < hint.not_before);
    let hint = Hint {
        not_before: first.until,
        source: "the account that is free first".to_owned(),
        authority: first.authority,
    };
    Verdict {
        hint: if sooner {
            Some(hint)
        } else {
            verdict.hint.clone()
        },
        ..verdict.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classify::classify;
    use crate::failure::Failure;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn block(account: &str, until: u64, authority: Authority) -> Block {
        Block {
            account: account.to_owned(),
            model: None,
            cause: Cause::UsageLimit,
            since: at(0),
            until: at(until),
            authority,
        }
    }

    fn judged(status: u16, message: &str) -> Verdict {
        classify(&Failure::http("p", status, message, at(100)))
    }

    #[test]
    fn only_account_failures_block_the_account() {
        let table = [
            (
                429,
                "You have hit your usage limit. Try again in 2 hours.",
                Some(7300),
            ),
            (429, "You have hit your usage limit.", Some(400)),
            (402, "Insufficient credits", Some(3700)),
            (401, "Invalid API key", Some(3700)),
            (403, "You may not use this", Some(3700)),
            (429, "Rate limit reached, try again in 20s", None),
            (529, "Overloaded", None),
            (400, "prompt is too long", None),
        ];
        for (status, message, until) in table {
            let block = Block::from_verdict("a", "m", &judged(status, message), at(100));
            assert_eq!(block.map(|block| block.until), until.map(at), "{message}");
        }
    }

    #[test]
    fn a_denied_model_blocks_that_model_only() {
        let denied =
            Block::from_verdict("a", "m", &judged(403, "You may not use this"), at(0)).unwrap();
        let blocks: Blocks = [denied].into_iter().collect();
        assert!(blocks.active_block("a", "m", at(100)).is_some());
        assert!(blocks.active_block("a", "other", at(100)).is_none());
    }

    #[test]
    fn guessed_time_does_not_shorten_stated_block() {
        let mut blocks = Blocks::default();
        blocks.add(block("a", 5000, Authority::Stated));
        blocks.add(block("a", 300, Authority::Guessed));
        assert_eq!(
            blocks.active_block("a", "m", at(1)).unwrap().until,
            at(5000)
        );
        blocks.add(block("a", 900, Authority::Stated));
        assert_eq!(blocks.active_block("a", "m", at(1)).unwrap().until, at(900));
    }

    #[test]
    fn block_is_cleared_by_success_or_expiry() {
        let mut blocks: Blocks = [block("a", 50, Authority::Stated)].into_iter().collect();
        assert!(blocks.active_block("a", "m", at(50)).is_none());
        assert!(!blocks.clear_after_success("other", "m", at(9)));
        assert!(
            blocks.clear_after_success("a", "m", at(9))
                && !blocks.clear_after_success("a", "m", at(9))
        );
        // A failure learnt while the call was under way is not disproved by it.
        let mut later: Blocks = [Block {
            since: at(10),
            ..block("a", 50, Authority::Stated)
        }]
        .into_iter()
        .collect();
        assert!(!later.clear_after_success("a", "m", at(9)));
        blocks.add(block("a", 50, Authority::Stated));
        blocks.prune(at(50));
        assert_eq!(blocks.iter().count(), 0);
    }

    #[test]
    fn free_account_is_chosen_and_current_one_preferred() {
        let blocks: Blocks = [
            block("a", 900, Authority::Stated),
            block("b", 300, Authority::Guessed),
        ]
        .into_iter()
        .collect();
        let choose = |accounts: &[&'static str], before| match choose(accounts, before, |account| {
            blocks.active_block(account, "m", at(1))
        })
        .unwrap()
        {
            Choice::Free(account) => (account, None),
            Choice::Blocked(account, block) => (account, Some(block.until)),
        };
        assert_eq!(choose(&["a", "c", "d"], None), ("c", None));
        assert_eq!(choose(&["a", "c", "d"], Some("d")), ("d", None));
        assert_eq!(choose(&["a", "c", "d"], Some("a")), ("c", None));
        assert_eq!(choose(&["a", "b"], Some("a")), ("b", Some(at(300))));
        let revoked = Block {
            cause: Cause::Auth,
            ..block("b", 300, Authority::Guessed)
        };
        let blocks: Blocks = [block("a", 900, Authority::Stated), revoked]
            .into_iter()
            .collect();
        let first = super::choose(&["a", "b"], None, |account| {
            blocks.active_block(account, "m", at(1))
        });
        assert!(matches!(first, Some(Choice::Blocked("a", _))), "{first:?}");
    }

    #[test]
    fn earliest_unblock_replaces_a_later_hint() {
        let verdict = judged(429, "You have hit your usage limit. Try again in 2 hours.");
        let sooner = with_earliest_unblock(&verdict, &block("b", 300, Authority::Guessed));
        let hint = sooner.hint.unwrap();
        assert_eq!(
            (hint.not_before, hint.authority),
            (at(300), Authority::Guessed)
        );
        let later = with_earliest_unblock(&verdict, &block("b", 90_000, Authority::Stated));
        assert_eq!(later, verdict);
    }
}
