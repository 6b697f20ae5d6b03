//! The frames of a compaction.

use super::PiEncoder;
use super::frame::{Compacted, Files, Frame, Retry, RetryDetails, reason_name};
use crate::event_encoder::JsonLines;
use crate::pi_rpc::history::NO_SUMMARY_TEXT;
use crate::pi_rpc::message::ErrorDetails;
use outlast_kernel::Timestamp;
use outlast_kernel::event::Body;
use outlast_kernel::time::millis;

/// The error text of a compaction that the user cancelled ends with this.
const CANCELLED: &str = "cancelled";

impl PiEncoder {
    pub(super) fn translate_compaction(
        &mut self,
        time: Timestamp,
        body: Body,
        out: &mut JsonLines,
    ) {
        match body {
            Body::AutoCompactionStarted { reason: why, .. } => {
                self.run.finish_step(out);
                out.push(&Frame::CompactionStart {
                    reason: reason_name(why),
                });
            }
            Body::AutoCompactionRetry {
                attempt,
                retry_at,
                cause,
                message,
            } => {
                self.is_retrying_summary = true;
                let delay = retry_at.since(time);
                out.push(&Frame::SummarizationRetryScheduled(Retry {
                    attempt,
                    max_attempts: attempt,
                    delay_ms: millis(delay),
                    error_message: &message,
                    outlast: RetryDetails {
                        retry_at,
                        details: ErrorDetails::of(cause, None),
                    },
                }));
            }
            ended @ Body::AutoCompactionEnded { .. } => self.end_compaction(ended, out),
            _ => {}
        }
    }

    fn end_compaction(&mut self, ended: Body, out: &mut JsonLines) {
        let Body::AutoCompactionEnded {
            reason: why,
            before,
            after,
            will_retry,
            summary,
            error,
        } = ended
        else {
            return;
        };
        if std::mem::take(&mut self.is_retrying_summary) {
            out.push(&Frame::SummarizationRetryFinished);
        }
        let result = error.is_none().then(|| Compacted {
            summary: summary.as_deref().unwrap_or(NO_SUMMARY_TEXT),
            // The compacted conversation is recorded as a whole, so no earlier entry is kept.
            first_kept_entry_id: "",
            tokens_before: before,
            estimated_tokens_after: after,
            details: Files::default(),
        });
        let aborted = error.as_ref().is_some_and(|why| why.ends_with(CANCELLED));
        out.push(&Frame::CompactionEnd {
            reason: reason_name(why),
            result,
            aborted,
            will_retry,
            error_message: error.as_deref().filter(|_| !aborted),
        });
    }
}
