//! Compacts the conversation of a turn: before a call that would not fit, or after one that did not.
//!
//! Invariants: a compaction takes effect once it is journaled; a failed one changes nothing. An overflow is compacted once,
//! and not again before a call has succeeded.

use super::Runner;
use crate::compaction::{CompactedConversation, Compactor, Job, Outcome};
use crate::journal::Entry;
use crate::token_estimate;
use outlast_dialect::Message;
use outlast_kernel::attempt::{Effects, Event, step};
use outlast_kernel::decision::Remedies;
use outlast_kernel::event::{Body, CompactionReason};
use outlast_kernel::failure::ClassifiedFailure;
use outlast_kernel::fallback::Exclusions;
use outlast_kernel::model_info::overflow::stated_window;
use outlast_kernel::verdict::{Cause, Class};
use std::sync::Arc;

impl Runner<'_> {
    /// Offers the remedy of a compaction, if it may help against that failure.
    pub(super) fn consider_compaction(
        &mut self,
        judged: &ClassifiedFailure,
        remedies: &mut Remedies,
    ) {
        // The window that the provider states counts before the known one.
        if judged.verdict.cause == Cause::ContextOverflow {
            let stated = stated_window(&judged.failure);
            self.turn.traits.window = stated.or(self.turn.traits.window);
        }
        let size = self.context_size();
        let helps =
            |compactor: &dyn Compactor| compactor.reason_for(judged, &self.turn.request, size);
        let reason = self.turn.compaction.and_then(helps);
        let is_new = self.compacted_sizes.is_none() && self.continuation.is_none();
        self.compaction_reason = reason.filter(|_| is_new);
        remedies.compact = self.compaction_reason.is_some();
        if let Some((before, after)) = self.compacted_sizes.filter(|_| reason.is_some()) {
            self.failure_note = Some(still_too_large(before, after));
        }
        if reason.is_none() && judged.verdict.cause == Cause::PayloadTooLarge {
            self.failure_note = Some(self.payload_size_note());
        }
    }

    /// Makes a failure final if the upload was too slow although the conversation was compacted: it would be too slow again.
    pub(super) fn final_if_compacted(
        &self,
        judged: Arc<ClassifiedFailure>,
    ) -> Arc<ClassifiedFailure> {
        let compactor = self
            .turn
            .compaction
            .filter(|_| self.compacted_sizes.is_some());
        let reason = compactor
            .and_then(|it| it.reason_for(&judged, &self.turn.request, self.context_size()));
        if reason != Some(CompactionReason::SlowUpload) {
            return judged;
        }
        let mut judged = Arc::unwrap_or_clone(judged);
        judged.failure.retryable = Some(false);
        Arc::new(judged)
    }

    fn payload_size_note(&self) -> String {
        let (all, images) = (
            token_estimate::request_bytes(&self.turn.request),
            token_estimate::image_bytes(&self.turn.request),
        );
        format!(
            "the provider takes fewer bytes, whatever the tokens: the request has about {} KiB, {} KiB of them pictures; \
             take out pictures or long outputs, or begin a new session",
            all.div_ceil(1024),
            images.div_ceil(1024)
        )
    }

    /// Compacts a conversation that comes close to the window of the model. If that fails, it is sent as it is.
    pub(super) async fn compact_if_due(&mut self) -> Result<(), Effects> {
        let size = self.context_size();
        let is_due = |compactor: &dyn Compactor| compactor.should_compact(size);
        if self.continuation.is_none() && self.turn.compaction.is_some_and(is_due) {
            self.compact(CompactionReason::Threshold).await;
            if self.turn.control.is_aborted() {
                return Err(self.abort());
            }
        }
        Ok(())
    }

    /// Compacts a conversation that did not fit. If that fails, the turn waits for a failure that may pass by itself.
    pub(super) async fn compact_after_failure(
        &mut self,
        failed: Option<Arc<ClassifiedFailure>>,
    ) -> Effects {
        let reason = self.compaction_reason.take();
        let before = self.context_size().tokens;
        let is_smaller = match reason {
            Some(reason) => self.compact(reason).await,
            None => false,
        };
        self.compacted_sizes = is_smaller.then(|| (before, self.context_size().tokens));
        if self.turn.control.is_aborted() {
            return self.abort();
        }
        let may_pass = |judged: &Arc<ClassifiedFailure>| judged.verdict.class() == Class::Transient;
        match failed.filter(may_pass) {
            _ if is_smaller => step(self.driver.state_mut(), Event::RemedyDone),
            None => step(self.driver.state_mut(), Event::RemedyFailed),
            Some(failed) => {
                let now = self.turn.clock.now();
                let seen = Arc::clone(&failed);
                self.schedule_recovery(failed, &seen, Remedies::NONE, now)
            }
        }
    }

    async fn compact(&mut self, reason: CompactionReason) -> bool {
        let Some(compactor) = self.turn.compaction else {
            return false;
        };
        let size = self.context_size();
        let before = size.tokens;
        self.emitter.emit(Body::AutoCompactionStarted {
            reason,
            tokens: before,
        });
        let nothing = Exclusions::default();
        let models = self.turn.models.as_ref();
        let job = Job {
            request: &self.turn.request,
            size,
            reason,
            focus: None,
            budget: self.driver.state().prompt().clone(),
            unavailable_models: models.map_or(&nothing, |models| &models.availability),
            cancel: self.turn.control.token(),
            emit: &mut |body| self.emitter.emit(body),
        };
        let outcome = compactor.compact(job).await;
        let (summary, error) = match self.apply_compaction(outcome, reason, before).await {
            Ok(summary) => (summary, None),
            Err(why) => (None, Some(why)),
        };
        let is_smaller = error.is_none();
        if !is_smaller {
            self.failure_note.clone_from(&error);
        }
        self.emitter.emit(Body::AutoCompactionEnded {
            reason,
            before,
            after: self.context_size().tokens,
            will_retry: is_smaller && reason != CompactionReason::Threshold,
            summary,
            error,
        });
        is_smaller
    }

    /// Continues with a compacted conversation. Returns the summary of the part that was left out.
    async fn apply_compaction(
        &mut self,
        outcome: Outcome,
        reason: CompactionReason,
        before: u64,
    ) -> Result<Option<String>, String> {
        let Outcome {
            result,
            usage,
            budget,
        } = outcome;
        self.completion.add_usage(usage);
        step(self.driver.state_mut(), Event::PromptBudgetUpdated(budget));
        self.reset_cost_baseline();
        let CompactedConversation {
            messages,
            size: after,
            model,
        } = result?;
        let first = messages.first().filter(|_| model.is_some());
        let summary = first.map(Message::text);
        self.turn.request.messages.clone_from(&messages);
        self.billed_tokens = None;
        let spent = Some(self.spent());
        self.journal_writer.record(Entry::Compacted {
            reason,
            messages,
            before,
            after,
            model,
            usage,
            spent,
        });
        self.commit().await;
        Ok(summary)
    }
}

fn still_too_large(before: u64, after: u64) -> String {
    format!(
        "it is too large although it was made smaller, from about {before} to about {after} tokens; begin a new \
         session, or choose a model that can read more"
    )
}
