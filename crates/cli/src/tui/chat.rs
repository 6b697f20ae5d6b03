//! The state of a chat, and how keys and events change it. It uses neither a terminal nor a session.
//!
//! [`Chat::take`] handles an input and returns the actions for the session; views read the rest. Invariants: a message
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
    Joined(Box<Joined>),
    /// An action that takes a while has started.
    Begun,
    /// Messages of earlier sessions, the newest last.
    Remembered(Vec<String>),
    Event(Event),
    /// A tool call needs approval.
    Asked(ApprovalRequest),
    /// Keys can answer the question of that number from now on.
    Armed(u64),
    /// The open question was withdrawn.
    Unasked,
    /// The turn that begins repeats messages of an earlier process.
    SaidAgain,
    /// The action has ended.
    Ended(Outcome),
    /// Queued messages were removed from the queue and can be edited.
    TakenBack(Vec<String>),
    /// Sessions that can be continued.
    Sessions(Vec<PastSession>),
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
    pub(crate) said_again: usize,
    /// Queued messages.
    pub(crate) queued: Vec<String>,
    /// A notice for the user before the first message.
    pub(crate) greeting: Option<String>,
}

/// The outcome of an action.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Whether the model was interrupted or failed.
    pub(crate) is_cut_short: bool,
    /// An error of the action.
    pub(crate) problem: Option<String>,
    /// The remedy for an error, shown as a hint.
    pub(crate) remedy: Option<String>,
    /// A message that could not be sent.
    pub(crate) unsaid: Option<String>,
}

/// An action for the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Say(String),
    Abort,
    AbortRetry,
    RetryNow,
    TryAgain,
    SwitchRetry(bool),
    /// Return the queued messages to the editor.
    TakeBack,
    Answer(ApprovalDecision),
    /// Arm the question of that number after a delay: a key pressed before that may be meant for the draft.
    ArmSoon(u64),
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
    pub(crate) doing: Activity,
    pub(crate) status: Status,
    /// Queued messages.
    pub(crate) queued: Vec<String>,
    /// A hint about the effect of the next key.
    pub(crate) hint: Option<&'static str>,
    known: Candidates,
    turn: Turn,
    /// Number of repeated messages still to come.
    repeats: usize,
    /// Whether a message was sent for which no turn has begun.
    is_unheard: bool,
    /// Number of questions so far; the last one has this number.
    questions: u64,
    wants: Vec<Action>,
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
    said_failed: bool,
    /// The last scheduled retry, until its chain ends.
    retry: Option<Retrying>,
    /// The index of its first block in the transcript.
    from: usize,
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
            doing: Activity::Starting,
            status: Status::default(),
            queued: Vec::new(),
            hint: None,
            known: Candidates::default(),
            turn: Turn::default(),
            repeats: 0,
            is_unheard: false,
            questions: 0,
            wants: Vec::new(),
        }
    }

    /// Handles an input at `now`, and returns the resulting actions.
    pub(crate) fn take(&mut self, input: Input, now: Timestamp) -> Vec<Action> {
        match input {
            Input::Key(key) => self.key(key),
            Input::Pasted(text) => self.pasted(&text),
            Input::Scrolled(lines) => self.transcript.scroll(lines),
            Input::Clicked(row) => self.transcript.toggle_row(row),
            Input::Line(line) => self.line(&line),
            Input::Interrupted => self.interrupt(),
            Input::Joined(joined) => self.join(*joined, now),
            Input::Begun => self.await_answer(now),
            Input::Remembered(said) => self.editor.prepend_history(said),
            Input::Event(event) => self.event(&event.body, now),
            Input::Asked(question) => {
                self.questions += 1;
                self.question = Some(PendingQuestion {
                    question,
                    is_armed: false,
                    top: 0,
                    page: 1,
                });
                self.want(Action::ArmSoon(self.questions));
            }
            Input::Armed(number) => {
                let asked = self.question.as_mut();
                if let Some(asked) = asked.filter(|_| number == self.questions) {
                    asked.is_armed = true;
                }
            }
            Input::SaidAgain => self.repeats = 1,
            Input::Unasked => self.question = None,
            Input::Ended(outcome) => self.ended(outcome),
            Input::TakenBack(texts) => self.take_back(&texts),
            Input::Sessions(sessions) if sessions.is_empty() => {
                self.editor.clear();
                let says = "There is no other session.";
                self.transcript.notice(Tone::Faint, says);
            }
            Input::Sessions(sessions) => {
                self.known.sessions = sessions;
                self.choices = Choices::of(&self.editor.text(), &self.known);
            }
            Input::Changed(change) => self.changed(change),
            Input::Notice(tone, text) => self.transcript.notice(tone, &text),
        }
        let wants = std::mem::take(&mut self.wants);
        for want in &wants {
            self.expect(want, now);
        }
        wants
    }

    /// Shows the effect of an action at once, before the session reports it.
    fn expect(&mut self, want: &Action, now: Timestamp) {
        match (want, &mut self.doing) {
            (Action::Say(_), doing) if !self.turn.is_running => {
                self.is_unheard = true;
                if *doing == Activity::Nothing {
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
        self.doing = Activity::Working { since: now };
    }

    /// Whether the view changes with time.
    pub(crate) fn moves(&self) -> bool {
        self.doing.moves()
    }

    fn changed(&mut self, change: Change) {
        match change {
            Change::Model { name, window } => {
                (self.status.model, self.status.window) = (name, window);
            }
            Change::Policy(name) => self.status.policy = name,
            Change::Retries(on) => self.status.retries_off = !on,
            Change::Cost(cost) => self.status.cost = Some(cost),
        }
    }

    fn want(&mut self, want: Action) {
        self.wants.push(want);
    }

    fn join(&mut self, joined: Joined, now: Timestamp) {
        // Notices from before the first session are shown again in it.
        let early = match self.status.session.is_empty() {
            true => self.transcript.take_notices(),
            false => Vec::new(),
        };
        self.transcript = Transcript::of(&joined.messages);
        for text in said(&joined.messages) {
            self.editor.remember(&text);
        }
        self.status = joined.status;
        self.known.models = joined.models;
        self.queued = joined.queued;
        self.turn = Turn::default();
        self.repeats = joined.said_again;
        self.doing = Activity::Nothing;
        self.question = None;
        // The user sent a message while the session was being opened; it begins the first turn.
        if self.is_unheard {
            self.await_answer(now);
        }
        if let Some(greeting) = joined.greeting {
            self.transcript.notice(Tone::Faint, &greeting);
        }
        for (tone, text) in early {
            self.transcript.notice(tone, &text);
        }
    }

    fn ended(&mut self, outcome: Outcome) {
        (self.turn.is_running, self.repeats) = (false, 0);
        self.is_unheard = false;
        self.doing = Activity::Nothing;
        if let Some(problem) = outcome.problem {
            self.transcript.notice(Tone::Error, &problem);
        }
        if let Some(remedy) = outcome.remedy {
            self.transcript
                .notice(Tone::Faint, &format!("hint: {remedy}"));
        }
        // The user queued these messages for the turn that has just ended.
        if !self.queued.is_empty() {
            self.want(Action::TakeBack);
        }
        if let Some(unsaid) = outcome.unsaid {
            self.take_back(&[unsaid]);
        }
    }

    fn take_back(&mut self, texts: &[String]) {
        self.queued.clear();
        self.editor.prepend(texts);
        self.choices = Choices::default();
    }

    fn pasted(&mut self, text: &str) {
        self.hint = None;
        if let Err(problem) = self.editor.paste(text) {
            self.transcript.notice(Tone::Error, &problem);
        }
        self.choices = Choices::of(&self.editor.text(), &self.known);
    }

    /// Runs a command, or sends a message.
    fn send(&mut self, text: &str) {
        self.transcript.go_to_end();
        match commands::read(text) {
            _ if text.trim().is_empty() => {}
            None => self.want(Action::Say(text.to_owned())),
            Some(Ok(order)) => self.order(order),
            Some(Err(problem)) => {
                self.transcript.notice(Tone::Error, &problem);
                // The command returns to the editor, where the user can correct it.
                self.editor.prepend(&[text.to_owned()]);
            }
        }
    }

    fn order(&mut self, order: SlashCommand) {
        match order {
            SlashCommand::Retry if self.is_waiting() => self.want(Action::RetryNow),
            SlashCommand::Retry => self.want(Action::TryAgain),
            SlashCommand::SwitchRetry(on) => self.want(Action::SwitchRetry(on)),
            SlashCommand::Compact(focus) => self.want(Action::Compact(focus)),
            SlashCommand::Model(name) if name.is_empty() => self.list("/model "),
            SlashCommand::Model(name) => self.want(Action::Model(name)),
            SlashCommand::Policy(name) if name.is_empty() => self.list("/policy "),
            SlashCommand::Policy(name) => self.want(Action::Policy(name)),
            SlashCommand::Session(id) if id.is_empty() => {
                self.list("/sessions ");
                self.want(Action::ListSessions);
            }
            SlashCommand::Session(id) => self.want(Action::Session(id)),
            SlashCommand::New => self.want(Action::New),
            SlashCommand::Accounts => self.want(Action::Accounts),
            SlashCommand::Expand => self.transcript.expand_tools(),
            SlashCommand::Help => self.transcript.notice(Tone::Plain, &commands::help()),
            SlashCommand::Quit => self.want(Action::Quit),
        }
    }

    /// Opens a list of choices.
    fn list(&mut self, command: &str) {
        self.editor.set(command);
        self.choices = Choices::of(command, &self.known);
    }

    /// Whether a retry or the gate makes the chat wait; the user can end such a wait.
    fn is_waiting(&self) -> bool {
        matches!(self.doing, Activity::Retrying(_) | Activity::InLine { .. })
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.turn.is_running || matches!(self.doing, Activity::Compacting { .. })
    }

    /// Returns the open choices as text.
    pub(crate) fn choices_as_text(&self) -> String {
        let items = self.choices.items.iter();
        items
            .map(|item| match item.name.starts_with(item.text.trim()) {
                true => format!("  {}  {}\n", item.name, item.about),
                false => format!("  {}  {}  {}\n", item.text, item.name, item.about),
            })
            .collect()
    }
}

/// Returns the texts of the user's messages.
fn said(messages: &[Message]) -> impl Iterator<Item = String> + '_ {
    let of_user = messages
        .iter()
        .filter(|message| message.role == outlast_dialect::Role::User && !is_summary(message));
    of_user.map(Message::text).filter(|text| !text.is_empty())
}
