//! The one task of this process that looks what others have learnt, and joins the store again when it was lost.

use super::{Inner, StoreEvent, StoreLink};
use outlast_kernel::account::Blocks;
use outlast_kernel::gate::Report;
use outlast_store::{GateSnapshot, OpenedStore, Store};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

const POLL_INTERVAL: Duration = Duration::from_millis(250);
const RENEW_ROUNDS: u32 = 40;
const RECONNECT_ROUNDS: u32 = 16;
/// However fast the clock runs, others get their turn in between.
const MIN_PAUSE: Duration = Duration::from_millis(5);

/// Starts the task; it ends with the knowledge that it serves.
pub(super) fn start(inner: &Arc<Inner>) {
    let weak = Arc::downgrade(inner);
    tokio::spawn(async move {
        for round in 1_u32.. {
            let Some(pause) = next_poll(&weak) else {
                return;
            };
            pause.await;
            let Some(inner) = weak.upgrade() else { return };
            poll(&inner, round).await;
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

async fn poll(inner: &Arc<Inner>, round: u32) {
    match inner.store() {
        Some(store) => {
            let news = inner.try_store(store.has_external_changes()).await;
            let is_behind = inner.needs_reload.swap(false, Ordering::Relaxed);
            if news == Some(true) || is_behind {
                reload(inner, &store).await;
            }
            if round.is_multiple_of(RENEW_ROUNDS) {
                renew_waiters(inner, &store).await;
                report_successes(inner, &store).await;
            }
        }
        None if round.is_multiple_of(RECONNECT_ROUNDS) => connect(inner).await,
        None => {}
    }
}

/// What the store had at some moment.
struct StoreSnapshot {
    gates: Vec<(String, GateSnapshot)>,
    blocks: Blocks,
    /// What this process had changed by then.
    local_changes: u64,
}

/// Takes over what the store has.
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

/// A failure that was told the store meanwhile is not in what was read; to forget it would let its caller pass at once.
/// Then the store is read again in the next round.
fn apply_snapshot(inner: &Inner, news: StoreSnapshot) {
    let (mut scenes, mut blocks) = (inner.gates.lock(), inner.blocks.lock());
    if inner.local_changes.load(Ordering::Relaxed) != news.local_changes {
        inner.needs_reload.store(true, Ordering::Relaxed);
        return;
    }
    *scenes = news.gates.into_iter().collect();
    *blocks = news.blocks;
    drop((scenes, blocks));
    inner.notify_changed();
}

/// Shows that those who wait here are alive.
async fn renew_waiters(inner: &Inner, store: &Store) {
    for (gate, waiter) in local_waiters(inner) {
        let now = inner.clock.now();
        inner
            .try_store(store.renew_waiter(&gate, waiter, now))
            .await;
    }
}

/// Tells the gates at which pace the provider was used while all was well.
async fn report_successes(inner: &Inner, store: &Store) {
    let carried = std::mem::take(&mut *inner.unreported_successes.lock());
    for (gate, calls) in carried {
        let now = inner.clock.now();
        let told = store.report(&gate, Report::Accepted(calls), now);
        inner.try_store(told).await;
    }
}

fn local_waiters(inner: &Inner) -> Vec<(String, outlast_kernel::gate::Waiter)> {
    let waiters = inner.waiters.lock();
    let each = waiters
        .iter()
        .flat_map(|(gate, all)| all.iter().map(move |waiter| (gate.clone(), waiter.clone())));
    each.collect()
}

/// Opens the store, if that can be done, and brings along what was learnt without it.
pub(super) async fn connect(inner: &Arc<Inner>) {
    let Some(path) = inner.path.clone() else {
        return;
    };
    let damaged = matches!(
        *inner.store.lock(),
        StoreLink::Disconnected { damaged: true }
    );
    let opening = tokio::task::spawn_blocking(move || match damaged {
        true => Store::replace(&path),
        false => Store::open(&path),
    });
    let opened = match opening.await {
        Ok(Ok(opened)) => opened,
        Ok(Err(error)) => return notify_first_failure(inner, &error.to_string()),
        Err(_) => return,
    };
    let OpenedStore { store, replaced } = opened;
    if let Some(backup_path) = replaced {
        (inner.listener)(StoreEvent::Replaced { backup_path });
    }
    let was_lost = inner.is_first_connection.swap(false, Ordering::Relaxed);
    *inner.store.lock() = StoreLink::Connected(store.clone());
    if !was_lost {
        (inner.listener)(StoreEvent::Connected);
    }
    publish_local_state(inner, &store).await;
    reload(inner, &store).await;
}

/// The first time that there is no store is said; that there still is none is not.
fn notify_first_failure(inner: &Inner, why: &str) {
    if inner.is_first_connection.swap(false, Ordering::Relaxed) {
        let why = why.to_owned();
        (inner.listener)(StoreEvent::Disconnected { why });
    }
}

async fn publish_local_state(inner: &Inner, store: &Store) {
    for (gate, waiter) in local_waiters(inner) {
        let missed = Report::MissedFailure(waiter);
        let told = store.report(&gate, missed, inner.clock.now());
        if inner.try_store(told).await.is_none() {
            return;
        }
    }
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
    use outlast_kernel::gate::{GateReply, Waiter, WaiterId};
    use outlast_kernel::verdict::Cause;

    const GATE: &str = "p/a/m";

    #[tokio::test]
    async fn stale_snapshot_does_not_erase_later_failure() {
        let folder = tempfile::TempDir::new().unwrap();
        let clock = Arc::new(TimerClock::new(Timestamp::from_millis(1_000_000)));
        let knowledge = SharedState::new(
            clock.clone(),
            Some(folder.path().join("store.db")),
            Arc::new(|_| {}),
        );
        // There is no poller: the test decides when it looks.
        connect(&knowledge.0).await;
        let store = knowledge.0.store().unwrap();
        let now = clock.now();
        let waiter = Waiter {
            id: WaiterId("us".to_owned()),
            since: now,
            own_wake: now + Duration::from_secs(3600),
            deadline: None,
            batch: None,
        };
        let GateReply::Proceed(pass) = knowledge.request_pass(GATE, &waiter).await else {
            panic!("nothing is wrong yet");
        };
        let old = fetch_snapshot(&knowledge.0, &store).await.unwrap();
        let failed = Report::Failed {
            pass,
            cause: Cause::RateLimited,
            stated: Some(waiter.own_wake),
            waiter: Some(waiter.clone()),
        };
        knowledge.report(GATE, failed).await;
        apply_snapshot(&knowledge.0, old);
        let expected = Some(waiter.own_wake);
        assert_eq!(knowledge.wake_time(GATE, &waiter), expected);
        // It is read again when it is looked next, though nobody else has changed anything.
        store.has_external_changes().await.unwrap();
        knowledge.0.gates.lock().clear();
        poll(&knowledge.0, 1).await;
        assert_eq!(knowledge.wake_time(GATE, &waiter), expected);
    }
}
