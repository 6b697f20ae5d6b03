//! Which session the chat is about: the first one, another one, a new one; and how it is left.

use super::run::RunStart;
use super::{ActiveSession, Driver, Flow, Message};
use crate::factory::journal;
use crate::factory::session::Attendance;
use crate::factory::session_host::SessionHost;
use crate::platform::signals::{self, Signal};
use crate::tui::chat::{self, Chat, Input};
use crate::tui::status::Status;
use crate::tui::transcript::Tone;
use outlast_kernel::event::TurnStatus;
use outlast_session::Session;
use outlast_session::factory::{Host, Model, OpenedSession};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A turn that is left has so long to let go of what it holds.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(300);

/// The session that is wanted.
pub(super) enum SessionTarget {
    New,
    Named(String),
}

impl Driver {
    pub(super) fn open_host(&self) {
        let (sender, asker) = (self.sender.clone(), self.approver());
        let (choice, clock) = (self.choice.clone(), Arc::clone(&self.clock));
        tokio::spawn(async move {
            let attendance = Attendance::Attended(Arc::new(asker));
            let host = SessionHost::new(&choice, clock, attendance).await;
            sender.send(Message::Host(host.map(Arc::new))).ok();
        });
    }

    pub(super) fn open_first(&mut self) {
        let choice = self.choice.clone();
        self.spawn_open(async move |host| host.open_first(&choice).await);
    }

    /// Leaves the session for another one. One in which something runs is not left.
    pub(super) fn open(&mut self, which: SessionTarget) {
        if self.is_busy() {
            return;
        }
        self.is_opening = true;
        let current = self.session.as_ref().map(|it| Arc::clone(&it.session));
        let asked = self.session.as_ref();
        let asked = asked.map(|it| (it.model.provider.clone(), it.model.id.clone()));
        self.spawn_open(async move |host| {
            // What it is left for is had first: a name that is wrong changes nothing.
            if let (SessionTarget::Named(name), Some(current)) = (&which, &current)
                && let Some(journal) = host.journal()
                && journal::find(journal, name).await?.id == current.id()
            {
                anyhow::bail!("that is this session");
            }
            let opened = match which {
                SessionTarget::New => {
                    // It asks whom the one before it asked.
                    if let Some((provider, model)) = &asked {
                        host.choose_model_for_next(provider, model);
                    }
                    host.create().await
                }
                SessionTarget::Named(name) => host.open(&name).await,
            };
            let opened = opened.map_err(anyhow::Error::msg)?;
            if let Some(current) = current {
                host.leave_session(&current);
                current.close().await?;
            }
            Ok(opened)
        });
    }

    fn spawn_open<Work>(&mut self, work: impl FnOnce(Arc<SessionHost>) -> Work + Send + 'static)
    where
        Work: Future<Output = anyhow::Result<OpenedSession>> + Send,
    {
        let Some(host) = self.host.clone() else {
            return;
        };
        self.is_opening = true;
        let sender = self.sender.clone();
        tokio::spawn(async move {
            let opened = work(host).await;
            sender.send(Message::Opened(opened.map(Box::new))).ok();
        });
    }

    pub(super) fn finish_open(
        &mut self,
        opened: anyhow::Result<Box<OpenedSession>>,
        chat: &mut Chat,
    ) -> anyhow::Result<Flow> {
        self.is_opening = false;
        let OpenedSession { session, model } = match opened {
            Ok(opened) => *opened,
            // Without any session there is nothing to chat with.
            Err(error) if self.session.is_none() => return Err(error),
            Err(error) => {
                self.notice(Tone::Error, &format!("{error:#}"));
                self.send_early_messages();
                return Ok(Flow::Continue);
            }
        };
        let sender = self.sender.clone();
        let listening = session.subscribe(move |event| {
            sender.send(Message::Event(event.clone())).ok();
        });
        let joined = self.introduction(&session, &model);
        self.session = Some(ActiveSession {
            session: Arc::clone(&session),
            model,
            _subscription: listening,
        });
        self.answer_sender = None;
        let is_first = chat.status.session.is_empty();
        let next = self.handle_input(Input::SessionOpened(Box::new(joined)), chat);
        if is_first {
            self.load_history();
        }
        if session.unfinished_turn().is_some() {
            self.start_run(RunStart::Resume);
        } else if !session.queued_messages().is_empty() {
            self.start_run(RunStart::Queued);
        }
        self.send_early_messages();
        Ok(next)
    }

    fn send_early_messages(&mut self) {
        for text in std::mem::take(&mut self.early_messages) {
            self.send_message(text);
        }
    }

    /// What the chat is told of a session.
    fn introduction(&self, session: &Session, model: &Model) -> chat::Joined {
        let host = self.host.as_ref();
        let policy = host.and_then(|host| host.policy());
        let setup = session.setup();
        let waiting = session.queued_messages();
        let waiting = waiting.steering.iter().chain(&waiting.follow_up);
        let models = host.map(|host| host.models()).unwrap_or_default();
        let folder = host.map(|host| host.folder()).unwrap_or_default();
        chat::Joined {
            status: Status {
                session: session.id().to_owned(),
                folder: display_folder(&folder),
                model: session.snapshot().model,
                policy: policy
                    .map(|policy| policy.name.to_string())
                    .unwrap_or_default(),
                context: match session.message_count() {
                    0 => 0,
                    _ => session.estimated_tokens(),
                },
                window: setup.traits.window,
                cost: setup
                    .price
                    .map(|price| price.cost(session.snapshot().usage)),
                retries_off: !session.auto_retry_enabled(),
                is_unrecorded: !session.is_persistent(),
                ..Status::default()
            },
            models: models.iter().map(name).collect(),
            messages: session.messages(),
            replayed_messages: session
                .unfinished_turn()
                .map_or(0, |turn| turn.resume_state.inputs.len()),
            queued: waiting.map(outlast_dialect::Message::text).collect(),
            greeting: greeting(session, model),
        }
    }

    /// Gives everything back, and says how to go on. A turn that runs is left to be carried on.
    pub(in crate::tui) async fn leave(&mut self, signal: Option<Signal>) -> LeaveSummary {
        let Some(host) = self.host.take() else {
            return LeaveSummary::default();
        };
        if let Some(signal) = signal {
            host.set_signal(signal);
        }
        let joined = self.session.take();
        let run = self.run.take();
        let is_running = run.is_some();
        if let Some(joined) = &joined {
            host.leave_session(&joined.session);
        }
        if let Some(run) = run {
            run.abort();
            tokio::time::timeout(LEAVE_TIMEOUT, run).await.ok();
        }
        let mut left = match &joined {
            Some(joined) => close_session(joined, is_running).await,
            None => LeaveSummary::default(),
        };
        // That it is not written down was asked for.
        left.is_unrecorded &= !self.choice.no_session;
        host.finish(&signals::signals()).await;
        left
    }
}

/// What is left of a session.
#[derive(Default)]
pub(in crate::tui) struct LeaveSummary {
    /// How to go on with it.
    pub(in crate::tui) resume_hint: Option<String>,
    /// What is wrong with it.
    pub(in crate::tui) warning: Option<String>,
    /// Whether something of it is not written down.
    pub(in crate::tui) is_unrecorded: bool,
}

/// Closes a session.
async fn close_session(joined: &ActiveSession, is_running: bool) -> LeaveSummary {
    let session = &joined.session;
    let (id, is_kept) = (session.id(), session.is_persistent());
    let has_turns = session.turn_count() > 0;
    let mut left = LeaveSummary {
        is_unrecorded: has_turns && !is_kept,
        ..LeaveSummary::default()
    };
    if is_running && is_kept {
        let says = format!("Left in the middle: `outlast --session {id}` carries it on.");
        left.resume_hint = Some(says);
    } else if let Err(error) = session.close().await {
        let warning = format!("warning: the session is not written down to its end: {error}");
        (left.warning, left.is_unrecorded) = (Some(warning), true);
    } else if is_kept && has_turns {
        left.resume_hint = Some(format!(
            "`outlast --session {id}` goes on with this session."
        ));
    }
    left
}

/// The folder, with a short name for the user's own.
fn display_folder(folder: &Path) -> String {
    let home = std::env::home_dir();
    let below = home
        .as_ref()
        .and_then(|home| folder.strip_prefix(home).ok());
    match below {
        Some(below) if below.as_os_str().is_empty() => "~".to_owned(),
        Some(below) => format!("~/{}", below.display()),
        None => folder.display().to_string(),
    }
}

fn name(model: &Model) -> String {
    format!("{}:{}", model.provider, model.id)
}

fn greeting(session: &Session, model: &Model) -> Option<String> {
    if session.message_count() > 0 {
        let how = match session
            .last_seal()
            .filter(|_| session.unfinished_turn().is_none())?
        {
            TurnStatus::Completed => return None,
            TurnStatus::Error => "failed",
            TurnStatus::Aborted => "was interrupted",
        };
        return Some(format!("The last turn {how}; /retry tries it again."));
    }
    let scripted = match model.provider.as_str() {
        "mock" => {
            "\nThe scripted provider answers, without a key. `outlast doctor --provider anthropic` says what another one needs."
        }
        _ => "",
    };
    Some(format!(
        "Outlast. Say what you want done; /help lists commands and keys.{scripted}"
    ))
}
