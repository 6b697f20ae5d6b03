//! The desk: many calls of one process before the gates that they share with other processes.
//!
//! However many wait, one of them speaks for all at the gate, so that a held call costs neither a timer nor an access to
//! the store. First come, first served, by when their trouble began.
//!
//! Invariants: a call is made with an admission, and what came of it is reported once: said, or given up when it is
//! dropped. Whoever drops its place has left the line.
//! Not here: the rules (see the kernel's `gate`) and what other processes know (see `shared_state`).

use crate::Clock;
use crate::shared_state::{Report, SharedState, affects_other_callers};
use outlast_kernel::Timestamp;
use outlast_kernel::failure::ClassifiedFailure;
use outlast_kernel::gate::{GateReply, Pass, Waiter, WaiterId};
use outlast_kernel::verdict::{Authority, Class};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};

/// How often the holder of a probe shows that it lives: well within its lease.
const LEASE_RENEW_INTERVAL: Duration = Duration::from_secs(20);
/// One that takes longer than this shows nothing: the next may try.
const MAX_RENEWALS: u32 = 2;

/// The desk of a process. Clones share it.
#[derive(Clone)]
pub struct Admission(Arc<Inner>);

struct Inner {
    shared_state: SharedState,
    clock: Arc<dyn Clock>,
    /// What tells our speakers from those of other processes.
    process_id: String,
    queues: Mutex<HashMap<Arc<str>, Queue>>,
    /// How many places were given so far, over all lines: no two are the same.
    positions_issued: AtomicU64,
    /// Before an account's seats, those of this process stand in line among themselves.
    permit_semaphores: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// Who waits before one gate, in order of when their trouble began.
#[derive(Default)]
struct Queue {
    waiters: BTreeMap<QueueKey, oneshot::Sender<Ticket>>,
    /// Wakes the speaker, while there is one.
    worker: Option<Arc<Notify>>,
    /// When the gate will be asked next.
    next_attempt: Option<Timestamp>,
}

type QueueKey = (Timestamp, u64);

/// The right to make one call.
pub struct Ticket {
    admission: Admission,
    gate: Arc<str>,
    pass: Option<Pass>,
    /// Shows that the holder of a probe lives.
    renewal_task: Option<tokio::task::AbortHandle>,
}

/// A place in line; a future that is ready when the call may be made.
pub struct QueuePosition {
    admission: Admission,
    gate: Arc<str>,
    key: QueueKey,
    ticket: oneshot::Receiver<Ticket>,
}

impl Admission {
    /// A desk that asks the gates of that knowledge.
    pub fn new(shared_state: SharedState, clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Inner {
            shared_state,
            clock,
            process_id: uuid::Uuid::now_v7().to_string(),
            queues: Mutex::default(),
            positions_issued: AtomicU64::new(0),
            permit_semaphores: Mutex::default(),
        }))
    }

    /// What this desk knows.
    pub fn shared_state(&self) -> &SharedState {
        &self.0.shared_state
    }

    /// The right to make a call now, where nobody waits; else the place to wait at.
    pub fn try_admit(&self, gate: &Arc<str>, since: Timestamp) -> Result<Ticket, QueuePosition> {
        if self.0.queues.lock().contains_key(gate) {
            return Err(self.enqueue(gate, since));
        }
        match self.0.shared_state.pass_if_closed(gate) {
            Some(pass) => Ok(self.ticket(gate, pass)),
            None => Err(self.enqueue(gate, since)),
        }
    }

    /// A place in line for a call whose trouble began then.
    pub fn enqueue(&self, gate: &Arc<str>, since: Timestamp) -> QueuePosition {
        let (sender, ticket) = oneshot::channel();
        let mut lines = self.0.queues.lock();
        let line = lines.entry(Arc::clone(gate)).or_default();
        let number = self.0.positions_issued.fetch_add(1, Ordering::Relaxed);
        let key = (since, number);
        line.waiters.insert(key, sender);
        if line.worker.is_none() {
            let notify = Arc::new(Notify::new());
            line.worker = Some(Arc::clone(&notify));
            let speaker = QueueWorker {
                admission: self.clone(),
                gate: Arc::clone(gate),
                since,
                notify,
                waiter_id: format!("{}/{number}", self.0.process_id),
            };
            tokio::spawn(speaker.run());
        }
        drop(lines);
        QueuePosition {
            admission: self.clone(),
            gate: Arc::clone(gate),
            key,
            ticket,
        }
    }

    /// The provider answered a call that had not asked.
    pub async fn report_success(&self, gate: &str) {
        self.0.shared_state.report(gate, Report::Recovered).await;
    }

    /// When the first in line will be let through or try, as far as that is known.
    pub fn next_attempt(&self, gate: &str) -> Option<Timestamp> {
        self.0.queues.lock().get(gate)?.next_attempt
    }

    fn ticket(&self, gate: &Arc<str>, pass: Pass) -> Ticket {
        Ticket {
            admission: self.clone(),
            gate: Arc::clone(gate),
            pass: Some(pass),
            renewal_task: None,
        }
    }

    fn probe_ticket(&self, gate: &Arc<str>, pass: Pass) -> Ticket {
        let (inner, name) = (Arc::clone(&self.0), Arc::clone(gate));
        let renewing = tokio::spawn(async move {
            for _ in 0..MAX_RENEWALS {
                inner.sleep(LEASE_RENEW_INTERVAL).await;
                inner.shared_state.report(&name, Report::Alive(pass)).await;
            }
        });
        let mut admission = self.ticket(gate, pass);
        admission.renewal_task = Some(renewing.abort_handle());
        admission
    }
}

impl Inner {
    async fn sleep(&self, time: Duration) {
        self.clock.sleep_until(self.clock.now() + time).await;
    }
}

// --- seats ---

/// How often a seat is asked for while all are taken.
const PERMIT_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// One of the calls that an account may have under way; given back when it is dropped.
pub struct Permit {
    admission: Admission,
    account: String,
    holder: String,
    renewal_task: tokio::task::AbortHandle,
    _semaphore_permit: Option<OwnedSemaphorePermit>,
}

impl Admission {
    /// Takes one of an account's seats, as soon as one is free. Those of this process come in order.
    pub async fn acquire_permit(&self, account: &str, most: u32) -> Permit {
        let line = {
            let mut seats = self.0.permit_semaphores.lock();
            let all = usize::try_from(most).unwrap_or(Semaphore::MAX_PERMITS);
            let new = || Arc::new(Semaphore::new(all.min(Semaphore::MAX_PERMITS)));
            Arc::clone(seats.entry(account.to_owned()).or_insert_with(new))
        };
        // It is never closed.
        let place = line.acquire_owned().await.ok();
        let holder = uuid::Uuid::now_v7().to_string();
        while !self
            .0
            .shared_state
            .acquire_permit(account, &holder, most)
            .await
        {
            self.0.sleep(PERMIT_POLL_INTERVAL).await;
        }
        let (inner, name) = (Arc::clone(&self.0), holder.clone());
        let of = account.to_owned();
        let renewing = tokio::spawn(async move {
            loop {
                inner.sleep(LEASE_RENEW_INTERVAL).await;
                inner.shared_state.acquire_permit(&of, &name, most).await;
            }
        });
        Permit {
            admission: self.clone(),
            account: account.to_owned(),
            holder,
            renewal_task: renewing.abort_handle(),
            _semaphore_permit: place,
        }
    }
}

impl Permit {
    /// Whether it is one of that account's.
    pub fn belongs_to(&self, account: &str) -> bool {
        self.account == account
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.renewal_task.abort();
        let (inner, holder) = (
            Arc::clone(&self.admission.0),
            std::mem::take(&mut self.holder),
        );
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { inner.shared_state.release_permit(&holder).await });
        }
    }
}

// --- the one who speaks for all ---

struct QueueWorker {
    admission: Admission,
    gate: Arc<str>,
    since: Timestamp,
    notify: Arc<Notify>,
    /// No two speakers have the same: one may end while the next begins.
    waiter_id: String,
}

impl QueueWorker {
    /// Asks the gate for those in line, one after the other, until nobody is left.
    async fn run(self) {
        let mut changes = self.admission.0.shared_state.changes();
        let mut asked: Option<Waiter> = None;
        loop {
            changes.mark_unchanged();
            let Some(waiter) = self.waiter_for_queue() else {
                // Nobody may stand behind those who have left.
                if let Some(last) = asked {
                    self.admission
                        .0
                        .shared_state
                        .leave_queue(&self.gate, &last)
                        .await;
                }
                return;
            };
            asked = Some(waiter.clone());
            match self
                .admission
                .0
                .shared_state
                .request_pass(&self.gate, &waiter)
                .await
            {
                GateReply::Proceed(pass) => {
                    self.admit_first(self.admission.ticket(&self.gate, pass))
                }
                GateReply::Probe(pass) => {
                    self.admit_first(self.admission.probe_ticket(&self.gate, pass))
                }
                GateReply::Hold(until) => {
                    self.set_next_attempt(until);
                    tokio::select! {
                        () = self.admission.0.clock.sleep_until(until) => {}
                        _ = changes.changed() => {}
                        () = self.notify.notified() => self.leave_gate_if_empty(&waiter).await,
                    }
                }
                // A speaker has no deadline.
                GateReply::DeadlineExceeded => return,
            }
        }
    }

    /// Who stands before the gate for all; `None` when nobody waits, and then there is no speaker any more.
    fn waiter_for_queue(&self) -> Option<Waiter> {
        let mut lines = self.admission.0.queues.lock();
        let line = lines.get_mut(&self.gate)?;
        let Ok(crowd) = u32::try_from(line.waiters.len()) else {
            return None;
        };
        if crowd == 0 {
            lines.remove(&self.gate);
            return None;
        }
        Some(Waiter {
            id: WaiterId(self.waiter_id.clone()),
            since: self.since,
            own_wake: self.admission.0.clock.now(),
            deadline: None,
            batch: Some(crowd),
        })
    }

    /// The first in line may call; when all have left, nobody does.
    fn admit_first(&self, admission: Ticket) {
        let mut admission = admission;
        loop {
            let first = {
                let mut lines = self.admission.0.queues.lock();
                lines
                    .get_mut(&self.gate)
                    .and_then(|line| line.waiters.pop_first())
            };
            let Some((_, first)) = first else { return };
            match first.send(admission) {
                Ok(()) => return,
                Err(returned) => admission = returned,
            }
        }
    }

    fn set_next_attempt(&self, until: Timestamp) {
        if let Some(line) = self.admission.0.queues.lock().get_mut(&self.gate) {
            line.next_attempt = Some(until);
        }
    }

    async fn leave_gate_if_empty(&self, waiter: &Waiter) {
        let is_empty = {
            let lines = self.admission.0.queues.lock();
            lines
                .get(&self.gate)
                .is_none_or(|line| line.waiters.is_empty())
        };
        if is_empty {
            self.admission
                .0
                .shared_state
                .leave_queue(&self.gate, waiter)
                .await;
        }
    }
}

// --- a place in line ---

impl Future for QueuePosition {
    type Output = Ticket;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Ticket> {
        match Pin::new(&mut self.ticket).poll(context) {
            Poll::Ready(Ok(admission)) => Poll::Ready(admission),
            // The speaker is gone only when the runtime is: nobody is let through any more.
            Poll::Ready(Err(_)) | Poll::Pending => Poll::Pending,
        }
    }
}

impl QueuePosition {
    /// When the gate will be asked next for those in line.
    pub fn next_attempt(&self) -> Option<Timestamp> {
        self.admission.next_attempt(&self.gate)
    }
}

impl Drop for QueuePosition {
    fn drop(&mut self) {
        let mut lines = self.admission.0.queues.lock();
        let Some(line) = lines.get_mut(&self.gate) else {
            return;
        };
        line.waiters.remove(&self.key);
        if let (true, Some(speaker)) = (line.waiters.is_empty(), &line.worker) {
            speaker.notify_one();
        }
    }
}

// --- what came of a call ---

impl Ticket {
    /// The provider took the call; everyone may know.
    pub async fn report_success(mut self) {
        if let Some(pass) = self.pass.take() {
            let succeeded = Report::Succeeded(pass);
            self.admission
                .0
                .shared_state
                .report(&self.gate, succeeded)
                .await;
        }
    }

    /// The call failed.
    pub async fn report_failure(mut self, judged: &ClassifiedFailure) {
        let Some(pass) = self.pass.take() else { return };
        let class = judged.verdict.class();
        let is_probe = self.renewal_task.is_some();
        let is_transient = class == Class::Transient;
        let report = if affects_other_callers(judged.verdict.cause) || (is_probe && is_transient) {
            let hint = judged.verdict.hint.as_ref();
            let stated = hint.filter(|hint| hint.authority == Authority::Stated);
            Report::Failed {
                pass,
                cause: judged.verdict.cause,
                stated: stated.map(|hint| hint.not_before),
                waiter: None,
            }
        } else if matches!(class, Class::Transient | Class::Canceled) {
            Report::Abandoned(pass)
        } else {
            // Whatever was wrong with it, the provider was there.
            Report::Succeeded(pass)
        };
        self.admission
            .0
            .shared_state
            .report(&self.gate, report)
            .await;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(renewing) = self.renewal_task.take() {
            renewing.abort();
        }
        if let Some(pass) = self.pass.take() {
            let (inner, gate) = (Arc::clone(&self.admission.0), Arc::clone(&self.gate));
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(async move {
                    inner
                        .shared_state
                        .report(&gate, Report::Abandoned(pass))
                        .await;
                });
            }
        }
    }
}
