//! What is said of a run: its turns, the messages in them, and what of that stays.
//!
//! A turn here is one answer with the results of its tools. Invariants: every message, turn and run that begins ends,
//! once; a turn ends with an answer, if need be an empty one; what failed is no part of what the run has added, but for
//! the failure that ended it.

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
    /// Who is asked from here on.
    pub(super) asked: ModelRef,
    /// The time of what is being told.
    pub(super) now: u64,
    is_open: bool,
    turn: Option<Turn>,
    /// What the run has added to the conversation.
    messages: Vec<Message>,
    /// The answer that failed last, until another one is asked for.
    failed: Option<Assistant>,
    /// What of it the next answer could go on from.
    broken_off: Vec<Block>,
}

#[derive(Default)]
pub(super) struct Turn {
    /// The answer that is under way.
    answer: Option<PartialCompletion>,
    /// The answer that came.
    pub(super) answered: Option<Assistant>,
    pub(super) results: Vec<ToolResult>,
    /// The tools that run, by call and name.
    pub(super) running: Vec<(String, String)>,
}

impl Turn {
    /// The tool of a call and its arguments.
    pub(super) fn call(&self, call_id: &str) -> Option<(&str, &RawValue)> {
        let blocks = self.answered.as_ref().map(|message| &message.content);
        blocks.into_iter().flatten().find_map(|block| match block {
            Block::ToolCall {
                id,
                name,
                arguments,
            } if id == call_id => Some((name.as_str(), &**arguments)),
            _ => None,
        })
    }

    /// Ends the run of a tool; the answer is the tool's name, if it ran.
    pub(super) fn end_tool(&mut self, call_id: &str) -> Option<String> {
        let running = self.running.iter().position(|(id, _)| id == call_id);
        running.map(|index| self.running.remove(index).1)
    }
}

/// What went wrong.
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
    pub(super) fn new(asked: ModelRef) -> Self {
        Self {
            asked,
            ..Self::default()
        }
    }

    /// Somebody says something.
    pub(super) fn input(&mut self, user: User, out: &mut JsonLines) {
        self.finish_step(out);
        self.open_turn(out);
        let message = MessageRef::User(&user);
        out.push(&Frame::MessageStart { message });
        let message = MessageRef::User(&user);
        out.push(&Frame::MessageEnd { message });
        self.messages.push(Message::User(user));
    }

    /// A model is asked.
    pub(super) fn begin_attempt(&mut self, out: &mut JsonLines) {
        self.finish_step(out);
        self.failed = None;
        let answer = PartialCompletion::new(self.asked.blank(self.now));
        self.open_turn(out).answer = Some(answer);
    }

    /// Whether an answer is under way.
    pub(super) fn has_partial(&self) -> bool {
        let turn = self.turn.as_ref();
        turn.is_some_and(|turn| turn.answer.is_some())
    }

    /// The answer that is under way, if one is.
    pub(super) fn answering(&mut self) -> Option<&mut PartialCompletion> {
        self.turn.as_mut().and_then(|turn| turn.answer.as_mut())
    }

    /// The answer that is under way, whether or not somebody said that it began.
    pub(super) fn answer(&mut self, out: &mut JsonLines) -> &mut PartialCompletion {
        self.finish_step(out);
        let blank = self.asked.blank(self.now);
        let turn = self.open_turn(out);
        turn.answer
            .get_or_insert_with(|| PartialCompletion::new(blank))
    }

    /// The answer is whole.
    pub(super) fn complete(&mut self, ending: CompletionEnd, out: &mut JsonLines) {
        self.broken_off.clear();
        self.answer(out);
        let asked = &self.asked;
        if let Some(turn) = &mut self.turn {
            turn.answered = turn.answer.take().map(|mut answer| {
                answer.message.api.clone_from(&asked.api);
                answer.message.provider.clone_from(&asked.provider);
                answer.message.model.clone_from(&asked.model);
                answer.end(ending, out)
            });
        }
    }

    /// The turn that tools belong to: they run when the answer that wants them is whole.
    pub(super) fn tools(&mut self, out: &mut JsonLines) -> &mut Turn {
        if self.has_partial() {
            self.complete(CompletionEnd::well(Stop::ToolUse), out);
        }
        self.open_turn(out)
    }

    /// What was said of the answer under way does not count.
    pub(super) fn retract(&mut self) {
        self.broken_off.clear();
        if let Some(answer) = self.answering() {
            answer.is_retracted = true;
        }
    }

    /// Begins the answer with what the one before had said.
    pub(super) fn go_on(&mut self, out: &mut JsonLines) {
        let blocks = std::mem::take(&mut self.broken_off);
        if !blocks.is_empty() {
            self.answer(out).continue_from(blocks, out);
        }
    }

    // --- Ends ---

    /// Ends a turn whose answer came.
    pub(super) fn finish_step(&mut self, out: &mut JsonLines) {
        let is_over = |turn: &mut Turn| turn.answered.is_some();
        if let Some(turn) = self.turn.take_if(is_over) {
            self.end_turn(turn, out);
        }
    }

    /// Ends the open turn with what went wrong, unless its answer came.
    pub(super) fn fail(&mut self, problem: Problem, out: &mut JsonLines) {
        self.finish_step(out);
        let Some(mut turn) = self.turn.take() else {
            return;
        };
        let blank = || PartialCompletion::new(self.asked.blank(self.now));
        let answer = turn.answer.take().unwrap_or_else(blank);
        let beginning = answer.beginning();
        if !answer.is_retracted && !beginning.is_empty() {
            self.broken_off = beginning;
        }
        let message = answer.end(problem.into(), out);
        emit_turn_end(&message, &turn.results, out);
        self.messages
            .extend(turn.results.into_iter().map(Message::ToolResult));
        self.failed = Some(message);
    }

    /// Says what ends everything, unless it was said already; then it is only told what more is known of it.
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
        self.open_turn(out);
        self.fail(problem, out);
    }

    /// Ends what is open, well or because somebody wants it.
    pub(super) fn stop(&mut self, stop: Stop, out: &mut JsonLines) {
        self.broken_off.clear();
        self.finish_step(out);
        if self.turn.is_some() {
            let problem = (stop == Stop::Aborted).then(|| ABORTED_MESSAGE.to_owned());
            let ending = CompletionEnd {
                problem,
                ..CompletionEnd::well(stop)
            };
            self.complete(ending, out);
            self.finish_step(out);
        }
    }

    /// Ends the run; what nobody heard the beginning of begins first.
    pub(super) fn end(&mut self, aborted: bool, out: &mut JsonLines) {
        let stop = if aborted { Stop::Aborted } else { Stop::Stop };
        self.stop(stop, out);
        self.open(out);
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

    // --- Beginnings ---

    fn open(&mut self, out: &mut JsonLines) {
        if !std::mem::replace(&mut self.is_open, true) {
            out.push(&Frame::AgentStart);
        }
    }

    fn open_turn(&mut self, out: &mut JsonLines) -> &mut Turn {
        self.open(out);
        self.turn.get_or_insert_with(|| {
            out.push(&Frame::TurnStart);
            Turn::default()
        })
    }

    fn end_turn(&mut self, turn: Turn, out: &mut JsonLines) {
        let Some(message) = turn.answered else {
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
