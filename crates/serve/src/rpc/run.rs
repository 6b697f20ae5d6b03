//! A run: a prompt and everything that follows from it by itself, to the one completion that it has.
//!
//! Invariants: one run at a time; a run ends when its last turn has ended and nothing waits to be said, or when a turn
//! failed or was aborted; no turn is driven on while too much waits to be read.

use super::command::Caller;
use super::session_state::SessionState;
use crate::outbox::{Item, Outbox};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use outlast_dialect::Message;
use outlast_engine::CancellationToken;
use outlast_engine::turn::TurnOutcome;
use outlast_kernel::event::TurnStatus;
use outlast_session::Session;
use outlast_session::{Error, PromptRequest};
use std::future::{poll_fn, ready};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::AbortHandle;

/// A turn that is left has so long to let go of what it holds.
const DETACH_TIMEOUT: Duration = Duration::from_millis(300);

/// A run that is under way.
#[derive(Clone)]
pub(super) struct Run {
    /// Cancelled when it is to end.
    pub(super) stop: CancellationToken,
    /// Cancelled when it is over.
    pub(super) ended: CancellationToken,
    task: Option<AbortHandle>,
}

impl Run {
    /// Lets go of the turn without ending it.
    pub(super) async fn detach(self) {
        if let Some(task) = self.task {
            task.abort();
        }
        tokio::time::timeout(DETACH_TIMEOUT, self.ended.cancelled())
            .await
            .ok();
    }
}

/// How a run begins.
pub(super) enum RunStart {
    /// With something that is said.
    Prompt(Message),
    /// With what waits to be said.
    Queued,
    /// With the turn that was left or has failed.
    Resume,
}

/// How a run begins, and who waits for it to be accepted.
pub(super) struct RunRequest {
    pub(super) start: RunStart,
    pub(super) caller: Option<Caller>,
}

type TurnFuture<'a> = BoxFuture<'a, Result<Option<TurnOutcome>, Error>>;

impl SessionState {
    /// The run that is under way.
    pub(super) fn active_run(&self) -> Option<Run> {
        self.run.lock().clone()
    }

    /// Begins a run, unless one is under way: then what it was to begin with is handed back. Who is named hears when it is
    /// accepted, or why not.
    pub(super) fn begin_run(
        self: &Arc<Self>,
        begin: RunRequest,
        epoch: &CancellationToken,
    ) -> Option<RunRequest> {
        let session = self.session()?;
        let mut run = self.run.lock();
        if run.is_some() {
            return Some(begin);
        }
        let RunRequest { start, caller } = begin;
        if let Some(caller) = caller {
            self.expect_acceptance(caller);
        }
        let (stop, over) = (epoch.child_token(), CancellationToken::new());
        let mut begun = Run {
            stop: stop.clone(),
            ended: over.clone(),
            task: None,
        };
        let desk = Arc::clone(self);
        let work = async move {
            let _over = over.drop_guard();
            let work = AssertUnwindSafe(desk.carry_on(&session, start, stop.clone()));
            // A bug of ours ends the run, and not all that come after it.
            if work.catch_unwind().await.is_err() {
                desk.end_run(&session, Some(TurnStatus::Error), &stop);
            }
        };
        begun.task = Some(self.tasks.spawn(work).abort_handle());
        *run = Some(begun);
        None
    }

    /// Says what waits, unless that is to end which it follows.
    fn begin_queued_run(self: &Arc<Self>, epoch: &CancellationToken) {
        let begin = RunRequest {
            start: RunStart::Queued,
            caller: None,
        };
        if !epoch.is_cancelled() {
            // A run that is under way says it, too.
            self.begin_run(begin, epoch);
        }
    }

    /// Drives a run to its end.
    async fn carry_on(
        self: &Arc<Self>,
        session: &Arc<Session>,
        first: RunStart,
        stop: CancellationToken,
    ) {
        let mut turn = self.first_turn(session, first, stop.clone());
        let seal = loop {
            match self.follow(session, turn, &stop).await {
                Ok(Some(ended)) if ended.seal != TurnStatus::Completed => break Some(ended.seal),
                Ok(ended) if ended.is_none() || stop.is_cancelled() => break None,
                Ok(_) => turn = self.queued_turn(session, stop.clone()),
                Err(error) => return self.fail_run_start(&error),
            }
        };
        self.end_run(session, seal, &stop);
    }

    fn first_turn<'a>(
        &self,
        session: &'a Session,
        first: RunStart,
        stop: CancellationToken,
    ) -> TurnFuture<'a> {
        match first {
            RunStart::Prompt(message) => {
                let ask = self.ask(Some(message), stop);
                session.prompt(ask).map(|ended| ended.map(Some)).boxed()
            }
            RunStart::Queued => self.queued_turn(session, stop),
            RunStart::Resume if session.unfinished_turn().is_some() => {
                let resumed = session.resume_cancellable(stop);
                resumed.map(|ended| ended.map(Some)).boxed()
            }
            RunStart::Resume if !session.queued_messages().is_empty() => {
                self.queued_turn(session, stop)
            }
            RunStart::Resume => {
                let ask = self.ask(None, stop);
                session
                    .retry_last_turn(ask)
                    .map(|ended| ended.map(Some))
                    .boxed()
            }
        }
    }

    fn queued_turn<'a>(&self, session: &'a Session, stop: CancellationToken) -> TurnFuture<'a> {
        if session.queued_messages().is_empty() {
            return ready(Ok(None)).boxed();
        }
        session.prompt_queued(self.ask(None, stop)).boxed()
    }

    fn ask(&self, message: Option<Message>, abort: CancellationToken) -> PromptRequest {
        PromptRequest {
            message,
            limits: self.host.limits(),
            options: self.host.resume_options(),
            model_chosen: self.is_model_chosen.load(Ordering::Relaxed),
            abort,
        }
    }

    /// Follows a turn to its end, as fast as its events are read.
    async fn follow(
        &self,
        session: &Session,
        turn: TurnFuture<'_>,
        stop: &CancellationToken,
    ) -> Result<Option<TurnOutcome>, Error> {
        let mut turn = pin!(paced(turn, &self.outbox, stop));
        tokio::select! {
            ended = &mut turn => return ended,
            () = stop.cancelled() => session.abort(),
        }
        turn.await
    }

    /// Nothing was begun: whoever has asked for it is told, and there is no completion.
    fn fail_run_start(&self, error: &Error) {
        let unaccepted = self.take_pending_acceptance();
        *self.run.lock() = None;
        match unaccepted {
            Some(caller) => self.reply(caller.error(&error.to_string())),
            // A later turn of a run could not begin; what waits is still there.
            None => self.outbox.send(Item::RunEnded { aborted: false }),
        }
    }

    fn end_run(
        self: &Arc<Self>,
        session: &Session,
        seal: Option<TurnStatus>,
        stop: &CancellationToken,
    ) {
        let aborted = stop.is_cancelled() || seal == Some(TurnStatus::Aborted);
        if let Some(caller) = self.take_pending_acceptance() {
            self.reply(caller.error("it was aborted before it began"));
        }
        let ended_well = seal.is_none() && !aborted;
        self.last_run_succeeded.store(ended_well, Ordering::Relaxed);
        // What is said to a session in which nothing runs waits for the next prompt: what this run still has to say is what
        // waits in the moment in which it ends.
        let waiting = {
            let mut run = self.run.lock();
            *run = None;
            session.queued_messages()
        };
        self.outbox.send(Item::RunEnded { aborted });
        let left = match aborted {
            true => 0,
            // What was said by the run waits no more.
            false => waiting.steering.len() + waiting.follow_up.len(),
        };
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        self.queued_prompts.fetch_min(left, Ordering::Relaxed);
        if left > 0 && (ended_well || self.take_queued_prompt()) {
            self.begin_queued_run(stop);
        }
    }

    /// A prompt that came during a wait has its turn also when the wait was in vain.
    fn take_queued_prompt(&self) -> bool {
        let less = |count: u32| count.checked_sub(1);
        let prompts = &self.queued_prompts;
        let less = prompts.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        less.is_ok()
    }

    /// What came while the last run was ending has been seen by nobody.
    pub(super) fn run_missed_messages(self: &Arc<Self>, epoch: &CancellationToken) {
        if self.active_run().is_none() && self.last_run_succeeded.load(Ordering::Relaxed) {
            self.begin_queued_run(epoch);
        }
    }
}

/// Drives a turn only while what it says can be taken in, until it is to end.
async fn paced(
    mut turn: TurnFuture<'_>,
    outbox: &Outbox,
    stop: &CancellationToken,
) -> <TurnFuture<'static> as Future>::Output {
    let mut hold: Option<BoxFuture<'_, ()>> = None;
    poll_fn(|context| {
        if hold.is_none() && outbox.is_full() && !stop.is_cancelled() {
            hold = Some(Box::pin(async {
                tokio::select! {
                    () = outbox.wait_for_space() => {}
                    () = stop.cancelled() => {}
                }
            }));
        }
        if let Some(wait) = &mut hold {
            std::task::ready!(wait.as_mut().poll(context));
            hold = None;
        }
        turn.as_mut().poll(context)
    })
    .await
}
