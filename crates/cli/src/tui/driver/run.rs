//! A run: a message and all that follows from it by itself.

use super::{Driver, Flow, Message, error_input};
use crate::factory::session_host::SessionHost;
use crate::output::screen;
use crate::tui::chat::{Chat, Input, Outcome};
use crate::tui::transcript::Tone;
use futures_util::FutureExt;
use outlast_dialect::Message as ModelMessage;
use outlast_engine::CancellationToken;
use outlast_engine::turn::TurnOutcome;
use outlast_kernel::event::TurnStatus;
use outlast_kernel::policy::Policy;
use outlast_session::Session;
use outlast_session::factory::Host;
use outlast_session::{Error, PromptRequest};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// How a run begins.
pub(super) enum RunStart {
    Prompt(ModelMessage),
    /// With what waits to be said.
    Queued,
    /// With the turn that an earlier process left.
    Resume,
    /// With the turn that failed.
    Retry,
}

impl Driver {
    pub(super) fn start_run(&mut self, first: RunStart) {
        let (Some(joined), Some(host)) = (&self.session, &self.host) else {
            return;
        };
        let (session, host) = (Arc::clone(&joined.session), Arc::clone(host));
        let is_chosen = std::mem::take(&mut self.is_model_chosen);
        self.stop = CancellationToken::new();
        let stop = self.stop.clone();
        self.send_input(Input::TaskStarted);
        let sender = self.sender.clone();
        self.run = Some(tokio::spawn(async move {
            let work = AssertUnwindSafe(run(&session, &host, first, is_chosen, stop));
            // A bug of ours ends the run, and not all that come after it; what it is was told.
            let outcome = work.catch_unwind().await.unwrap_or_default();
            sender.send(Message::RunEnded(outcome)).ok();
        }));
    }

    pub(super) fn run_ended(&mut self, outcome: Outcome, chat: &mut Chat) -> Flow {
        self.run = None;
        let waits = self.session.as_ref();
        let waits = waits.is_some_and(|joined| !joined.session.queued_messages().is_empty());
        // It came when the run was about to end. What was meant for one that was interrupted is handed back.
        if waits && outcome == Outcome::default() {
            self.start_run(RunStart::Queued);
            return Flow::Continue;
        }
        self.handle_input(Input::TaskEnded(outcome), chat)
    }

    pub(super) fn retry_turn(&mut self) {
        let Some(joined) = &self.session else {
            return;
        };
        match joined.session.last_seal() {
            _ if self.is_busy() => {}
            Some(TurnStatus::Error | TurnStatus::Aborted) => {
                self.send_input(Input::TurnReplayed);
                self.start_run(RunStart::Retry);
            }
            _ => self.notice(Tone::Faint, "There is nothing to try again."),
        }
    }

    pub(super) fn compact(&mut self, focus: String) {
        let (Some(joined), Some(host)) = (&self.session, &self.host) else {
            return;
        };
        if self.is_busy() {
            return;
        }
        let (session, limits) = (Arc::clone(&joined.session), host.limits());
        self.stop = CancellationToken::new();
        let stop = self.stop.clone();
        self.send_input(Input::TaskStarted);
        let sender = self.sender.clone();
        self.run = Some(tokio::spawn(async move {
            let focus = Some(focus.as_str()).filter(|focus| !focus.is_empty());
            let says = match session.compact_cancellable(stop, focus, limits).await {
                Ok(compacted) => Input::Notice(
                    Tone::Faint,
                    format!(
                        "The conversation was made smaller, from about {} to about {} tokens.",
                        compacted.before, compacted.after
                    ),
                ),
                Err(error) => error_input(&error),
            };
            sender.send(Message::Input(says)).ok();
            sender.send(Message::RunEnded(Outcome::default())).ok();
        }));
    }
}

async fn run(
    session: &Session,
    host: &SessionHost,
    first: RunStart,
    is_chosen: bool,
    stop: CancellationToken,
) -> Outcome {
    let ask = |message: Option<ModelMessage>| PromptRequest {
        message,
        limits: host.limits(),
        options: host.resume_options(),
        model_chosen: is_chosen,
        abort: stop.clone(),
    };
    let mut ended = match first {
        RunStart::Prompt(message) => {
            let text = message.text();
            match session.prompt(ask(Some(message))).await {
                Ok(ended) => Ok(Some(ended)),
                // Nothing was said; it can be said again.
                Err(error) => return Outcome::with_unsent_message(&error, text),
            }
        }
        RunStart::Queued => session.prompt_queued(ask(None)).await,
        RunStart::Resume => session.resume_cancellable(stop.clone()).await.map(Some),
        RunStart::Retry => session.retry_last_turn(ask(None)).await.map(Some),
    };
    loop {
        match ended {
            Ok(Some(turn)) if is_answered(&turn) && !session.queued_messages().is_empty() => {
                ended = session.prompt_queued(ask(None)).await;
            }
            ended => return outcome(ended, host.policy()),
        }
    }
}

impl Outcome {
    fn with_unsent_message(error: &Error, text: String) -> Self {
        Self {
            problem: Some(error.to_string()),
            unsent_message: Some(text),
            ..Self::default()
        }
    }
}

fn is_answered(turn: &TurnOutcome) -> bool {
    turn.seal == TurnStatus::Completed
}

/// A remedy as it is typed here.
fn chat_hint(remedy: String) -> String {
    match remedy.contains("--policy overnight") {
        true => "a more patient policy waits longer: /policy overnight, then /retry".to_owned(),
        false => remedy,
    }
}

fn outcome(ended: Result<Option<TurnOutcome>, Error>, policy: Option<Policy>) -> Outcome {
    match ended {
        Ok(None) => Outcome::default(),
        Ok(Some(ended)) => {
            let (problem, remedy) = screen::outcome_messages(&ended, policy.as_ref());
            let hint = remedy.map(chat_hint);
            Outcome {
                is_interrupted: !is_answered(&ended),
                problem,
                hint,
                ..Outcome::default()
            }
        }
        Err(error) => Outcome {
            is_interrupted: true,
            problem: Some(error.to_string()),
            ..Outcome::default()
        },
    }
}
