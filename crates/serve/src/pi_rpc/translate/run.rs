//! The frames of a run: its turns, their messages, and the messages that the run adds to the conversation.
//!
//! A turn here is one completion with its tool results. Invariants: every message, turn and run that begins ends
//! exactly once; a turn ends with a completion, if necessary an empty one; failed completions are not part of the added
//! messages, except for the failure that ended the run.

use super::frame::{Frame, MessageRef};
use super::partial_completion::{CompletionEnd, PartialCompletion};
use crate::event_encoder::JsonLines;
use crate::pi_rpc::message::{
    ABORTED_MESSAGE, Assistant, Block, ErrorDetails, Message, Stop, ToolResult, User,
};
use crate::pi_rpc::models::ModelRef;
use serde_json::value::RawValue;

#[derive(Default)]
pub(super) struct Run {
    /// The model for the next attempts.
    pub(super) model: ModelRef,
    /// The time of the current event, in milliseconds since 1970.
    pub(super) now: u64,
    is_open: bool,
    turn: Option<Turn>,
    /// The messages that the run has added to the conversation.
    messages: Vec<Message>,
    /// The last failed completion, until the next attempt starts.
    failed: Option<Assistant>,
    /// The part of it that the next completion could continue.
    interrupted_blocks: Vec<Block>,
}

#[derive(Default)]
pub(super) struct Turn {
    /// The completion in progress.
    partial: Option<PartialCompletion>,
    /// The finished completion.
    pub(super) completion: Option<Assistant>,
    pub(super) results: Vec<ToolResult>,
    /// The running tools: call id and name.
    pub(super) running: Vec<(String, String)>,
}

impl Turn {
    /// Returns the tool name and the arguments of a call.
    pub(super) fn call(&self, call_id: &str) -> Option<(&str, &RawValue)> {
        let blocks = self.completion.as_ref().map(|message| &message.content);
        blocks.into_iter().flatten().find_map(|block| match block {
            Block::ToolCall {
                id,
                name,
                arguments,
            } if id == call_id => Some((name.as_str(), &**arguments)),
            _ => None,
        })
    }

    /// Removes a running tool and returns its name, if it was running.
    pub(super) fn end_tool(&mut self, call_id: &str) -> Option<String> {
        let running = self.running.iter().position(|(id, _)| id == call_id);
        running.map(|index| self.running.remove(index).1)
    }
}

/// The error of an attempt.
pub(super) struct Problem {
    pub(super) message: String,
    pub(super) details: Option<ErrorDetails>,
}

impl From<Problem> for CompletionEnd {
    fn from(problem: Problem) -> Self {
        Self {
            stop: Stop::Error,
            problem: Some(problem.message),
            details: problem.details,
        }
    }
}

impl Run {
    pub(super) fn new(model: ModelRef) -> Self {
        Self {
            model,
            ..Self::default()
        }
    }

    /// Writes a message of the user.
    pub(super) fn input(&mut self, user: User, out: &mut JsonLines) {
        self.finish_step(out);
        self.ensure_turn(out);
        let message = MessageRef::User(&user);
        out.push(&Frame::MessageStart { message });
        let message = MessageRef::User(&user);
        out.push(&Frame::MessageEnd { message });
        self.messages.push(Message::User(user));
    }

    /// Starts an attempt.
    pub(super) fn begin_attempt(&mut self, out: &mut JsonLines) {
        self.finish_step(out);
        self.failed = None;
        let answer = PartialCompletion::new(self.model.empty_message(self.now));
        self.ensure_turn(out).partial = Some(answer);
    }

    /// Returns whether a completion is in progress.
    pub(super) fn has_partial(&self) -> bool {
        let turn = self.turn.as_ref();
        turn.is_some_and(|turn| turn.partial.is_some())
    }

    /// Returns the completion in progress, if any.
    pub(super) fn partial_mut(&mut self) -> Option<&mut PartialCompletion> {
        self.turn.as_mut().and_then(|turn| turn.partial.as_mut())
    }

    /// Returns the completion in progress; starts one if no event has.
    pub(super) fn open_partial(&mut self, out: &mut JsonLines) -> &mut PartialCompletion {
        self.finish_step(out);
        let blank = self.model.empty_message(self.now);
        let turn = self.ensure_turn(out);
        turn.partial
            .get_or_insert_with(|| PartialCompletion::new(blank))
    }

    /// Completes the completion in progress.
    pub(super) fn complete(&mut self, ending: CompletionEnd, out: &mut JsonLines) {
        self.interrupted_blocks.clear();
        self.open_partial(out);
        let asked = &self.model;
        if let Some(turn) = &mut self.turn {
            turn.completion = turn.partial.take().map(|mut answer| {
                answer.message.api.clone_from(&asked.api);
                answer.message.provider.clone_from(&asked.provider);
                answer.message.model.clone_from(&asked.model);
                answer.end(ending, out)
            });
        }
    }

    /// Returns the turn that tools belong to: tools run once their completion is finished.
    pub(super) fn turn_for_tools(&mut self, out: &mut JsonLines) -> &mut Turn {
        if self.has_partial() {
            self.complete(CompletionEnd::without_error(Stop::ToolUse), out);
        }
        self.ensure_turn(out)
    }

    /// Marks the completion in progress as retracted.
    pub(super) fn retract(&mut self) {
        self.interrupted_blocks.clear();
        if let Some(answer) = self.partial_mut() {
            answer.is_retracted = true;
        }
    }

    /// Starts the completion with the content of the interrupted one.
    pub(super) fn continue_interrupted(&mut self, out: &mut JsonLines) {
        let blocks = std::mem::take(&mut self.interrupted_blocks);
        if !blocks.is_empty() {
            self.open_partial(out).continue_from(blocks, out);
        }
    }

    // --- Ends ---

    /// Ends the turn if its completion is finished.
    pub(super) fn finish_step(&mut self, out: &mut JsonLines) {
        let is_over = |turn: &mut Turn| turn.completion.is_some();
        if let Some(turn) = self.turn.take_if(is_over) {
            self.end_turn(turn, out);
        }
    }

    /// Ends the open turn with an error, unless its completion is finished.
    pub(super) fn fail(&mut self, problem: Problem, out: &mut JsonLines) {
        self.finish_step(out);
        let Some(mut turn) = self.turn.take() else {
            return;
        };
        let blank = || PartialCompletion::new(self.model.empty_message(self.now));
        let answer = turn.partial.take().unwrap_or_else(blank);
        let beginning = answer.resumable_blocks();
        if !answer.is_retracted && !beginning.is_empty() {
            self.interrupted_blocks = beginning;
        }
        let message = answer.end(problem.into(), out);
        emit_turn_end(&message, &turn.results, out);
        self.messages
            .extend(turn.results.into_iter().map(Message::ToolResult));
        self.failed = Some(message);
    }

    /// Ends the run's last turn with an error. If the same error has been written already, only its details are
    /// updated.
    pub(super) fn end_with_error(&mut self, problem: Problem, out: &mut JsonLines) {
        self.finish_step(out);
        let cause = |details: &Option<ErrorDetails>| details.as_ref().map(|details| details.cause);
        let is_same = |failed: &&mut Assistant| cause(&failed.outlast) == cause(&problem.details);
        let failed = self.failed.as_mut().filter(|_| self.turn.is_none());
        if let Some(failed) = failed.filter(is_same) {
            failed.error_message = Some(problem.message);
            failed.outlast = problem.details;
            return;
        }
        self.ensure_turn(out);
        self.fail(problem, out);
    }

    /// Ends everything that is open, regularly or as aborted.
    pub(super) fn stop(&mut self, stop: Stop, out: &mut JsonLines) {
        self.interrupted_blocks.clear();
        self.finish_step(out);
        if self.turn.is_some() {
            let problem = (stop == Stop::Aborted).then(|| ABORTED_MESSAGE.to_owned());
            let ending = CompletionEnd {
                problem,
                ..CompletionEnd::without_error(stop)
            };
            self.complete(ending, out);
            self.finish_step(out);
        }
    }

    /// Ends the run; a run without a start gets one first.
    pub(super) fn end(&mut self, aborted: bool, out: &mut JsonLines) {
        let stop = if aborted { Stop::Aborted } else { Stop::Stop };
        self.stop(stop, out);
        self.ensure_started(out);
        let mut messages = std::mem::take(&mut self.messages);
        let failed = self.failed.take().filter(|_| !aborted);
        messages.extend(failed.map(Message::Assistant));
        let will_retry = false;
        out.push(&Frame::AgentEnd {
            messages: &messages,
            will_retry,
        });
        out.push(&Frame::AgentSettled { aborted });
        self.is_open = false;
    }

    // --- Starts ---

    fn ensure_started(&mut self, out: &mut JsonLines) {
        if !std::mem::replace(&mut self.is_open, true) {
            out.push(&Frame::AgentStart);
        }
    }

    fn ensure_turn(&mut self, out: &mut JsonLines) -> &mut Turn {
        self.ensure_started(out);
        self.turn.get_or_insert_with(|| {
            out.push(&Frame::TurnStart);
            Turn::default()
        })
    }

    fn end_turn(&mut self, turn: Turn, out: &mut JsonLines) {
        let Some(message) = turn.completion else {
            return;
        };
        emit_turn_end(&message, &turn.results, out);
        self.messages.push(Message::Assistant(message));
        self.messages
            .extend(turn.results.into_iter().map(Message::ToolResult));
    }
}

fn emit_turn_end(message: &Assistant, tool_results: &[ToolResult], out: &mut JsonLines) {
    out.push(&Frame::TurnEnd {
        message,
        tool_results,
    });
}
