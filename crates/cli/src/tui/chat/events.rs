//! Applies events of the session to the chat.

use super::{Chat, Turn};
use crate::output::progress::event_lines;
use crate::tui::activity::{Activity, Retrying};
use crate::tui::transcript::Tone;
use outlast_kernel::Timestamp;
use outlast_kernel::event::{Body, TurnStatus};
use outlast_kernel::verdict::Cause;
use std::ops::Range;

impl Chat {
    pub(super) fn handle_event(&mut self, body: &Body, now: Timestamp) {
        match body {
            Body::Start { model, .. } => {
                self.has_pending_message = false;
                self.turn = Turn {
                    is_running: true,
                    first_model: model.clone(),
                    first_block: self.transcript.len(),
                    ..Turn::default()
                };
                self.status.model.clone_from(model);
                self.activity = Activity::Working { since: now };
            }
            Body::Input { text } => match self.replays_left.checked_sub(1) {
                Some(left) => self.replays_left = left,
                None => self.transcript.user(text),
            },
            Body::AttemptStarted { attempt } => {
                self.transcript.settle();
                let begins = (*attempt, self.transcript.len());
                self.turn.attempts.push(begins);
                self.activity = Activity::Working { since: now };
            }
            Body::TextDelta { text } => self.transcript.answer(text),
            Body::ReasoningDelta { text } => self.transcript.thought(text),
            Body::ToolCall(call) => self.transcript.call(call),
            Body::ToolStarted { id, .. } => self.transcript.tool_started(id),
            Body::ToolResult {
                id,
                output,
                is_error,
            } => self.transcript.tool_ended(id, output, *is_error),
            Body::Retracted { attempt } => {
                self.transcript.retract(self.blocks_of_attempt(*attempt))
            }
            Body::Seam { .. } => {
                self.push_event_line(body, now);
                self.transcript.continue_answer();
            }
            Body::StepComplete { .. } => {
                self.transcript.settle();
                self.activity = Activity::Working { since: now };
            }
            Body::Sealed { status } => self.finish_turn(*status),
            body => self.state_event(body, now),
        }
    }

    /// Returns the blocks of an attempt. The parts of a turn from an earlier process come before the first one.
    fn blocks_of_attempt(&self, attempt: u32) -> Range<usize> {
        let Turn {
            attempts,
            first_block,
            ..
        } = &self.turn;
        let known = attempts.iter().position(|(number, _)| *number == attempt);
        let begins = known.and_then(|at| attempts.get(at));
        let next = attempts.get(known.map_or(0, |at| at + 1));
        let end = next.map_or(self.transcript.len(), |(_, at)| *at);
        begins.map_or(*first_block, |(_, at)| *at)..end
    }

    /// Updates the activity line and the status line.
    fn state_event(&mut self, body: &Body, now: Timestamp) {
        match body {
            Body::QueueChanged {
                steering,
                follow_up,
            } => self.queued = steering.iter().chain(follow_up).cloned().collect(),
            Body::Account { name } => self.status.account = Some(name.clone()),
            Body::Usage(usage) => {
                self.status.context = usage.total_input().saturating_add(usage.output)
            }
            Body::ModelSwitched { to, .. } => {
                self.status.model.clone_from(to);
                self.push_event_line(body, now);
            }
            Body::AutoCompactionStarted { .. } => {
                self.activity = Activity::Compacting { since: now };
                self.push_event_line(body, now);
            }
            Body::AutoCompactionEnded { after, error, .. } => {
                if error.is_none() {
                    self.status.context = *after;
                }
                self.activity = match self.turn.is_running {
                    true => Activity::Working { since: now },
                    false => Activity::Idle,
                };
                self.push_event_line(body, now);
            }
            Body::Held { until, cause } => self.hold_at_gate(*until, *cause, now),
            Body::RetryScheduled { .. } | Body::RetryEnded { .. } | Body::Error { .. } => {
                self.failure_event(body);
            }
            body => self.push_event_line(body, now),
        }
    }

    fn failure_event(&mut self, body: &Body) {
        match body {
            Body::RetryScheduled {
                attempt,
                max_attempts,
                retry_at,
                cause,
                message,
                code,
                ..
            } => {
                self.transcript.settle();
                let failed = failure_line(*cause, message, code.as_deref());
                self.transcript.notice(Tone::Warning, &failed);
                self.status.retries += 1;
                let retrying = Retrying {
                    attempt: *attempt,
                    max_attempts: *max_attempts,
                    at: *retry_at,
                    early: None,
                };
                self.turn.retry = Some(retrying.clone());
                self.activity = Activity::Retrying(retrying);
            }
            Body::RetryEnded { success: true, .. } => self.turn.retry = None,
            Body::RetryEnded {
                success: false,
                attempt,
                error,
            } => {
                let error = error.as_deref().unwrap_or_default();
                let says = format!("Retry failed after {attempt} attempts: {error}");
                self.transcript.notice(Tone::Error, &says);
                self.turn.has_reported_failure = true;
                self.turn.retry = None;
            }
            // A failed retry chain has already reported its error.
            Body::Error {
                cause,
                message,
                code,
                reason,
                ..
            } if !self.turn.has_reported_failure => {
                let failed = failure_line(*cause, message, code.as_deref());
                self.transcript
                    .notice(Tone::Error, &format!("{failed}: {reason}"));
            }
            _ => {}
        }
    }

    /// Applies a hold of the gate. Within a retry chain the hold moves the retry, also after the failure of a call that
    /// the gate had admitted early.
    fn hold_at_gate(&mut self, until: Timestamp, cause: Option<Cause>, now: Timestamp) {
        if let (Activity::Working { .. }, Some(retry)) = (&self.activity, &self.turn.retry) {
            self.activity = Activity::Retrying(Retrying {
                at: until,
                early: None,
                ..retry.clone()
            });
            return;
        }
        match &mut self.activity {
            Activity::Retrying(retrying) if retrying.at <= now => {
                retrying.at = until;
                retrying.early = None;
            }
            Activity::Retrying(retrying) => retrying.early = Some(until),
            doing => *doing = Activity::Queued { until, cause },
        }
    }

    fn finish_turn(&mut self, status: TurnStatus) {
        self.transcript.seal();
        self.activity = Activity::Idle;
        self.question = None;
        if status == TurnStatus::Aborted {
            self.transcript.notice(Tone::Faint, "Interrupted.");
        }
    }

    /// Adds the line for an event to the transcript.
    fn push_event_line(&mut self, body: &Body, now: Timestamp) {
        if let Some(line) = event_lines::line(body, &self.turn.first_model, now) {
            let tone = match line.starts_with('●') {
                true => Tone::Faint,
                false => Tone::Warning,
            };
            self.transcript.notice(tone, &line);
        }
    }
}

/// Returns the error in one line.
fn failure_line(cause: Cause, message: &str, code: Option<&str>) -> String {
    let phrase = cause.phrase();
    let code = code.map_or(String::new(), |code| format!(" ({code})"));
    let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
    match message.is_empty() {
        true => format!("⚠ {phrase}{code}"),
        false => format!("⚠ {phrase}: {message}{code}"),
    }
}
