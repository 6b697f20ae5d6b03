//! What is known of providers and accounts: shared with every process through the store, or, without it, within this
//! one.
//!
//! Invariants: the store never stops a call. Whatever it does (missing, locked, damaged, read-only, full), work goes on
//! in memory, it is said once, and the store is joined again when it can be. Without a failure on record, asking costs
//! no access to the store.
//! Not here: the rules (see the kernel's `gate` and `account`) and the file (see the store).
//! Long because gates, accounts and permits share one lock; the next rules of the gate split it.

mod poller;

use crate::Clock;
use outlast_kernel::Timestamp;
use outlast_kernel::account::{Block, Blocks};
use outlast_kernel::gate::{Gate, GateReply, Pass, Waiter, WaiterId};
use outlast_kernel::verdict::Cause;
use outlast_store::{Error, GateSnapshot, PermitReply, PermitRequest, Store};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;

pub use outlast_kernel::gate::Report;

/// How long the store may take for one answer before work goes on without it.
const STORE_TIMEOUT: Duration = Duration::from_secs(3);

/// What a user is told about the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreEvent {
    /// Work goes on without it.
    Disconnected {
        /// Why.
        why: String,
    },
    /// It is there again.
    Connected,
    /// It was damaged; a new one was made.
    Replaced {
        /// Where the damaged file is kept.
        backup_path: PathBuf,
    },
}

/// A gate at which something is wrong, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenGate {
    /// Its name.
    pub name: String,
    /// What went wrong last.
    pub cause: Option<Cause>,
    /// Until when the provider said not to come; it may be over.
    pub stated_end: Timestamp,
    /// How many wait before it, over all processes.
    pub waiting: u64,
}

/// Who is told.
pub type Listener = Arc<dyn Fn(StoreEvent) + Send + Sync>;

/// What is known. Clones share it.
#[derive(Clone)]
pub struct SharedState(Arc<Inner>);

struct Inner {
    clock: Arc<dyn Clock>,
    path: Option<PathBuf>,
    listener: Listener,
    store: Mutex<StoreLink>,
    /// What the store had when it was last read; without a store, all that there is.
    gates: Mutex<HashMap<String, GateSnapshot>>,
    blocks: Mutex<Blocks>,
    /// Who waits in this process, to be renewed in the store.
    waiters: Mutex<HashMap<String, Vec<Waiter>>>,
    /// Calls that were accepted while nothing was wrong, and have not been told of.
    unreported_successes: Mutex<HashMap<String, u32>>,
    /// Calls under way, by holder, where there is no store to count them.
    permits: Mutex<HashMap<String, String>>,
    changed: watch::Sender<u64>,
    /// How often this process itself has changed what it knows: what was read from the store before is older.
    local_changes: AtomicU64,
    /// Something was read from the store that was too old to be taken over.
    needs_reload: AtomicBool,
    /// The store has not been opened yet, well or badly.
    is_first_connection: AtomicBool,
}

/// Whether the store is there.
enum StoreLink {
    Connected(Store),
    Disconnected { damaged: bool },
}

impl SharedState {
    /// Knowledge of this process only.
    pub fn process_local(clock: Arc<dyn Clock>) -> Self {
        Self::new(clock, None, Arc::new(|_| {}))
    }

    /// Knowledge that is shared through the file at that path. Must be called within a runtime.
    pub async fn connect(path: PathBuf, clock: Arc<dyn Clock>, listener: Listener) -> Self {
        let knowledge = Self::new(clock, Some(path), listener);
        knowledge.connect_store().await;
        poller::start(&knowledge.0);
        knowledge
    }

    fn new(clock: Arc<dyn Clock>, path: Option<PathBuf>, listener: Listener) -> Self {
        Self(Arc::new(Inner {
            clock,
            path,
            listener,
            store: Mutex::new(StoreLink::Disconnected { damaged: false }),
            gates: Mutex::default(),
            blocks: Mutex::default(),
            waiters: Mutex::default(),
            unreported_successes: Mutex::default(),
            permits: Mutex::default(),
            changed: watch::Sender::new(0),
            local_changes: AtomicU64::new(0),
            needs_reload: AtomicBool::new(false),
            is_first_connection: AtomicBool::new(true),
        }))
    }

    /// Whether others are there that nothing is known of, because the store is gone.
    pub fn is_store_unavailable(&self) -> bool {
        self.0.path.is_some() && self.0.store().is_none()
    }

    /// Follows changes: whoever waits looks again when this says so.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }
}

// --- gates ---

impl SharedState {
    /// Asks the gate of that name to make a call.
    pub async fn request_pass(&self, gate: &str, waiter: &Waiter) -> GateReply {
        let now = self.0.clock.now();
        if let Some(answer) = self.answer_if_closed(gate, waiter, now) {
            // Who waited until it was over waits no more.
            self.leave_queue(gate, waiter).await;
            return answer;
        }
        if let Some(store) = self.0.store() {
            let asked = store.request_pass(gate, waiter.clone(), now);
            if let Some((answer, state)) = self.0.try_store(asked).await {
                self.0.update_gate(gate, |scene| {
                    scene.gate = state;
                    match answer {
                        GateReply::Hold(_) => scene.queue.join(waiter.clone()),
                        GateReply::DeadlineExceeded => scene.queue.leave(waiter),
                        GateReply::Proceed(_) | GateReply::Probe(_) => scene.queue.admit(waiter),
                    }
                });
                self.0.track_waiter_after(gate, waiter, answer);
                return answer;
            }
        }
        let answer = self.0.update_gate(gate, |scene| {
            let GateSnapshot { gate, queue, .. } = scene;
            queue.request_pass(gate, waiter.clone(), now)
        });
        self.0.track_waiter_after(gate, waiter, answer);
        answer
    }

    /// The right to make a call, if nothing is wrong at that gate; costs no access to the store.
    pub fn pass_if_closed(&self, gate: &str) -> Option<Pass> {
        match self.0.gates.lock().get(gate) {
            Some(scene) => scene.gate.pass_if_closed(),
            None => Gate::default().pass_if_closed(),
        }
    }

    /// Where nothing is wrong there is nothing to ask.
    fn answer_if_closed(&self, gate: &str, waiter: &Waiter, now: Timestamp) -> Option<GateReply> {
        let late = waiter.deadline.is_some_and(|deadline| now >= deadline);
        let scenes = self.0.gates.lock();
        match scenes.get(gate) {
            _ if late => None,
            Some(scene) if !scene.gate.is_closed() => None,
            Some(scene) => {
                let mut scene = scene.clone();
                Some(
                    scene
                        .queue
                        .request_pass(&mut scene.gate, waiter.clone(), now),
                )
            }
            None => {
                let mut scene = GateSnapshot::default();
                Some(
                    scene
                        .queue
                        .request_pass(&mut scene.gate, waiter.clone(), now),
                )
            }
        }
    }

    /// Tells a gate what came of a call. Where nothing was wrong, a success is no news.
    pub async fn report(&self, gate: &str, report: Report) {
        let closed = |scene: &GateSnapshot| scene.gate.is_closed();
        let quiet = self.0.gates.lock().get(gate).is_none_or(closed);
        match &report {
            // Told now and then, so that the next ramp begins at a pace that is known to be carried.
            Report::Succeeded(_) if quiet => return self.0.count_success(gate),
            Report::Alive(_) | Report::Abandoned(_) | Report::Recovered if quiet => return,
            _ => {}
        }
        // It is seldom needed, and would take its room in every call that waits.
        Box::pin(self.record_report(gate, report)).await;
    }

    async fn record_report(&self, gate: &str, report: Report) {
        let now = self.0.clock.now();
        if let Some(waiter) = report.queued_waiter() {
            self.0.track_waiter(gate, waiter, true);
        }
        let told = match self.0.store() {
            Some(store) => {
                let told = store.report(gate, report.clone(), now);
                self.0.try_store(told).await
            }
            None => None,
        };
        self.0.update_gate(gate, |scene| {
            match told {
                Some(state) => scene.gate = state,
                None => scene.gate.apply_report(&report, scene.queue.len(), now),
            }
            if let Report::Failed { cause, .. } = &report {
                scene.cause = Some(*cause);
            }
            if let Some(waiter) = report.queued_waiter() {
                scene.queue.join(waiter.clone());
            }
        });
        self.0.notify_changed();
    }

    /// Takes a caller out of line.
    pub async fn leave_queue(&self, gate: &str, waiter: &Waiter) {
        if !self.0.track_waiter(gate, waiter, false) {
            return;
        }
        self.0.update_gate(gate, |scene| scene.queue.leave(waiter));
        if let Some(store) = self.0.store() {
            let left = store.leave_queue(gate, waiter.clone());
            self.0.try_store(left).await;
        }
        self.0.notify_changed();
    }

    /// Takes a caller of that name out of line that an earlier process left there: it would be waited for.
    pub async fn forget_waiter(&self, gate: &str, id: &WaiterId) {
        self.0
            .update_gate(gate, |scene| scene.queue.remove_by_id(id));
        if let Some(store) = self.0.store() {
            let forgotten = store.remove_waiter(gate, id.clone());
            self.0.try_store(forgotten).await;
        }
    }

    /// What went wrong last at that gate.
    pub fn last_cause(&self, gate: &str) -> Option<Cause> {
        self.0.gates.lock().get(gate)?.cause
    }

    /// Until when the provider said not to come, if something is wrong at that gate.
    pub fn stated_end(&self, gate: &str) -> Option<Timestamp> {
        let scenes = self.0.gates.lock();
        let gate = &scenes
            .get(gate)
            .filter(|scene| !scene.gate.is_closed())?
            .gate;
        Some(gate.not_before())
    }

    /// The gates at which something is wrong, in the order of their names.
    pub fn open_gates(&self) -> Vec<OpenGate> {
        let scenes = self.0.gates.lock();
        let open = scenes.iter().filter(|(_, scene)| !scene.gate.is_closed());
        let mut shown: Vec<_> = open
            .map(|(name, scene)| OpenGate {
                name: name.clone(),
                cause: scene.cause,
                stated_end: scene.gate.not_before(),
                waiting: u64::from(scene.queue.len()),
            })
            .collect();
        shown.sort_by(|one, other| one.name.cmp(&other.name));
        shown
    }

    /// When a caller in line should ask. `None` when it may ask at once.
    pub fn wake_time(&self, gate: &str, waiter: &Waiter) -> Option<Timestamp> {
        let scenes = self.0.gates.lock();
        let scene = scenes.get(gate).filter(|scene| !scene.gate.is_closed())?;
        scene.queue.wake_time(&scene.gate, waiter)
    }
}

// --- accounts ---

impl SharedState {
    /// The blocks that are known.
    pub fn blocks(&self) -> Blocks {
        self.0.blocks.lock().clone()
    }

    /// Takes note of a block, for everyone.
    pub async fn block(&self, block: Block) {
        self.0.blocks.lock().add(block.clone());
        self.change_blocks(move |blocks| blocks.add(block)).await;
    }

    /// A call with that account, begun then, succeeded: what was held against it is over.
    pub async fn record_success(&self, account: &str, model: &str, begun: Timestamp) {
        if !self
            .0
            .blocks
            .lock()
            .clear_after_success(account, model, begun)
        {
            return;
        }
        let (account, model) = (account.to_owned(), model.to_owned());
        self.change_blocks(move |blocks| {
            blocks.clear_after_success(&account, &model, begun);
        })
        .await;
    }

    /// Forgets everything that is held against an account.
    pub async fn unblock(&self, account: &str) {
        let forget = |account: &str, blocks: &mut Blocks| {
            *blocks = blocks
                .iter()
                .filter(|block| block.account != account)
                .cloned()
                .collect();
        };
        forget(account, &mut self.0.blocks.lock());
        let of_account = |gate: &&String| gate.split('/').nth(1) == Some(account);
        let gates: Vec<String> = self
            .0
            .gates
            .lock()
            .keys()
            .filter(of_account)
            .cloned()
            .collect();
        for gate in gates {
            self.report(&gate, Report::Recovered).await;
        }
        let account = account.to_owned();
        self.change_blocks(move |blocks| forget(&account, blocks))
            .await;
    }

    async fn change_blocks(&self, change: impl FnOnce(&mut Blocks) + Send + 'static) {
        if let Some(store) = self.0.store() {
            let changed = store.change_blocks(self.0.clock.now(), change);
            if let Some(blocks) = self.0.try_store(changed).await {
                let mut known = self.0.blocks.lock();
                self.0.local_changes.fetch_add(1, Ordering::Relaxed);
                *known = blocks;
            }
        }
        self.0.notify_changed();
    }
}

// --- calls under way ---

/// Who does not renew its seat for this long has died.
const PERMIT_LEASE: Duration = Duration::from_secs(60);

impl SharedState {
    /// Takes, or renews, one of an account's seats; `false` when all are taken.
    pub async fn acquire_permit(&self, account: &str, holder: &str, limit: u32) -> bool {
        let now = self.0.clock.now();
        if let Some(store) = self.0.store() {
            let claim = PermitRequest {
                account: account.to_owned(),
                holder: holder.to_owned(),
                limit,
            };
            let taken = store.acquire_permit(claim, now, now + PERMIT_LEASE);
            if let Some(seat) = self.0.try_store(taken).await {
                return seat == PermitReply::Granted;
            }
        }
        let mut seats = self.0.permits.lock();
        let others = seats
            .iter()
            .filter(|(other, of)| *other != holder && *of == account)
            .count();
        let free = u32::try_from(others).is_ok_and(|others| others < limit);
        if free {
            seats.insert(holder.to_owned(), account.to_owned());
        }
        free
    }

    /// Gives a seat back.
    pub async fn release_permit(&self, holder: &str) {
        self.0.permits.lock().remove(holder);
        if let Some(store) = self.0.store() {
            self.0.try_store(store.release_permit(holder)).await;
        }
        self.0.notify_changed();
    }
}

// --- the store ---

impl SharedState {
    async fn connect_store(&self) {
        poller::connect(&self.0).await;
    }
}

impl Inner {
    fn store(&self) -> Option<Store> {
        match &*self.store.lock() {
            StoreLink::Connected(store) => Some(store.clone()),
            StoreLink::Disconnected { .. } => None,
        }
    }

    /// What the store answers; `None` when it does not, and then work goes on without it.
    async fn try_store<R>(&self, work: impl Future<Output = Result<R, Error>>) -> Option<R> {
        match tokio::time::timeout(STORE_TIMEOUT, work).await {
            Ok(Ok(answer)) => Some(answer),
            Ok(Err(error)) => {
                self.disconnect(&error.to_string(), error.is_corruption());
                None
            }
            Err(_) => {
                self.disconnect("it does not answer", false);
                None
            }
        }
    }

    fn disconnect(&self, why: &str, damaged: bool) {
        let before =
            std::mem::replace(&mut *self.store.lock(), StoreLink::Disconnected { damaged });
        if let StoreLink::Connected(_) = before {
            let why = why.to_owned();
            (self.listener)(StoreEvent::Disconnected { why });
        }
    }

    fn update_gate<R>(&self, gate: &str, change: impl FnOnce(&mut GateSnapshot) -> R) -> R {
        let mut scenes = self.gates.lock();
        self.local_changes.fetch_add(1, Ordering::Relaxed);
        change(scenes.entry(gate.to_owned()).or_default())
    }

    /// Keeps in mind who waits in this process; the answer is whether it did before.
    fn track_waiter(&self, gate: &str, waiter: &Waiter, waits: bool) -> bool {
        let mut waiters = self.waiters.lock();
        let known = waiters.entry(gate.to_owned()).or_default();
        let before = known.len();
        known.retain(|other| other.id != waiter.id);
        let did = known.len() != before;
        if waits {
            known.push(waiter.clone());
        } else if known.is_empty() {
            waiters.remove(gate);
        }
        did
    }

    /// Keeps in mind who waits after that answer.
    fn track_waiter_after(&self, gate: &str, waiter: &Waiter, answer: GateReply) {
        match (answer, waiter.remaining_batch()) {
            (GateReply::Hold(_), _) => self.track_waiter(gate, waiter, true),
            (GateReply::Proceed(_) | GateReply::Probe(_), Some(rest)) => {
                self.track_waiter(gate, &rest, true)
            }
            (GateReply::Proceed(_) | GateReply::Probe(_) | GateReply::DeadlineExceeded, _) => {
                self.track_waiter(gate, waiter, false)
            }
        };
    }

    fn count_success(&self, gate: &str) {
        let mut carried = self.unreported_successes.lock();
        let count = carried.entry(gate.to_owned()).or_default();
        *count = count.saturating_add(1);
    }

    fn notify_changed(&self) {
        self.changed
            .send_modify(|count| *count = count.wrapping_add(1));
    }
}

/// Whether others will meet the same.
pub fn affects_other_callers(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::Overloaded
            | Cause::RateLimited
            | Cause::UsageLimit
            | Cause::ServerError
            | Cause::Network
            | Cause::Timeout
    )
}
