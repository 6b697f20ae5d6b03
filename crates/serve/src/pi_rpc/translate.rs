//! Encodes events in the pi protocol.
//!
//! A retry is a turn of its own within the run: a failed attempt ends its message with `error`, and the run ends once,
//! when no turn follows by itself. Invariants: everything that begins also ends, whatever the sequence of events (see
//! `run`); no wait is silent: events without a frame become a notice or a status. Not here: replies to commands.

mod compaction;
mod frame;
mod notices;
mod partial_completion;
mod run;
mod tools;

use super::message::{ErrorDetails, Stop, User};
use super::models::Models;
use crate::event_encoder::{EventEncoder, JsonLines};
use frame::{Frame, Retry, RetryDetails};
use notices::Notices;
use outlast_kernel::Timestamp;
use outlast_kernel::event::{Body, Event, TurnStatus};
use outlast_kernel::verdict::{Cause, Class};
use partial_completion::CompletionEnd;
use run::{Problem, Run};

/// The error of a failed attempt without a known cause.
const ATTEMPT_FAILED: &str = "the attempt failed";
/// Encodes events in the pi protocol.
pub struct PiEncoder {
    models: Models,
    /// Returns the known models, if they can change.
    model_source: Option<Box<dyn Fn() -> Models + Send>>,
    run: Run,
    notices: Notices,
    /// The cause of a failure that is known before the failure itself.
    last_block_cause: Option<Cause>,
    /// Whether the summary is being retried.
    is_retrying_summary: bool,
}

impl PiEncoder {
    /// Creates an encoder with fixed models, the one in use first.
    pub fn new(models: impl Into<Models>) -> Self {
        let models = models.into();
        Self {
            run: Run::new(models.in_use()),
            models,
            model_source: None,
            notices: Notices::default(),
            last_block_cause: None,
            is_retrying_summary: false,
        }
    }

    /// Creates an encoder that asks for the known models whenever a turn begins.
    pub fn with_model_source(known: impl Fn() -> Models + Send + 'static) -> Self {
        Self {
            model_source: Some(Box::new(known)),
            ..Self::new(Models::default())
        }
    }
}

impl EventEncoder for PiEncoder {
    fn encode(&mut self, event: Event, out: &mut JsonLines) {
        self.run.now = event.time.as_millis();
        self.fail_open_attempt(&event.body, out);
        self.notices.notify(&event.body, out);
        self.translate(event.time, event.body, out);
    }

    fn encode_run_end(&mut self, aborted: bool, out: &mut JsonLines) {
        self.notices.end_wait(out);
        self.last_block_cause = None;
        self.run.end(aborted, out);
    }

    fn merge_threshold(&self) -> usize {
        0
    }
}

impl PiEncoder {
    /// Ends the attempt in progress, if the event implies that it has failed.
    fn fail_open_attempt(&mut self, body: &Body, out: &mut JsonLines) {
        let trouble = self.last_block_cause;
        let phrase = |cause: Option<Cause>| {
            let cause = cause.or(trouble);
            let message = cause.map_or(ATTEMPT_FAILED, Cause::phrase).to_owned();
            let details = cause.map(|cause| ErrorDetails::of(cause, None));
            Problem { message, details }
        };
        let problem = match body {
            Body::ModelSwitched { cause, .. } | Body::Held { cause, .. } => phrase(*cause),
            Body::Corrected { cause, message, .. } => Problem {
                message: message.clone(),
                details: Some(ErrorDetails::of(*cause, None)),
            },
            Body::AutoCompactionStarted { reason, .. } => {
                let overflow = frame::reason_name(*reason) == "overflow";
                phrase(overflow.then_some(Cause::ContextOverflow))
            }
            Body::Account { .. } | Body::AttemptStarted { .. } | Body::Input { .. } => phrase(None),
            _ => return,
        };
        if self.run.has_partial() {
            self.run.fail(problem, out);
        }
    }

    fn translate(&mut self, time: Timestamp, body: Body, out: &mut JsonLines) {
        match body {
            Body::Start { provider, model } => {
                if let Some(known) = &self.model_source {
                    self.models = known();
                }
                self.run.model = self.models.find(&provider, &model);
            }
            Body::ModelSwitched { to, .. } => self.set_model(&to),
            Body::Input { text } => self.run.input(User::from_text(text, time), out),
            Body::AttemptStarted { .. } => {
                self.last_block_cause = None;
                self.notices.end_wait(out);
                self.run.begin_attempt(out);
            }
            Body::AccountBlocked { cause, .. } => self.last_block_cause = Some(cause),
            Body::Held { until, cause } => self.notices.wait(until, cause, out),
            Body::StepComplete { model, stop_reason } => {
                self.set_model(&model);
                let stop = Stop::from(stop_reason);
                let problem = stop.problem();
                let ending = CompletionEnd {
                    problem,
                    ..CompletionEnd::without_error(stop)
                };
                self.run.complete(ending, out);
            }
            Body::QueueChanged {
                steering,
                follow_up,
            } => out.push(&Frame::QueueUpdate {
                steering: &steering,
                follow_up: &follow_up,
            }),
            Body::Renamed { title } => out.push(&Frame::SessionInfoChanged { name: &title }),
            Body::Sealed { status } => self.seal(status, out),
            body => self.translate_completion(time, body, out),
        }
    }

    fn translate_completion(&mut self, time: Timestamp, body: Body, out: &mut JsonLines) {
        match body {
            Body::TextDelta { text } if !text.is_empty() => {
                self.run.open_partial(out).text(&text, out)
            }
            Body::ReasoningDelta { text } if !text.is_empty() => {
                self.run.open_partial(out).thinking(&text, out);
            }
            Body::ReasoningDone(reasoning) => {
                self.run.open_partial(out).finish_thinking(reasoning, out)
            }
            Body::ToolCall(call) => self.run.open_partial(out).call(call, out),
            Body::Usage(usage) => {
                let used = self.run.model.price(usage);
                if let Some(answer) = self.run.partial_mut() {
                    answer.message.usage = used;
                }
            }
            Body::Retracted { .. } => self.run.retract(),
            Body::Seam { .. } => self.run.continue_interrupted(out),
            Body::ToolStarted { id, name } => self.start_tool(id, name, out),
            Body::ToolResult {
                id,
                output,
                is_error,
            } => {
                let result = outlast_dialect::ToolResult {
                    id,
                    output,
                    is_error,
                };
                self.end_tool(result, out);
            }
            body => self.translate_failure(time, body, out),
        }
    }

    fn translate_failure(&mut self, time: Timestamp, body: Body, out: &mut JsonLines) {
        match body {
            Body::RetryScheduled {
                attempt,
                max_attempts,
                delay_ms,
                retry_at,
                cause,
                message,
                code,
            } => {
                let details = ErrorDetails::of(cause, code);
                let retry = Retry {
                    attempt,
                    max_attempts: max_attempts.unwrap_or(attempt),
                    delay_ms,
                    error_message: &message,
                    outlast: RetryDetails {
                        retry_at,
                        details: details.clone(),
                    },
                };
                let problem = Problem {
                    message: message.clone(),
                    details: Some(details),
                };
                self.run.fail(problem, out);
                out.push(&Frame::AutoRetryStart(retry));
            }
            Body::RetryEnded {
                success,
                attempt,
                error,
            } => out.push(&Frame::AutoRetryEnd {
                success,
                attempt,
                final_error: error.as_deref(),
            }),
            Body::Error {
                class,
                cause,
                message,
                code,
                reason,
            } => {
                let details = Some(ErrorDetails {
                    class,
                    reason: Some(reason),
                    retryable: class == Class::Transient,
                    ..ErrorDetails::of(cause, code)
                });
                self.run.end_with_error(Problem { message, details }, out);
            }
            body => self.translate_compaction(time, body, out),
        }
    }

    // --- Events that take several steps ---

    /// Sets the model in use, at whichever provider has it.
    fn set_model(&mut self, model: &str) {
        if !model.is_empty() && model != self.run.model.model {
            self.run.model = self.models.find(&self.run.model.provider, model);
        }
    }

    fn seal(&mut self, status: TurnStatus, out: &mut JsonLines) {
        self.notices.end_wait(out);
        match status {
            TurnStatus::Completed => self.run.stop(Stop::Stop, out),
            TurnStatus::Aborted => self.run.stop(Stop::Aborted, out),
            TurnStatus::Error => {
                let problem = Problem {
                    message: ATTEMPT_FAILED.to_owned(),
                    details: None,
                };
                self.run.fail(problem, out);
            }
        }
    }
}

#[cfg(test)]
#[path = "translate_tests.rs"]
pub(in crate::pi_rpc) mod tests;
