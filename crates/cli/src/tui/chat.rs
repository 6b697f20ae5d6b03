//! The state of a chat, and how keys and events change it. It uses neither a terminal nor a session.
//!
//! [`Chat::handle`] handles an input and returns the actions for the session; views read the rest. Invariants: a message
//! is shown when the session reports it; Esc has one meaning at a time, and the screen shows it. Not here: key bindings
//! (`chat/keys.rs`), the effect of events (`chat/events.rs`).

mod events;
mod keys;
#[cfg(test)]
pub(in crate::tui) mod tests;

use super::activity::{Activity, Retrying};
use super::choices::{Candidates, Choices, PastSession};
use super::commands::{self, SlashCommand};
use super::editor::Editor;
use super::status::Status;
use super::transcript::{Tone, Transcript};
use crossterm::event::KeyEvent;
use outlast_dialect::Message;
use outlast_kernel::Timestamp;
use outlast_kernel::budget::Cost;
use outlast_kernel::event::Event;
use outlast_session::compaction::is_summary;
use outlast_session::tools::{ApprovalDecision, ApprovalRequest};

/// An input of the chat.
pub(crate) enum Input {
    Key(KeyEvent),
    /// Text from the clipboard.
    Pasted(String),
    /// A turn of the wheel, in lines; negative is upwards.
    Scrolled(isize),
    /// A click on that row of the transcript.
    Clicked(u16),
    /// A whole typed line, where keys cannot be read.
    Line(String),
    /// Ctrl-C, where it arrives as a signal.
    Interrupted,
    /// A session was opened.
    SessionOpened(Box<Joined>),
    /// An action that takes a while has started.
    TaskStarted,
    /// Messages of earlier sessions, the newest last.
    HistoryLoaded(Vec<String>),
    Event(Event),
    /// A tool call needs approval.
    QuestionAsked(ApprovalRequest),
    /// Keys can answer the question of that number from now on.
    QuestionArmed(u64),
    /// The open question was withdrawn.
    QuestionWithdrawn,
    /// The turn that begins repeats messages of an earlier process.
    TurnReplayed,
    /// The action has ended.
    TaskEnded(Outcome),
    /// Queued messages were removed from the queue and can be edited.
    QueueTakenBack(Vec<String>),
    /// Sessions that can be continued.
    SessionsListed(Vec<PastSession>),
    Changed(Change),
    Notice(Tone, String),
}

/// A change of a value in the status line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Model { name: String, window: Option<u64> },
    Policy(String),
    Retries(bool),
    Cost(Cost),
}

/// A session that the chat now shows.
pub(crate) struct Joined {
    pub(crate) status: Status,
    pub(crate) models: Vec<String>,
    /// The conversation so far.
    pub(crate) messages: Vec<Message>,
    /// Number of its messages that the last, resumed turn repeats.
    pub(crate) replayed_messages: usize,
    /// Queued messages.
    pub(crate) queued: Vec<String>,
    /// A notice for the user before the first message.
    pub(crate) greeting: Option<String>,
}

/// The outcome of an action.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Whether the model was interrupted or failed.
    pub(crate) is_interrupted: bool,
    /// An error of the action.
    pub(crate) problem: Option<String>,
    /// The remedy for an error, shown as a hint.
    pub(crate) hint: Option<String>,
    /// A message that could not be sent.
    pub(crate) unsent_message: Option<String>,
}

/// An action for the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    SendMessage(String),
    Abort,
    AbortRetry,
    RetryNow,
    Retry,
    SwitchRetry(bool),
    /// Return the queued messages to the editor.
    TakeBackQueue,
    Answer(ApprovalDecision),
    /// Arm the question of that number after a delay: a key pressed before that may be meant for the draft.
    ArmQuestion(u64),
    Compact(String),
    Model(String),
    Policy(String),
    Session(String),
    ListSessions,
    New,
    Accounts,
    Suspend,
    Redraw,
    Quit,
}

/// The state that a view shows.
pub(crate) struct Chat {
    pub(crate) transcript: Transcript,
    pub(crate) editor: Editor,
    pub(crate) choices: Choices,
    pub(crate) question: Option<PendingQuestion>,
    pub(crate) activity: Activity,
    pub(crate) status: Status,
    /// Queued messages.
    pub(crate) queued: Vec<String>,
    /// A hint about the effect of the next key.
    pub(crate) hint: Option<&'static str>,
    candidates: Candidates,
    turn: Turn,
    /// Number of repeated messages still to come.
    replays_left: usize,
    /// Whether a message was sent for which no turn has begun.
    has_pending_message: bool,
    /// Number of questions so far; the last one has this number.
    question_count: u64,
    actions: Vec<Action>,
}

/// An open approval question, and whether keys answer it.
pub(crate) struct PendingQuestion {
    pub(crate) question: ApprovalRequest,
    pub(crate) is_armed: bool,
    /// Its first visible line, once the user scrolls it.
    pub(crate) top: usize,
    /// Number of its visible lines.
    pub(crate) page: usize,
}

/// The state of a turn while it runs.
#[derive(Default)]
struct Turn {
    is_running: bool,
    first_model: String,
    /// Whether a failed retry chain has been reported.
    has_reported_failure: bool,
    /// The last scheduled retry, until its chain ends.
    retry: Option<Retrying>,
    /// The index of its first block in the transcript.
    first_block: usize,
    /// Its attempts so far, and the index of each one's first block.
    attempts: Vec<(u32, usize)>,
}

impl Chat {
    pub(crate) fn new() -> Self {
        Self {
            transcript: Transcript::default(),
            editor: Editor::default(),
            choices: Choices::default(),
            question: None,
            activity: Activity::Starting,
            status: Status::default(),
            queued: Vec::new(),
            hint: None,
            candidates: Candidates::default(),
            turn: Turn::default(),
            replays_left: 0,
            has_pending_message: false,
            question_count: 0,
            actions: Vec::new(),
        }
    }

    /// Handles an input at `now`, and returns the resulting actions.
    pub(crate) fn handle(&mut self, input: Input, now: Timestamp) -> Vec<Action> {
        match input {
            Input::Key(key) => self.handle_key(key),
            Input::Pasted(text) => self.handle_paste(&text),
            Input::Scrolled(lines) => self.transcript.scroll(lines),
            Input::Clicked(row) => self.transcript.toggle_row(row),
            Input::Line(line) => self.handle_line(&line),
            Input::Interrupted => self.interrupt(),
            Input::SessionOpened(joined) => self.open_session(*joined, now),
            Input::TaskStarted => self.await_answer(now),
            Input::HistoryLoaded(said) => self.editor.prepend_history(said),
            Input::Event(event) => self.handle_event(&event.body, now),
            Input::QuestionAsked(question) => {
                self.question_count += 1;
                self.question = Some(PendingQuestion {
                    question,
                    is_armed: false,
                    top: 0,
                    page: 1,
                });
                self.push_action(Action::ArmQuestion(self.question_count));
            }
            Input::QuestionArmed(number) => {
                let asked = self.question.as_mut();
                if let Some(asked) = asked.filter(|_| number == self.question_count) {
                    asked.is_armed = true;
                }
            }
            Input::TurnReplayed => self.replays_left = 1,
            Input::QuestionWithdrawn => self.question = None,
            Input::TaskEnded(outcome) => self.end_task(outcome),
            Input::QueueTakenBack(texts) => self.restore_queued(&texts),
            Input::SessionsListed(sessions) if sessions.is_empty() => {
                self.editor.clear();
                let says = "There is no other session.";
                self.transcript.notice(Tone::Faint, says);
            }
            Input::SessionsListed(sessions) => {
                self.candidates.sessions = sessions;
                self.choices = Choices::matching(&self.editor.text(), &self.candidates);
            }
            Input::Changed(change) => self.apply_change(change),
            Input::Notice(tone, text) => self.transcript.notice(tone, &text),
        }
        let wants = std::mem::take(&mut self.actions);
        for want in &wants {
            self.anticipate(want, now);
        }
        wants
    }

    /// Shows the effect of an action at once, before the session reports it.
    fn anticipate(&mut self, want: &Action, now: Timestamp) {
        match (want, &mut self.activity) {
            (Action::SendMessage(_), doing) if !self.turn.is_running => {
                self.has_pending_message = true;
                if *doing == Activity::Idle {
                    self.await_answer(now);
                }
            }
            // The retry happens now, not at its scheduled time.
            (Action::RetryNow, Activity::Retrying(retrying)) => {
                (retrying.at, retrying.early) = (retrying.at.min(now), None);
            }
            _ => {}
        }
    }

    fn await_answer(&mut self, now: Timestamp) {
        self.turn.is_running = true;
        self.activity = Activity::Working { since: now };
    }

    /// Whether the view changes with time.
    pub(crate) fn is_animated(&self) -> bool {
        self.activity.is_animated()
    }

    fn apply_change(&mut self, change: Change) {
        match change {
            Change::Model { name, window } => {
                (self.status.model, self.status.window) = (name, window);
            }
            Change::Policy(name) => self.status.policy = name,
            Change::Retries(on) => self.status.retries_off = !on,
            Change::Cost(cost) => self.status.cost = Some(cost),
        }
    }

    fn push_action(&mut self, want: Action) {
        self.actions.push(want);
    }

    fn open_session(&mut self, joined: Joined, now: Timestamp) {
        // Notices from before the first session are shown again in it.
        let early = match self.status.session.is_empty() {
            true => self.transcript.take_notices(),
            false => Vec::new(),
        };
        self.transcript = Transcript::from_messages(&joined.messages);
        for text in user_texts(&joined.messages) {
            self.editor.add_to_history(&text);
        }
        self.status = joined.status;
        self.candidates.models = joined.models;
        self.queued = joined.queued;
        self.turn = Turn::default();
        self.replays_left = joined.replayed_messages;
        self.activity = Activity::Idle;
        self.question = None;
        // The user sent a message while the session was being opened; it begins the first turn.
        if self.has_pending_message {
            self.await_answer(now);
        }
        if let Some(greeting) = joined.greeting {
            self.transcript.notice(Tone::Faint, &greeting);
        }
        for (tone, text) in early {
            self.transcript.notice(tone, &text);
        }
    }

    fn end_task(&mut self, outcome: Outcome) {
        (self.turn.is_running, self.replays_left) = (false, 0);
        self.has_pending_message = false;
        self.activity = Activity::Idle;
        if let Some(problem) = outcome.problem {
            self.transcript.notice(Tone::Error, &problem);
        }
        if let Some(remedy) = outcome.hint {
            self.transcript
                .notice(Tone::Faint, &format!("hint: {remedy}"));
        }
        // The user queued these messages for the turn that has just ended.
        if !self.queued.is_empty() {
            self.push_action(Action::TakeBackQueue);
        }
        if let Some(unsaid) = outcome.unsent_message {
            self.restore_queued(&[unsaid]);
        }
    }

    fn restore_queued(&mut self, texts: &[String]) {
        self.queued.clear();
        self.editor.prepend(texts);
        self.choices = Choices::default();
    }

    fn handle_paste(&mut self, text: &str) {
        self.hint = None;
        if let Err(problem) = self.editor.paste(text) {
            self.transcript.notice(Tone::Error, &problem);
        }
        self.choices = Choices::matching(&self.editor.text(), &self.candidates);
    }

    /// Runs a command, or sends a message.
    fn send(&mut self, text: &str) {
        self.transcript.go_to_end();
        match commands::parse(text) {
            _ if text.trim().is_empty() => {}
            None => self.push_action(Action::SendMessage(text.to_owned())),
            Some(Ok(order)) => self.run_command(order),
            Some(Err(problem)) => {
                self.transcript.notice(Tone::Error, &problem);
                // The command returns to the editor, where the user can correct it.
                self.editor.prepend(&[text.to_owned()]);
            }
        }
    }

    fn run_command(&mut self, order: SlashCommand) {
        match order {
            SlashCommand::Retry if self.is_waiting() => self.push_action(Action::RetryNow),
            SlashCommand::Retry => self.push_action(Action::Retry),
            SlashCommand::SwitchRetry(on) => self.push_action(Action::SwitchRetry(on)),
            SlashCommand::Compact(focus) => self.push_action(Action::Compact(focus)),
            SlashCommand::Model(name) if name.is_empty() => self.open_choices("/model "),
            SlashCommand::Model(name) => self.push_action(Action::Model(name)),
            SlashCommand::Policy(name) if name.is_empty() => self.open_choices("/policy "),
            SlashCommand::Policy(name) => self.push_action(Action::Policy(name)),
            SlashCommand::Session(id) if id.is_empty() => {
                self.open_choices("/sessions ");
                self.push_action(Action::ListSessions);
            }
            SlashCommand::Session(id) => self.push_action(Action::Session(id)),
            SlashCommand::New => self.push_action(Action::New),
            SlashCommand::Accounts => self.push_action(Action::Accounts),
            SlashCommand::Expand => self.transcript.expand_tools(),
            SlashCommand::Help => self.transcript.notice(Tone::Plain, &commands::help()),
            SlashCommand::Quit => self.push_action(Action::Quit),
        }
    }

    /// Opens a list of choices.
    fn open_choices(&mut self, command: &str) {
        self.editor.set(command);
        self.choices = Choices::matching(command, &self.candidates);
    }

    /// Whether a retry or the gate makes the chat wait; the user can end such a wait.
    fn is_waiting(&self) -> bool {
        matches!(
            self.activity,
            Activity::Retrying(_) | Activity::Queued { .. }
        )
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.turn.is_running || matches!(self.activity, Activity::Compacting { .. })
    }

    /// Returns the open choices as text.
    pub(crate) fn choices_as_text(&self) -> String {
        let items = self.choices.items.iter();
        items
            .map(|item| match item.name.starts_with(item.text.trim()) {
                true => format!("  {}  {}\n", item.name, item.description),
                false => format!("  {}  {}  {}\n", item.text, item.name, item.description),
            })
            .collect()
    }
}

/// Returns the texts of the user's messages.
fn user_texts(messages: &[Message]) -> impl Iterator<Item = String> + '_ {
    let of_user = messages
        .iter()
        .filter(|message| message.role == outlast_dialect::Role::User && !is_summary(message));
    of_user.map(Message::text).filter(|text| !text.is_empty())
}
