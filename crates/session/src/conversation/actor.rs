//! The task that drives a session: takes commands in order, and runs the turns.
//!
//! Decisions are made between two turns, with nothing else in between: a message that was queued before a turn ended is seen
//! when it ends. A command that needs a run to be over waits at the head of the queue; an abort does not come this way.

use super::{Accepted, Command, Delivery, Rejected, Reply, RunOutcome, Shared, Submission};
use crate::snapshot::{Subscription, Update};
use crate::{Compacted, Error, PromptRequest, Queued, Session};
use futures_util::FutureExt;
use outlast_dialect::Message;
use outlast_engine::inbox::QueueKind;
use outlast_engine::turn::TurnOutcome;
use outlast_engine::{BoxFuture, CancellationToken};
use outlast_kernel::event::TurnStatus;
use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::task::ready;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio_util::task::AbortOnDropHandle;

/// Time that a turn gets to give back what it holds when it is left.
const DETACH_TIMEOUT: Duration = Duration::from_millis(300);

type TurnResult = Result<Option<TurnOutcome>, Error>;

pub(super) struct Actor {
    shared: Arc<Shared>,
    submissions: mpsc::UnboundedReceiver<Submission>,
    /// The next command, while it waits for the end of a run or of a compaction.
    head: Option<Submission>,
    run: Option<Run>,
    /// The compactions by hand; each ends with its epoch.
    compactions: JoinSet<CancellationToken>,
    /// How many of the queued messages are prompts that are sent even if the turn before them fails.
    queued_prompts: usize,
    /// The aborts that wait for the end of the run.
    aborts: Vec<Reply<()>>,
    _subscription: Subscription,
}

/// The active run.
struct Run {
    epoch: CancellationToken,
    /// Cancelled when the run is to end.
    stop: CancellationToken,
    turn: AbortOnDropHandle<TurnResult>,
    last_turn: Option<Arc<TurnOutcome>>,
}

/// The beginning of a run.
enum RunStart {
    Prompt(Message),
    /// With the queued messages.
    Queued,
    /// With the unfinished turn, the queued messages or the failed turn.
    Resume,
    /// With the failed turn.
    Retry,
}

impl Actor {
    pub(super) fn new(
        shared: Arc<Shared>,
        submissions: mpsc::UnboundedReceiver<Submission>,
    ) -> Self {
        let observer = Arc::clone(&shared);
        let observe = move |update: Update<'_>| observer.observe(update);
        Self {
            _subscription: shared.session.subscribe_to_updates(observe),
            shared,
            submissions,
            head: None,
            run: None,
            compactions: JoinSet::new(),
            queued_prompts: 0,
            aborts: Vec::new(),
        }
    }

    pub(super) async fn run(mut self) {
        let stop = self.shared.stop.clone();
        loop {
            if let Some(next) = self.take_head() {
                self.handle(next).await;
                self.update_status();
                continue;
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                ended = end_of_turn(&mut self.run) => self.turn_ended(ended),
                Some(ended) = self.compactions.join_next() => self.compaction_ended(ended.ok()),
                next = self.submissions.recv(), if self.head.is_none() => match next {
                    Some(next) => self.head = Some(next),
                    None => break,
                },
            }
            self.update_status();
        }
        self.leave().await;
    }

    /// Lets go of the session: a turn is left as it is, compactions are ended.
    async fn leave(mut self) {
        if let Some(Run { turn, .. }) = self.run.take() {
            turn.abort();
            tokio::time::timeout(DETACH_TIMEOUT, turn).await.ok();
        } else if !self.compactions.is_empty() {
            self.session().abort();
            while self.compactions.join_next().await.is_some() {}
        }
        let shared = Arc::clone(&self.shared);
        // Commands are dropped, and with them their replies.
        drop(self);
        drop(shared.progress.lock().acceptance.take());
        shared.status.send_modify(|status| {
            (status.is_running, status.compactions, status.is_closed) = (false, 0, true);
        });
    }

    fn session(&self) -> &Session {
        &self.shared.session
    }

    fn update_status(&self) {
        let now = self.compactions.len();
        self.shared
            .status
            .send_if_modified(|status| std::mem::replace(&mut status.compactions, now) != now);
    }

    // --- Commands ---

    /// Takes the next command, unless it has to wait.
    fn take_head(&mut self) -> Option<Submission> {
        let next = self.head.as_ref()?;
        let must_wait = match (&next.command, &self.run) {
            (
                Command::Prompt(..) | Command::Resume(_) | Command::Retry(_) | Command::Compact(..),
                Some(run),
            ) => run.stop.is_cancelled() || self.shared.progress.lock().is_sealed,
            // It was aborted together with the compaction; its run begins nevertheless, and ends at once.
            (Command::Prompt(..), None) => {
                next.epoch.is_cancelled() && !self.compactions.is_empty()
            }
            _ => false,
        };
        self.head.take_if(|_| !must_wait)
    }

    async fn handle(&mut self, submission: Submission) {
        let Submission {
            command,
            epoch,
            _begun,
        } = submission;
        match command {
            Command::Prompt(message, delivery, reply) => {
                self.prompt(message, delivery, reply, epoch).await;
            }
            Command::Enqueue(kind, message, reply) => {
                reply(self.enqueue(kind, message).await);
            }
            Command::Resume(reply) => self.begin_if_idle(RunStart::Resume, reply, epoch),
            Command::Retry(reply) => self.begin_if_idle(RunStart::Retry, reply, epoch),
            Command::Compact(focus, then) => self.compact(focus, then, epoch),
            Command::ClearQueue(reply) => {
                let cleared = self.session().clear_queue().await;
                if cleared.is_ok() {
                    self.queued_prompts = 0;
                }
                reply(cleared.map_err(Rejected::from));
            }
            Command::Abort(reply) => self.abort(reply, &epoch),
        }
    }

    async fn prompt(
        &mut self,
        message: Message,
        delivery: Delivery,
        reply: Reply<Accepted>,
        epoch: CancellationToken,
    ) {
        let is_unfinished = self.run.is_none() && self.session().unfinished_turn().is_some();
        let must_queue = is_unfinished || !self.compactions.is_empty();
        if self.run.is_none() && !must_queue {
            return self.begin_run(RunStart::Prompt(message), Some(reply), epoch);
        }
        let is_waiting = self.shared.is_waiting();
        let kind = match delivery {
            Delivery::IfIdle if !must_queue && !is_waiting => return reply(Err(Rejected::Busy)),
            Delivery::Steer if !must_queue => QueueKind::Steering,
            Delivery::IfIdle | Delivery::Steer | Delivery::FollowUp | Delivery::NextTurn => {
                QueueKind::FollowUp
            }
        };
        let queued = self.enqueue(kind, message).await;
        let is_next = matches!(delivery, Delivery::IfIdle | Delivery::NextTurn) && is_waiting;
        if queued.is_ok() && (must_queue || is_next) && !epoch.is_cancelled() {
            self.queued_prompts += 1;
        }
        reply(queued);
        self.begin_queued_prompts(epoch);
    }

    async fn enqueue(&mut self, kind: QueueKind, message: Message) -> Result<Accepted, Rejected> {
        self.session().enqueue(kind, message).await?;
        Ok(Accepted::Queued)
    }

    fn begin_if_idle(&mut self, start: RunStart, reply: Reply<Accepted>, epoch: CancellationToken) {
        match self.run {
            Some(_) => reply(Err(Rejected::Busy)),
            None => self.begin_run(start, Some(reply), epoch),
        }
    }

    fn compact(
        &mut self,
        focus: Option<String>,
        then: super::AfterCompaction,
        epoch: CancellationToken,
    ) {
        let session = Arc::clone(&self.shared.session);
        let (abort, limits) = (epoch.child_token(), (self.shared.options.settings)().limits);
        let mut work = Box::pin(async move {
            let compacted: Result<Compacted, Error> = session
                .compact_cancellable(abort, focus.as_deref(), limits)
                .await;
            then(compacted).await;
            epoch
        });
        // It has begun before the next command does.
        match work.as_mut().now_or_never() {
            Some(epoch) => self.compaction_ended(Some(epoch)),
            None => drop(self.compactions.spawn(work)),
        }
    }

    fn compaction_ended(&mut self, epoch: Option<CancellationToken>) {
        if let Some(epoch) = epoch {
            self.begin_queued_prompts(epoch);
        }
        self.settle_aborts();
    }

    /// Starts the prompts that had to wait, unless they or what they waited for were aborted.
    fn begin_queued_prompts(&mut self, epoch: CancellationToken) {
        let is_idle = self.run.is_none() && self.compactions.is_empty();
        if !is_idle || self.queued_prompts == 0 || epoch.is_cancelled() {
            return;
        }
        let start = match self.session().unfinished_turn() {
            Some(_) => RunStart::Resume,
            None => RunStart::Queued,
        };
        self.begin_run(start, None, epoch);
    }

    /// The epoch has ended already, and with it everything that has begun. An unfinished turn is resumed to be settled.
    fn abort(&mut self, reply: Reply<()>, epoch: &CancellationToken) {
        self.queued_prompts = 0;
        if self.run.is_none() && self.session().unfinished_turn().is_some() {
            self.begin_run(RunStart::Resume, None, epoch.clone());
        }
        self.aborts.push(reply);
        self.settle_aborts();
    }

    fn settle_aborts(&mut self) {
        if self.run.is_none() && self.compactions.is_empty() {
            self.aborts.drain(..).for_each(|reply| reply(Ok(())));
        }
    }

    // --- Runs ---

    fn begin_run(
        &mut self,
        start: RunStart,
        acceptance: Option<Reply<Accepted>>,
        epoch: CancellationToken,
    ) {
        // Before the turn can announce anything.
        self.shared.progress.lock().acceptance = acceptance;
        self.shared.status.send_modify(|status| {
            status.is_running = true;
            status.runs_begun += 1;
        });
        let stop = epoch.child_token();
        self.run = Some(Run {
            turn: self.begin_turn(start, &stop),
            epoch,
            stop,
            last_turn: None,
        });
    }

    fn begin_turn(
        &self,
        start: RunStart,
        stop: &CancellationToken,
    ) -> AbortOnDropHandle<TurnResult> {
        self.shared.progress.lock().is_sealed = false;
        let settings = (self.shared.options.settings)();
        let mut ask = PromptRequest {
            message: None,
            limits: settings.limits,
            options: settings.options,
            model_chosen: *self.shared.is_model_chosen.lock(),
            abort: stop.clone(),
        };
        let session = Arc::clone(&self.shared.session);
        let turn = async move {
            let has_queued = !session.queued_messages().is_empty();
            match start {
                RunStart::Prompt(message) => {
                    ask.message = Some(message);
                    session.prompt(ask).await.map(Some)
                }
                RunStart::Resume if session.unfinished_turn().is_some() => {
                    session.resume_cancellable(ask.abort).await.map(Some)
                }
                RunStart::Resume if has_queued => session.prompt_queued(ask).await,
                RunStart::Queued if has_queued => session.prompt_queued(ask).await,
                RunStart::Queued => Ok(None),
                RunStart::Resume | RunStart::Retry => session.retry_last_turn(ask).await.map(Some),
            }
        };
        let hold = self.shared.options.hold.clone();
        let turn = paced(turn.boxed(), hold, stop.clone());
        AbortOnDropHandle::new(tokio::spawn(turn))
    }

    /// Decides what follows a turn: another turn of the run, or its end.
    fn turn_ended(&mut self, ended: Result<TurnResult, JoinError>) {
        let Some(mut run) = self.run.take() else {
            return;
        };
        let status = match ended {
            Ok(Ok(Some(turn))) => {
                let seal = turn.seal;
                run.last_turn = Some(Arc::new(turn));
                seal
            }
            Ok(Ok(None)) => TurnStatus::Completed,
            Ok(Err(error)) => return self.run_failed(run, error),
            // A bug of ours ends the run, but not those after it.
            Err(_) => TurnStatus::Error,
        };
        let aborted = run.stop.is_cancelled() || status == TurnStatus::Aborted;
        let ended_well = status == TurnStatus::Completed && !aborted;
        let queued = self.queue_len();
        if ended_well && queued > 0 && self.shared.options.sends_queued {
            run.turn = self.begin_turn(RunStart::Queued, &run.stop);
            self.run = Some(run);
            return;
        }
        self.queued_prompts = if aborted {
            0
        } else {
            self.queued_prompts.min(queued)
        };
        let next = self.queued_prompts.checked_sub(1).map(|left| {
            self.queued_prompts = left;
            run.epoch.clone()
        });
        let outcome = RunOutcome {
            turn: run.last_turn,
            aborted,
            error: None,
        };
        self.end_run(outcome, next);
    }

    /// Ends a run because a turn could not begin. If that is the first turn, only the caller is told.
    fn run_failed(&mut self, run: Run, error: Error) {
        let acceptance = self.shared.progress.lock().acceptance.take();
        match acceptance {
            Some(reply) => {
                self.set_idle();
                reply(Err(error.into()));
                self.count_end(RunOutcome::default());
                self.settle_aborts();
            }
            None => self.end_run(
                RunOutcome {
                    turn: run.last_turn,
                    aborted: false,
                    error: Some(Arc::new(error)),
                },
                None,
            ),
        }
    }

    /// Ends a run; `next` is the epoch of the run that follows by itself.
    fn end_run(&mut self, outcome: RunOutcome, next: Option<CancellationToken>) {
        let acceptance = self.shared.progress.lock().acceptance.take();
        if let Some(reply) = acceptance {
            reply(Err(Rejected::Aborted));
        }
        if next.is_none() {
            self.set_idle();
        }
        self.session().publish_run_end(outcome.clone());
        // Whoever waits for the session to settle must not see it settled in between.
        if let Some(epoch) = next {
            self.begin_run(RunStart::Queued, None, epoch);
        }
        self.count_end(outcome);
        self.settle_aborts();
    }

    fn set_idle(&self) {
        let status = &self.shared.status;
        status.send_modify(|status| status.is_running = false);
    }

    fn count_end(&self, outcome: RunOutcome) {
        self.shared.status.send_modify(|status| {
            status.runs_ended += 1;
            status.last_outcome = outcome;
        });
    }

    fn queue_len(&self) -> usize {
        let Queued {
            steering,
            follow_up,
        } = self.session().queued_messages();
        steering.len() + follow_up.len()
    }
}

/// Resolves when the turn of the run has ended; never if there is no run.
async fn end_of_turn(run: &mut Option<Run>) -> Result<TurnResult, JoinError> {
    match run {
        Some(run) => (&mut run.turn).await,
        None => pending().await,
    }
}

/// Drives a turn only while no reader holds it up, until it is to end.
async fn paced(
    mut turn: BoxFuture<'static, TurnResult>,
    hold: Option<watch::Receiver<bool>>,
    stop: CancellationToken,
) -> TurnResult {
    let Some(hold) = hold else {
        return turn.await;
    };
    let mut wait: Option<BoxFuture<'_, ()>> = None;
    poll_fn(|context| {
        if wait.is_none() && *hold.borrow() && !stop.is_cancelled() {
            let (mut hold, stop) = (hold.clone(), stop.clone());
            wait = Some(Box::pin(async move {
                tokio::select! {
                    _ = hold.wait_for(|is_held| !is_held) => {}
                    () = stop.cancelled() => {}
                }
            }));
        }
        if let Some(waiting) = &mut wait {
            ready!(waiting.as_mut().poll(context));
            wait = None;
        }
        turn.as_mut().poll(context)
    })
    .await
}
