//! Carries out the actions of a chat: owns its session and the run in progress.
//!
//! Everything that takes time is a task that reports back as a [`Message`]; the view handles the messages one by one.
//! Invariants: one run at a time; events of a session that the user has left are not shown in the next one. Not here:
//! the course of a run (`driver/run.rs`), opening and leaving sessions (`driver/sessions.rs`), the choice of model and
//! policy (`driver/selection.rs`), earlier sessions (`driver/history.rs`).

pub(crate) mod history;
mod run;
pub(crate) mod selection;
mod sessions;

use super::approver::ChatApprover;
use super::chat::{Action, Change, Chat, Input, Outcome};
use super::transcript::Tone;
use crate::args::SessionArguments;
use crate::factory::session_host::SessionHost;
use outlast_dialect::Message as ModelMessage;
use outlast_engine::{CancellationToken, Clock};
use outlast_kernel::event::{Body, Event};
use outlast_kernel::text;
use outlast_session::Session;
use outlast_session::factory::{Model, OpenedSession};
use outlast_session::tools::{ApprovalDecision, ApprovalRequest};
use outlast_session::{QueueKind, Subscription};
use run::RunStart;
pub(super) use sessions::LeaveSummary;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Time after which keys answer a new question: a user who was typing when it came has stopped by then.
const QUESTION_ARM_DELAY: Duration = Duration::from_millis(600);
/// Maximum number of messages to handle before the screen is drawn.
const MAX_BATCH: usize = 500;

/// A report of a task.
pub(super) enum Message {
    Input(Input),
    /// A background task has ended.
    TaskFinished(Option<Input>),
    /// A message was queued, or could not be.
    Queued(Option<Input>),
    Event(Event),
    /// A tool call needs the user's approval.
    QuestionAsked(ApprovalRequest, oneshot::Sender<ApprovalDecision>),
    QuestionWithdrawn,
    /// The settings were read, or reading them failed.
    Host(anyhow::Result<Arc<SessionHost>>),
    /// Another session was opened, or could not be.
    Opened(anyhow::Result<Box<OpenedSession>>),
    RunEnded(Outcome),
}

/// Whether the chat goes on.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Continue,
    Suspend,
    Redraw,
    Quit,
}

/// The session, the run and the tasks behind a chat.
pub(super) struct Driver {
    choice: SessionArguments,
    clock: Arc<dyn Clock>,
    host: Option<Arc<SessionHost>>,
    session: Option<ActiveSession>,
    run: Option<JoinHandle<()>>,
    /// Cancelled when the run is to end, also before its turn has begun.
    stop: CancellationToken,
    /// Whether another session is being opened.
    is_opening: bool,
    /// The number of background tasks.
    background_tasks: usize,
    /// The task that queues the last message.
    queue_task: Option<JoinHandle<()>>,
    /// Messages that the user sent before a session was open.
    early_messages: Vec<String>,
    /// Receives the answer to the open question.
    answer_sender: Option<oneshot::Sender<ApprovalDecision>>,
    /// Whether the model was chosen since the last prompt.
    is_model_chosen: bool,
    sender: UnboundedSender<Message>,
    receiver: UnboundedReceiver<Message>,
}

/// The session that the chat is about.
struct ActiveSession {
    session: Arc<Session>,
    model: Model,
    _subscription: Subscription,
}

impl Driver {
    pub(super) fn new(choice: SessionArguments, clock: Arc<dyn Clock>) -> Self {
        let (sender, receiver) = unbounded_channel();
        Self {
            choice,
            clock,
            host: None,
            session: None,
            run: None,
            stop: CancellationToken::new(),
            is_opening: false,
            background_tasks: 0,
            queue_task: None,
            early_messages: Vec::new(),
            answer_sender: None,
            is_model_chosen: false,
            sender,
            receiver,
        }
    }

    /// Starts to read the settings and to open the session.
    pub(super) fn start(&self) {
        self.open_host();
    }

    pub(super) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Whether no action is in progress, and all of their reports were handled.
    pub(super) fn is_idle(&self) -> bool {
        let is_doing = self.run.is_some() || self.is_opening || self.background_tasks > 0;
        self.session.is_some() && !is_doing && self.receiver.is_empty()
    }

    pub(super) fn approver(&self) -> ChatApprover {
        ChatApprover(self.sender.clone())
    }

    /// Waits for a message.
    pub(super) async fn next(&mut self) -> Message {
        match self.receiver.recv().await {
            Some(message) => message,
            None => std::future::pending().await,
        }
    }

    /// Handles a message, and those that have arrived meanwhile.
    pub(super) fn handle_all(&mut self, first: Message, chat: &mut Chat) -> anyhow::Result<Flow> {
        let mut message = Some(first);
        for _ in 0..MAX_BATCH {
            let Some(next) = message else {
                break;
            };
            match self.handle_message(next, chat)? {
                Flow::Continue => {}
                other => return Ok(other),
            }
            message = self.receiver.try_recv().ok();
        }
        Ok(match message {
            Some(left) => self.handle_message(left, chat)?,
            None => Flow::Continue,
        })
    }

    fn handle_message(&mut self, message: Message, chat: &mut Chat) -> anyhow::Result<Flow> {
        let input = match message {
            Message::Input(input) => input,
            Message::Queued(input) => {
                self.send_queued();
                return self.handle_message(Message::TaskFinished(input), chat);
            }
            Message::TaskFinished(input) => {
                self.background_tasks = self.background_tasks.saturating_sub(1);
                match input {
                    Some(input) => input,
                    None => return Ok(Flow::Continue),
                }
            }
            Message::Event(event) => {
                if !self.is_current(&event) {
                    return Ok(Flow::Continue);
                }
                let tells_cost = matches!(
                    event.body,
                    Body::StepComplete { .. } | Body::RetryScheduled { .. } | Body::Sealed { .. }
                );
                let switched = match &event.body {
                    Body::ModelSwitched { to, .. } => self.window_change(to),
                    _ => None,
                };
                let next = self.handle_input(Input::Event(event), chat);
                if let Some(change) = switched {
                    self.handle_input(Input::Changed(change), chat);
                }
                if tells_cost && let Some(cost) = self.cost() {
                    self.handle_input(Input::Changed(Change::Cost(cost)), chat);
                }
                return Ok(next);
            }
            Message::QuestionAsked(question, answer) => {
                self.answer_sender = Some(answer);
                Input::QuestionAsked(question)
            }
            Message::QuestionWithdrawn => {
                self.answer_sender = None;
                Input::QuestionWithdrawn
            }
            Message::Host(host) => {
                self.host = Some(host?);
                self.open_first();
                return Ok(Flow::Continue);
            }
            Message::Opened(opened) => return self.finish_open(opened, chat),
            Message::RunEnded(outcome) => return Ok(self.run_ended(outcome, chat)),
        };
        Ok(self.handle_input(input, chat))
    }

    /// Passes an input to the chat, and carries out the resulting actions.
    pub(super) fn handle_input(&mut self, input: Input, chat: &mut Chat) -> Flow {
        let now = self.clock.now();
        let wants = chat.handle(input, now);
        let mut next = Flow::Continue;
        for want in wants {
            match self.perform(want) {
                Flow::Continue => {}
                other => next = other,
            }
        }
        next
    }

    fn perform(&mut self, want: Action) -> Flow {
        match want {
            Action::Quit => return Flow::Quit,
            Action::Suspend => return Flow::Suspend,
            Action::Redraw => return Flow::Redraw,
            Action::SendMessage(text) => self.send_message(text),
            Action::Abort => self.stop.cancel(),
            Action::AbortRetry => self.with_session(Session::abort_retry),
            Action::RetryNow => self.with_session(Session::retry_now),
            Action::Retry => self.retry_turn(),
            Action::SwitchRetry(on) => self.switch_retry(on),
            Action::TakeBackQueue => self.take_back_queue(),
            Action::Answer(answer) => {
                if let Some(asking) = self.answer_sender.take() {
                    // The tool call may have been cancelled meanwhile.
                    asking.send(answer).ok();
                }
            }
            Action::ArmQuestion(number) => self.spawn_task(async move {
                tokio::time::sleep(QUESTION_ARM_DELAY).await;
                Some(Input::QuestionArmed(number))
            }),
            Action::Compact(focus) => self.compact(focus),
            Action::Model(name) => self.choose_model(&name),
            Action::Policy(name) => self.choose_policy(&name),
            Action::Session(id) => self.open(sessions::SessionTarget::Named(id)),
            Action::New => self.open(sessions::SessionTarget::New),
            Action::ListSessions => self.list_sessions(),
            Action::Accounts => self.show_accounts(),
        }
        Flow::Continue
    }

    // --- Small things ---

    /// Whether no other action can start now; if so, tells the user why.
    fn is_busy(&self) -> bool {
        let why = match (self.run.is_some(), self.is_opening) {
            (true, _) => "The model works: Esc interrupts it first.",
            (false, true) => "Another session is being opened.",
            (false, false) => return false,
        };
        self.notice(Tone::Faint, why);
        true
    }

    fn send_message(&mut self, text: String) {
        let Some(joined) = self.session.as_ref().filter(|_| !self.is_opening) else {
            self.early_messages.push(text);
            return;
        };
        if self.run.is_none() {
            return self.start_run(RunStart::Prompt(ModelMessage::user(text)));
        }
        let session = Arc::clone(&joined.session);
        let before = self.queue_task.take();
        self.background_tasks += 1;
        let sender = self.sender.clone();
        self.queue_task = Some(tokio::spawn(async move {
            // Messages are queued in the order in which the user sent them.
            if let Some(before) = before {
                before.await.ok();
            }
            let queued = session
                .enqueue(QueueKind::Steering, ModelMessage::user(text))
                .await;
            let says = queued.err().map(|error| error_input(&error));
            sender.send(Message::Queued(says)).ok();
        }));
    }

    /// Sends the queued messages, if the run that they were meant for has ended meanwhile.
    fn send_queued(&mut self) {
        let waits = |joined: &ActiveSession| !joined.session.queued_messages().is_empty();
        let is_free = self.run.is_none() && !self.is_opening;
        if is_free && self.session.as_ref().is_some_and(waits) {
            self.start_run(RunStart::Queued);
        }
    }

    fn with_session(&self, steer: fn(&Session)) {
        if let Some(joined) = &self.session {
            steer(&joined.session);
        }
    }

    fn switch_retry(&self, on: bool) {
        if let Some(joined) = &self.session {
            joined.session.set_auto_retry_enabled(on);
            self.send_input(Input::Changed(Change::Retries(on)));
            let says = match on {
                true => "Failures are retried.",
                false => "Failures are not retried any more, in this session.",
            };
            self.notice(Tone::Faint, says);
        }
    }

    fn take_back_queue(&mut self) {
        let Some(session) = self.session.as_ref().map(|it| Arc::clone(&it.session)) else {
            return;
        };
        self.spawn_task(async move {
            Some(match session.clear_queue().await {
                Ok(waiting) => {
                    let all = waiting.steering.iter().chain(&waiting.follow_up);
                    Input::QueueTakenBack(all.map(ModelMessage::text).collect())
                }
                Err(error) => error_input(&error),
            })
        });
    }

    fn cost(&self) -> Option<outlast_kernel::budget::Cost> {
        let session = &self.session.as_ref()?.session;
        let price = session.setup().price?;
        Some(price.cost(session.snapshot().usage))
    }

    /// Returns the context window of a newly chosen model, as a change of the status line.
    fn window_change(&self, model: &str) -> Option<Change> {
        let setup = self.session.as_ref()?.session.setup();
        let other = setup.fallbacks.iter().find(|route| route.model == model);
        let window = other.map_or(setup.traits.window, |route| route.traits.window);
        let name = model.to_owned();
        Some(Change::Model { name, window })
    }

    fn is_current(&self, event: &Event) -> bool {
        let current = self.session.as_ref();
        current.is_some_and(|joined| joined.session.id() == event.session_id)
    }

    /// Runs work in the background; its result goes to the chat.
    fn spawn_task(&mut self, work: impl Future<Output = Option<Input>> + Send + 'static) {
        self.background_tasks += 1;
        let sender = self.sender.clone();
        tokio::spawn(async move {
            sender.send(Message::TaskFinished(work.await)).ok();
        });
    }

    fn send_input(&self, input: Input) {
        self.sender.send(Message::Input(input)).ok();
    }

    pub(super) fn notice(&self, tone: Tone, says: &str) {
        let says = text::plain(says).into_owned();
        self.send_input(Input::Notice(tone, says));
    }
}

fn error_input(error: &dyn std::fmt::Display) -> Input {
    Input::Notice(Tone::Error, text::plain(&error.to_string()).into_owned())
}
