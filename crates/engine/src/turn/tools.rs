//! Runs the tool calls of a step.
//!
//! Invariants: a call is journaled as started before it starts; every call gets exactly one result, in order, so that
//! the next request is always well-formed; a call that an earlier process started is run again only if that does no
//! harm.

use super::Runner;
use super::call::sleep_until;
use crate::CancellationToken;
use crate::journal::Entry;
use crate::tools::{Effect, Output, Toolbox};
use outlast_dialect::{Message, Part, Role, ToolResult};
use outlast_kernel::attempt::Outcome;
use outlast_kernel::event::{Body, StopReason, ToolCall};
use std::time::Duration;

/// The time after which a tool that ignores its cancellation is abandoned.
const TOOL_STOP_TIMEOUT: Duration = Duration::from_millis(230);

const INTERRUPTED: &str = "it was interrupted by a restart and may have partly run, or may still be running; it was not run again";
const CANCELLED: &str = "it was not run: the turn was cancelled before it began";
const DEADLINE_PASSED: &str = "it was not run: the time for this prompt was over before it began";
const ABANDONED: &str = "it was interrupted and may have partly run";

/// A call of the last completion, and its progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutstandingCall {
    /// The call.
    pub call: ToolCall,
    /// The call's progress.
    pub progress: CallProgress,
}

/// The progress of a tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallProgress {
    /// The call has not started.
    NotStarted,
    /// The call started, and its end is unknown.
    Started(Effect),
    /// The call is finished.
    Finished(Output),
}

impl Runner<'_> {
    /// Returns the calls of the last completion, if they are to be run.
    pub(super) fn calls_to_run(&self) -> Option<Vec<OutstandingCall>> {
        self.turn.tools?;
        let runs = |reason| !matches!(reason, StopReason::Length | StopReason::Refusal);
        if !self.completion.stop_reason.is_some_and(runs) {
            return None;
        }
        let calls = self.completion.parts.iter().filter_map(|part| match part {
            Part::ToolCall(call) => Some(OutstandingCall {
                call: call.clone(),
                progress: CallProgress::NotStarted,
            }),
            _ => None,
        });
        let calls: Vec<OutstandingCall> = calls.collect();
        (!calls.is_empty()).then_some(calls)
    }

    /// Emits the calls that an earlier process left, which current listeners have not received.
    pub(super) fn emit_outstanding_calls(&mut self, calls: &[OutstandingCall]) {
        for OutstandingCall { call, progress } in calls {
            if !matches!(progress, CallProgress::Finished(_)) {
                self.emitter.emit(Body::ToolCall(call.clone()));
            }
        }
    }

    /// Gets a result for each call and adds the results to the conversation. Returns the outcome if the turn ends
    /// there.
    pub(super) async fn run_calls(&mut self, calls: Vec<OutstandingCall>) -> Option<Outcome> {
        let mut parts = Vec::with_capacity(calls.len());
        let mut done = Vec::with_capacity(calls.len());
        for (index, OutstandingCall { call, progress }) in calls.into_iter().enumerate() {
            let output = match progress {
                CallProgress::Finished(output) => output,
                CallProgress::NotStarted => {
                    let output = self.run_tool(index, &call).await;
                    let output = output.unwrap_or_else(Output::error);
                    self.finish_tool(index, &call, output).await
                }
                CallProgress::Started(effect) => {
                    let again = match effect.may_repeat() {
                        true => self.run_tool(index, &call).await.ok(),
                        false => None,
                    };
                    let output = again.unwrap_or_else(|| Output::error(INTERRUPTED));
                    self.finish_tool(index, &call, output).await
                }
            };
            parts.push(result_part(&call, &output));
            done.push((call, output.text));
        }
        self.push_message(Message {
            role: Role::User,
            parts,
        });
        self.check_repeated_calls(&done).await
    }

    /// Runs a call; the error is the reason why it did not start.
    async fn run_tool(&mut self, index: usize, call: &ToolCall) -> Result<Output, String> {
        let Some(tools) = self.turn.tools else {
            return Err("there are no tools here".to_owned());
        };
        if self.turn.control.is_aborted() {
            return Err(CANCELLED.to_owned());
        }
        if self.is_deadline_passed() {
            return Err(DEADLINE_PASSED.to_owned());
        }
        let effect = self.admit_tool(tools, call).await?;
        self.start_tool(tools, index, call, effect).await
    }

    /// Asks whether the call may run. A user may take long to decide, and may cancel instead.
    async fn admit_tool(&mut self, tools: &dyn Toolbox, call: &ToolCall) -> Result<Effect, String> {
        let deadline = self.driver.state().prompt().deadline();
        tokio::select! {
            biased;
            () = self.turn.control.aborted() => Err(CANCELLED.to_owned()),
            () = sleep_until(self.turn.clock, deadline) => Err(DEADLINE_PASSED.to_owned()),
            admitted = tools.admit(call) => admitted,
        }
    }

    async fn start_tool(
        &mut self,
        tools: &dyn Toolbox,
        index: usize,
        call: &ToolCall,
        effect: Effect,
    ) -> Result<Output, String> {
        let id = call.id.clone();
        self.journal_writer
            .record(Entry::ToolStarted { index, id, effect });
        let recorded = self.commit().await;
        // Without a record, a process that resumes after a crash could not know that the tool ran.
        if !recorded
            && (!effect.may_repeat() || self.journal_writer.ownership_lost_reason().is_some())
        {
            let name = &call.name;
            return Err(format!(
                "`{name}` was not run: that it runs could not be written down first"
            ));
        }
        let (id, name) = (call.id.clone(), call.name.clone());
        self.emitter.emit(Body::ToolStarted { id, name });
        Ok(self.run_tool_to_end(tools, call).await)
    }

    async fn run_tool_to_end(&mut self, tools: &dyn Toolbox, call: &ToolCall) -> Output {
        let cancel = CancellationToken::new();
        let deadline = self.driver.state().prompt().deadline();
        let mut running = tools.run(call, cancel.clone());
        tokio::select! {
            biased;
            () = self.turn.control.aborted() => {}
            () = sleep_until(self.turn.clock, deadline) => {}
            output = &mut running => return output,
        }
        cancel.cancel();
        let ended = tokio::time::timeout(TOOL_STOP_TIMEOUT, running).await;
        ended.unwrap_or_else(|_| Output::error(ABANDONED))
    }

    /// Journals the result, then emits it.
    async fn finish_tool(&mut self, index: usize, call: &ToolCall, output: Output) -> Output {
        self.journal_writer
            .record(finished_entry(index, call, &output));
        self.commit().await;
        self.emit_result(call, &output);
        output
    }

    pub(super) fn emit_result(&mut self, call: &ToolCall, output: &Output) {
        self.emitter.emit(Body::ToolResult {
            id: call.id.clone(),
            output: output.text.clone(),
            is_error: output.is_error,
        });
    }
}

/// Returns the entry for the result of a call.
pub(super) fn finished_entry(index: usize, call: &ToolCall, output: &Output) -> Entry {
    Entry::ToolFinished {
        index,
        id: call.id.clone(),
        output: output.text.clone(),
        is_error: output.is_error,
    }
}

/// Returns the result of a call for the conversation.
pub(super) fn result_part(call: &ToolCall, output: &Output) -> Part {
    Part::ToolResult(ToolResult {
        id: call.id.clone(),
        output: output.text.clone(),
        is_error: output.is_error,
    })
}
