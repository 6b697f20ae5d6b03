//! A chat: what is shown, and what becomes of keys and events. Nothing here touches a terminal or a session.
//!
//! [`Chat::take`] takes in what happens and hands back what is wanted of the session; views read the rest.
//! Invariants: a message is shown when the session says that it was said, so nothing is shown that was not; Esc means one
//! thing at a time, and what that is stands on the screen.
//! Not here: what a key means (`chat/keys.rs`), what an event changes (`chat/events.rs`).

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

/// Something that happens.
pub(crate) enum Input {
    Key(KeyEvent),
    /// Text from the clipboard.
    Pasted(String),
    /// The wheel was turned by that many lines; those above come with a negative number.
    Scrolled(isize),
    /// That row of the transcript was clicked.
    Clicked(u16),
    /// A whole line was typed, where keys cannot be read.
    Line(String),
    /// Ctrl-C, where it comes as a signal.
    Interrupted,
    /// A session is there.
    Joined(Box<Joined>),
    /// Something was begun that takes a while.
    Begun,
    /// What was said in earlier sessions, the newest last.
    Remembered(Vec<String>),
    Event(Event),
    /// Somebody has to be asked.
    Asked(ApprovalRequest),
    /// What is typed from here on can be meant as an answer to the question of that number.
    Armed(u64),
    /// Nobody needs the answer any more.
    Unasked,
    /// The turn that begins says again what was said before.
    SaidAgain,
    /// What was wanted has come to an end.
    Ended(Outcome),
    /// What had been waiting to be said is not, and can be changed.
    TakenBack(Vec<String>),
    /// Sessions that can be gone on with.
    Sessions(Vec<PastSession>),
    Changed(Change),
    Notice(Tone, String),
}

/// Something that the line at the bottom tells is different from here on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Model { name: String, window: Option<u64> },
    Policy(String),
    Retries(bool),
    Cost(Cost),
}

/// A session that the chat is about from here on.
pub(crate) struct Joined {
    pub(crate) status: Status,
    pub(crate) models: Vec<String>,
    /// The conversation so far.
    pub(crate) messages: Vec<Message>,
    /// How much of it is said again by its last turn, which is carried on.
    pub(crate) said_again: usize,
    /// What waits to be said.
    pub(crate) queued: Vec<String>,
    /// What the user should know before the first word.
    pub(crate) greeting: Option<String>,
}

/// How what was wanted has ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Whether the model was interrupted, or has failed.
    pub(crate) is_cut_short: bool,
    /// What could not be done.
    pub(crate) problem: Option<String>,
    /// What could be done about an error that was told.
    pub(crate) remedy: Option<String>,
    /// What could not be said.
    pub(crate) unsaid: Option<String>,
}

/// What is wanted of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Say(String),
    Abort,
    AbortRetry,
    RetryNow,
    TryAgain,
    SwitchRetry(bool),
    /// What waits to be said is to be handed back.
    TakeBack,
    Answer(ApprovalDecision),
    /// The question of that number was not there when the last key was pressed.
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

/// Everything that a view shows.
pub(crate) struct Chat {
    pub(crate) transcript: Transcript,
    pub(crate) editor: Editor,
    pub(crate) choices: Choices,
    pub(crate) question: Option<Asked>,
    pub(crate) doing: Activity,
    pub(crate) status: Status,
    /// What waits to be said.
    pub(crate) queued: Vec<String>,
    /// A word about what the next key would do.
    pub(crate) hint: Option<&'static str>,
    known: Candidates,
    turn: Turn,
    /// How often something is said again that was said before.
    repeats: usize,
    /// Whether something was said that no turn has begun with.
    is_unheard: bool,
    /// How many questions there were.
    questions: u64,
    wants: Vec<Action>,
}

/// A question, and whether keys answer it.
pub(crate) struct Asked {
    pub(crate) question: ApprovalRequest,
    pub(crate) is_armed: bool,
    /// Its first line on the screen, once somebody looks through it.
    pub(crate) top: usize,
    /// How many of its lines are on the screen.
    pub(crate) page: usize,
}

/// What is remembered of a turn while it runs.
#[derive(Default)]
struct Turn {
    is_running: bool,
    first_model: String,
    /// Whether its retries were in vain, and that was said.
    said_failed: bool,
    /// The retry that was scheduled last, until its chain ends.
    retry: Option<Retrying>,
    /// Where in the transcript it began.
    from: usize,
    /// Its attempts so far, and where each of them began.
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

    /// Takes in what happened at `now`, and says what is wanted because of it.
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
                self.question = Some(Asked {
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

    /// Shows at once what is about to happen, as whoever wants it looks for that.
    fn expect(&mut self, want: &Action, now: Timestamp) {
        match (want, &mut self.doing) {
            (Action::Say(_), doing) if !self.turn.is_running => {
                self.is_unheard = true;
                if *doing == Activity::Nothing {
                    self.await_answer(now);
                }
            }
            // From here on its own time is not what it waits for.
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

    /// Whether the view changes as time goes by.
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
        // What was said before there was any session is not of one.
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
        // It was said while the session was opened, and is what it begins with.
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
        // It cannot be meant for a turn that is over.
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

    /// Carries out a command, or says a message.
    fn send(&mut self, text: &str) {
        self.transcript.go_to_end();
        match commands::read(text) {
            _ if text.trim().is_empty() => {}
            None => self.want(Action::Say(text.to_owned())),
            Some(Ok(order)) => self.order(order),
            Some(Err(problem)) => {
                self.transcript.notice(Tone::Error, &problem);
                // So that it can be mended.
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

    /// Has one of several things chosen.
    fn list(&mut self, command: &str) {
        self.editor.set(command);
        self.choices = Choices::of(command, &self.known);
    }

    /// Whether somebody could be told to go on at once.
    fn is_waiting(&self) -> bool {
        matches!(self.doing, Activity::Retrying(_) | Activity::InLine { .. })
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.turn.is_running || matches!(self.doing, Activity::Compacting { .. })
    }

    /// What can be chosen, for whoever shows it as text.
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

/// What the user said.
fn said(messages: &[Message]) -> impl Iterator<Item = String> + '_ {
    let of_user = messages
        .iter()
        .filter(|message| message.role == outlast_dialect::Role::User && !is_summary(message));
    of_user.map(Message::text).filter(|text| !text.is_empty())
}
