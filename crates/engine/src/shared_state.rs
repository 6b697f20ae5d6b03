//! The state that is shared with every process through the store, or, without it, within this one: gates, blocks on
//! accounts, and permits.
//!
//! Invariants: the store never stops a call. Whatever happens to it (missing, locked, damaged, read-only, full), work
//! continues in memory, the user is told once, and the process joins the store again when it can. While no failure is
//! known, asking costs no access to the store.
//! Not here: the rules (see the kernel's `gate` and `account`), the queues before the gates (see `admission`), the file
//! (see the store).

mod poller;

use crate::Clock;
use crate::admission::Admission;
use crate::permits::PermitQueues;
use outlast_kernel::Timestamp;
use outlast_kernel::account::{Block, Blocks};
use outlast_kernel::gate::{Gate, Mode, SyncReply, gate_key_account};
use outlast_kernel::verdict::Cause;
use outlast_store::{Error, GateExchange, GateSnapshot, Reconnecting, Store};
pub use outlast_store::{Listener, StoreEvent};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;

/// The timeout of one access to the store, after which the process continues without it.
const STORE_TIMEOUT: Duration = Duration::from_secs(3);
/// The interval at which a lost store is opened again.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(4);

/// A gate as it is shown.
#[derive(Clone, Debug)]
pub struct GateStatus {
    /// Its key.
    pub name: String,
    /// The cause of the last failure.
    pub cause: Option<Cause>,
    /// The gate.
    pub gate: Gate,
    /// The number of requests that wait before it, over all processes.
    pub waiting: u64,
    /// The share of the late calls of this process that failed; `None` if there was no failure lately.
    pub failed_share: Option<f64>,
    /// Its state in one sentence.
    pub summary: String,
}

/// The state that processes share. Clones share it.
#[derive(Clone)]
pub struct SharedState(Arc<Inner>);

struct Inner {
    clock: Arc<dyn Clock>,
    store: Reconnecting<Store>,
    /// Names this process among those that share the store.
    process: String,
    admission: Admission,
    /// The gates as the store had them when it was last read.
    gates: Mutex<HashMap<String, GateSnapshot>>,
    blocks: Mutex<Blocks>,
    permits: PermitQueues,
    changed: watch::Sender<u64>,
    /// The number of changes by this process: a snapshot that was read before the last one is outdated.
    local_changes: AtomicU64,
    /// A snapshot of the store was outdated, and has to be read again.
    needs_reload: AtomicBool,
}

impl SharedState {
    /// Creates state of this process only.
    pub fn process_local(clock: Arc<dyn Clock>) -> Self {
        Self::new(clock, None, Arc::new(|_| {}))
    }

    /// Creates state that is shared through the file at that path. Must be called within a runtime.
    pub async fn connect(path: PathBuf, clock: Arc<dyn Clock>, listener: Listener) -> Self {
        let shared_state = Self::new(clock, Some(path), listener);
        poller::connect(&shared_state.0).await;
        poller::start(&shared_state.0);
        shared_state
    }

    fn new(clock: Arc<dyn Clock>, path: Option<PathBuf>, listener: Listener) -> Self {
        Self(Arc::new_cyclic(|weak| Inner {
            admission: Admission::new(Arc::clone(&clock), GateLink(Weak::clone(weak))),
            clock,
            store: Reconnecting::new(path, RECONNECT_INTERVAL, listener),
            process: uuid::Uuid::now_v7().to_string(),
            gates: Mutex::default(),
            blocks: Mutex::default(),
            permits: PermitQueues::default(),
            changed: watch::Sender::new(0),
            local_changes: AtomicU64::new(0),
            needs_reload: AtomicBool::new(false),
        }))
    }

    pub(crate) fn admission(&self) -> &Admission {
        &self.0.admission
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.0.clock
    }

    pub(crate) fn permits(&self) -> &PermitQueues {
        &self.0.permits
    }

    /// Makes an access to the store; returns `None` without it.
    pub(crate) async fn with_store<R, F>(&self, work: impl FnOnce(Store) -> F) -> Option<R>
    where
        F: Future<Output = Result<R, Error>>,
    {
        let store = self.0.store.file()?;
        self.0.try_store(work(store)).await
    }

    /// Returns a receiver that is notified of every change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }
}

// --- Gates ---

impl SharedState {
    /// Returns the gates that do not let everybody call, and those of this process at which calls fail, in the order of
    /// their keys.
    pub fn failing_gates(&self) -> Vec<GateStatus> {
        let now = self.0.clock.now();
        let mut gates: BTreeMap<String, GateStatus> = BTreeMap::new();
        for (key, known) in &*self.0.gates.lock() {
            if known.gate.mode() != Mode::Flowing {
                let status = GateStatus {
                    name: key.clone(),
                    cause: known.cause,
                    gate: known.gate.clone(),
                    waiting: u64::from(known.waiting),
                    failed_share: None,
                    summary: String::new(),
                };
                gates.insert(key.clone(), status);
            }
        }
        for mut own in self.0.admission.views() {
            if let Some(shared) = gates.get(&own.name) {
                own.cause = own.cause.or(shared.cause);
                own.waiting = own.waiting.max(shared.waiting);
            }
            gates.insert(own.name.clone(), own);
        }
        gates.retain(|_, known| known.gate.mode() != Mode::Flowing || known.failed_share.is_some());
        let mut failing: Vec<GateStatus> = gates.into_values().collect();
        for status in &mut failing {
            status.summary = (status.gate).summary(status.failed_share, status.waiting, now);
        }
        failing
    }
}

/// The gates' access to the store.
#[derive(Clone)]
pub(crate) struct GateLink(Weak<Inner>);

impl GateLink {
    /// Returns whether other processes share the gates.
    pub(crate) fn is_connected(&self) -> bool {
        let inner = self.0.upgrade();
        inner.is_some_and(|inner| inner.store.file().is_some())
    }

    /// Returns the gate as the store had it when it was last read, and the cause of its last failure.
    pub(crate) fn known(&self, key: &str) -> Option<(Gate, Option<Cause>)> {
        let inner = self.0.upgrade()?;
        let gates = inner.gates.lock();
        let snapshot = gates.get(key)?;
        Some((snapshot.gate.clone(), snapshot.cause))
    }

    /// Exchanges news with the store. Returns the reply and the number of processes that share the gate, or `None` without
    /// the store.
    pub(crate) async fn exchange(
        &self,
        key: &str,
        sync: outlast_kernel::gate::Sync,
        cause: Option<Cause>,
        own_gate: Option<Gate>,
    ) -> Option<(SyncReply, u32)> {
        let inner = self.0.upgrade()?;
        let store = inner.store.file()?;
        let exchange = GateExchange {
            key: key.to_owned(),
            process: inner.process.clone(),
            sync,
            cause,
            own_gate,
        };
        let now = inner.clock.now();
        inner.try_store(store.sync_gate(exchange, now)).await
    }
}

// --- Accounts ---

impl SharedState {
    /// Returns the known blocks.
    pub fn blocks(&self) -> Blocks {
        self.0.blocks.lock().clone()
    }

    /// Records a block, for all processes.
    pub async fn block(&self, block: Block) {
        self.0.blocks.lock().add(block.clone());
        self.change_blocks(move |blocks| blocks.add(block)).await;
    }

    /// Records that a call with that account, begun then, succeeded: its blocks are over.
    pub async fn record_success(&self, account: &str, model: &str, begun: Timestamp) {
        let known = &self.0.blocks;
        let is_changed = known.lock().clear_after_success(account, model, begun);
        if !is_changed {
            return;
        }
        let (account, model) = (account.to_owned(), model.to_owned());
        self.change_blocks(move |blocks| {
            blocks.clear_after_success(&account, &model, begun);
        })
        .await;
    }

    /// Removes all blocks of an account, and forgets the outages of its gates.
    pub async fn unblock(&self, account: &str) {
        let forget = |account: &str, blocks: &mut Blocks| {
            *blocks = blocks
                .iter()
                .filter(|block| block.account != account)
                .cloned()
                .collect();
        };
        forget(account, &mut self.0.blocks.lock());
        let of_account = |key: &str| gate_key_account(key).as_deref() == Some(account);
        let mut keys = self.0.admission.forget(of_account);
        let known = self.0.gates.lock().keys().cloned().collect::<Vec<_>>();
        keys.extend(known.into_iter().filter(|key| of_account(key)));
        let now = self.0.clock.now();
        self.with_store(async |store| store.forget_gates(keys, now).await)
            .await;
        let account = account.to_owned();
        self.change_blocks(move |blocks| forget(&account, blocks))
            .await;
    }

    async fn change_blocks(&self, change: impl FnOnce(&mut Blocks) + Send + 'static) {
        let now = self.0.clock.now();
        let changed = self.with_store(async move |store| store.change_blocks(now, change).await);
        if let Some(blocks) = changed.await {
            let mut known = self.0.blocks.lock();
            self.0.local_changes.fetch_add(1, Ordering::Relaxed);
            *known = blocks;
        }
        self.0.notify_changed();
    }
}

// --- The store ---

impl Inner {
    /// Returns the reply of the store; `None` if it fails, and then the process continues without it.
    async fn try_store<R>(&self, work: impl Future<Output = Result<R, Error>>) -> Option<R> {
        match tokio::time::timeout(STORE_TIMEOUT, work).await {
            Ok(Ok(answer)) => Some(answer),
            Ok(Err(error)) => {
                let (why, is_damaged) = (error.to_string(), error.is_corruption());
                self.store.lose(&why, is_damaged, self.clock.now());
                None
            }
            Err(_) => {
                let now = self.clock.now();
                self.store.lose("it does not answer", false, now);
                None
            }
        }
    }

    fn notify_changed(&self) {
        self.changed
            .send_modify(|count| *count = count.wrapping_add(1));
    }
}
