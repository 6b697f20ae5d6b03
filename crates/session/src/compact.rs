//! Compacts the conversation on request.
//!
//! Invariants: prompts that arrive meanwhile wait and are not lost; nothing changes until the result is in the journal.

use super::turns::RunGuard;
use super::{Error, Session};
use outlast_engine::CancellationToken;
use outlast_engine::compaction::{CompactedConversation, Job, Outcome, Size};
use outlast_engine::journal::Entry;
use outlast_engine::token_estimate;
use outlast_kernel::budget::{Limits, Prompt};
use outlast_kernel::event::{Body, CompactionReason};

/// The result of a compaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// Estimated number of tokens before.
    pub before: u64,
    /// Estimated number of tokens after.
    pub after: u64,
    /// The summary that replaces the older part, if a model wrote one.
    pub summary: Option<String>,
    /// The model that wrote the summary, if any.
    pub model: Option<String>,
}

impl Session {
    /// Compacts the conversation now; `focus` is the topic that the summary should concentrate on.
    pub async fn compact(&self, focus: Option<&str>, limits: Limits) -> Result<Compacted, Error> {
        let abort = CancellationToken::new();
        self.compact_cancellable(abort, focus, limits).await
    }

    /// Compacts the conversation now, until `abort` is cancelled.
    pub async fn compact_cancellable(
        &self,
        abort: CancellationToken,
        focus: Option<&str>,
        limits: Limits,
    ) -> Result<Compacted, Error> {
        let _others_wait = self.compaction_lock.lock().await;
        let running = self.acquire_run_cancellable(abort)?;
        if self.unfinished_turn().is_some() {
            return Err(self.unfinished_error());
        }
        let request = running.setup.request(self.messages());
        let before = token_estimate::request_tokens(&request);
        let reason = CompactionReason::Manual;
        self.publish(Body::AutoCompactionStarted {
            reason,
            tokens: before,
        });
        let budget = Prompt::new(limits);
        let result = self
            .run_compaction(&running, request, budget, focus, before)
            .await;
        let (after, summary, error) = match &result {
            Ok(compacted) => (compacted.after, compacted.summary.clone(), None),
            Err(error) => (before, None, Some(error.to_string())),
        };
        let will_retry = false;
        self.publish(Body::AutoCompactionEnded {
            reason,
            before,
            after,
            will_retry,
            summary,
            error,
        });
        result
    }

    async fn run_compaction(
        &self,
        running: &RunGuard<'_>,
        request: outlast_dialect::Request,
        budget: Prompt,
        focus: Option<&str>,
        before: u64,
    ) -> Result<Compacted, Error> {
        let Some(compactor) = &running.setup.compaction else {
            let why = "compaction is switched off".to_owned();
            return Err(Error::NotCompacted { why });
        };
        let left = self.journal.with_state(|standing| standing.models.clone());
        let mut say = |body: Body| self.publish(body);
        let job = Job {
            request: &request,
            size: Size {
                tokens: before,
                window: running.setup.traits.window,
            },
            reason: CompactionReason::Manual,
            focus,
            budget,
            unavailable_models: &left,
            cancel: running.abort.clone(),
            emit: &mut say,
        };
        let Outcome { result, usage, .. } = compactor.compact(job).await;
        let CompactedConversation {
            messages,
            size: after,
            model,
        } = result.map_err(|why| Error::NotCompacted { why })?;
        let first = messages.first().filter(|_| model.is_some());
        let compacted = Compacted {
            before,
            after,
            summary: first.map(outlast_dialect::Message::text),
            model: model.clone(),
        };
        let entry = Entry::Compacted {
            reason: CompactionReason::Manual,
            messages,
            before,
            after,
            model,
            usage,
            spent: None,
        };
        let written = self.write_between_turns(vec![entry]).await;
        written.map_err(|error| {
            let why = error.to_string();
            Error::NotCompacted { why }
        })?;
        let usage = self.journal.with_state(|standing| standing.usage);
        self.event_hub
            .update_snapshot(|snapshot| snapshot.usage = usage);
        Ok(compacted)
    }
}
