//! The one task of this process that reads what others have learned, and reconnects to a lost store.

use super::Inner;
use outlast_kernel::account::Blocks;
use outlast_store::{GateSnapshot, OpenedStore, Store};
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// However fast the clock runs, other tasks run in between.
const MIN_PAUSE: Duration = Duration::from_millis(5);

/// Starts the task; it ends with the shared state that it serves.
pub(super) fn start(inner: &Arc<Inner>) {
    let weak = Arc::downgrade(inner);
    tokio::spawn(async move {
        while let Some(pause) = next_poll(&weak) {
            pause.await;
            let Some(inner) = weak.upgrade() else { return };
            poll(&inner).await;
        }
    });
}

fn next_poll(inner: &Weak<Inner>) -> Option<impl Future<Output = ()> + use<>> {
    let inner = inner.upgrade()?;
    let by_clock = inner.clock.sleep_until(inner.clock.now() + POLL_INTERVAL);
    Some(async move {
        tokio::join!(by_clock, tokio::time::sleep(MIN_PAUSE));
    })
}

async fn poll(inner: &Inner) {
    match inner.store.file() {
        Some(store) => {
            let news = inner.try_store(store.has_external_changes()).await;
            let is_behind = inner.needs_reload.swap(false, Ordering::Relaxed);
            if news == Some(true) || is_behind {
                reload(inner, &store).await;
            }
        }
        None if inner.store.is_due(inner.clock.now()) => connect(inner).await,
        None => {}
    }
}

/// The content of the store at some moment.
struct StoreSnapshot {
    gates: Vec<(String, GateSnapshot)>,
    blocks: Blocks,
    /// The number of changes that this process had made by then.
    local_changes: u64,
}

/// Takes over the content of the store.
async fn reload(inner: &Inner, store: &Store) {
    if let Some(news) = fetch_snapshot(inner, store).await {
        apply_snapshot(inner, news);
    }
}

async fn fetch_snapshot(inner: &Inner, store: &Store) -> Option<StoreSnapshot> {
    let local_changes = inner.local_changes.load(Ordering::Relaxed);
    let now = inner.clock.now();
    Some(StoreSnapshot {
        gates: inner.try_store(store.gate_snapshots(now)).await?,
        blocks: inner.try_store(store.blocks(now)).await?,
        local_changes,
    })
}

/// Blocks that this process has changed meanwhile are not in what was read. Then the store is read again in the next
/// round. A gate has a version of its own.
fn apply_snapshot(inner: &Inner, news: StoreSnapshot) {
    let gates: HashMap<String, GateSnapshot> = news.gates.into_iter().collect();
    inner.admission.observe(&gates);
    *inner.gates.lock() = gates;
    let mut blocks = inner.blocks.lock();
    if inner.local_changes.load(Ordering::Relaxed) != news.local_changes {
        inner.needs_reload.store(true, Ordering::Relaxed);
        return;
    }
    *blocks = news.blocks;
    drop(blocks);
    inner.notify_changed();
}

/// Opens the store, if possible, and adds to it what this process has learned without it.
pub(super) async fn connect(inner: &Inner) {
    let open = |path: &Path, is_damaged| match is_damaged {
        true => Store::replace(path),
        false => Store::open(path),
    };
    let opened = inner.store.open(open, inner.clock.now()).await;
    let Some(OpenedStore { store, replaced }) = opened else {
        return;
    };
    inner.store.connect(store.clone(), replaced, || {});
    publish_blocks(inner, &store).await;
    reload(inner, &store).await;
    inner.admission.rejoin();
}

async fn publish_blocks(inner: &Inner, store: &Store) {
    let blocks = inner.blocks.lock().clone();
    if blocks.iter().next().is_some() {
        let now = inner.clock.now();
        let all = store.change_blocks(now, move |known| {
            blocks.iter().for_each(|block| known.add(block.clone()));
        });
        inner.try_store(all).await;
    }
}

#[cfg(test)]
mod tests {
    use super::super::SharedState;
    use super::*;
    use crate::Clock;
    use crate::clock::TimerClock;
    use outlast_kernel::Timestamp;
    use outlast_kernel::gate::Mode;
    use outlast_kernel::verdict::{Authority, Cause, Hint, Scope, Verdict};

    #[tokio::test]
    async fn stale_snapshot_does_not_erase_later_failure() {
        let folder = tempfile::TempDir::new().unwrap();
        let clock = Arc::new(TimerClock::new(Timestamp::from_millis(1_000_000)));
        let shared_state = SharedState::new(
            clock.clone(),
            Some(folder.path().join("store.db")),
            Arc::new(|_| {}),
        );
        // There is no poller: the test decides when it reads.
        connect(&shared_state.0).await;
        let store = shared_state.0.store.file().unwrap();
        let old = fetch_snapshot(&shared_state.0, &store).await.unwrap();
        let mut request = shared_state.request("p@/a/m", clock.now());
        assert!(request.enter());
        request.begin();
        let reset = clock.now() + Duration::from_secs(3600);
        let limit = Verdict {
            hint: Some(Hint {
                not_before: reset,
                source: "body".to_owned(),
                authority: Authority::Stated,
            }),
            ..Verdict::new(Cause::UsageLimit, Scope::Credential)
        };
        let mut changes = request.changes();
        request.failed(&limit);
        changes.changed().await.unwrap();
        apply_snapshot(&shared_state.0, old);
        assert_eq!(request.stated_end(), Some(reset));
        // A later look finds it in the store.
        poll(&shared_state.0).await;
        assert_eq!(request.stated_end(), Some(reset));
        let known = shared_state.0.gates.lock();
        assert_eq!(known["p@/a/m"].gate.mode(), Mode::Down);
    }
}
