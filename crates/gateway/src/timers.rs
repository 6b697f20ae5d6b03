//! Timers: any number of waits on one sleeping task.
//!
//! Ten thousand held requests each wait for their next keep-alive. One task sleeps for all of them, by the clock of the
//! process, so that a wait costs an entry in a map and nothing while it lasts. Invariant: a timer fires once its time
//! has come, and a dropped timer is removed.

use outlast_engine::Clock;
use outlast_engine::provider::response;
use outlast_kernel::Timestamp;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::Notify;

type Key = (Timestamp, u64);

/// Maximum time that the task sleeps.
const MAX_SLEEP: Duration = Duration::from_secs(60);

/// All timers of a gateway. Clones share the one task.
#[derive(Clone)]
pub(super) struct Timers(Arc<Inner>);

struct Inner {
    clock: Arc<dyn Clock>,
    set: Mutex<TimerSet>,
    /// Notified when a timer is set that fires before all others.
    earlier: Notify,
}

#[derive(Default)]
struct TimerSet {
    wakers: BTreeMap<Key, Waker>,
    count: u64,
    /// The time until which the task sleeps: only an earlier timer wakes it. Most timers are dropped long before their
    /// time.
    sleeps_until: Timestamp,
}

/// A future that is ready once its time has come.
pub(crate) struct Timer {
    timers: Timers,
    at: Option<Timestamp>,
    key: Option<Key>,
}

impl Timers {
    /// Starts the task; it ends with the last clone. Must be called within a runtime.
    pub(super) fn start(clock: Arc<dyn Clock>) -> Self {
        let inner = Arc::new(Inner {
            clock,
            set: Mutex::default(),
            earlier: Notify::new(),
        });
        tokio::spawn(run(Arc::downgrade(&inner)));
        Self(inner)
    }

    /// Returns a timer for that time; without a time it never fires.
    pub(super) fn sleep_until(&self, at: Option<Timestamp>) -> Timer {
        Timer {
            timers: self.clone(),
            at,
            key: None,
        }
    }
}

impl response::Timer for Timers {
    type Sleep = Timer;

    fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    fn sleep_until(&self, at: Option<Timestamp>) -> Timer {
        self.sleep_until(at)
    }
}

impl Inner {
    /// Wakes all tasks whose timers are due; returns the time until which the task may sleep.
    fn wake_due(&self) -> Timestamp {
        let now = self.clock.now();
        let due: Vec<Waker> = {
            let mut set = self.set.lock();
            let later = set.wakers.split_off(&(now, u64::MAX));
            std::mem::replace(&mut set.wakers, later)
                .into_values()
                .collect()
        };
        due.into_iter().for_each(Waker::wake);
        // Once in a while the task checks whether anybody is left.
        let look = now + MAX_SLEEP;
        let mut set = self.set.lock();
        let next = set.wakers.keys().next().map(|(at, _)| *at);
        set.sleeps_until = next.map_or(look, |next| next.min(look));
        set.sleeps_until
    }
}

async fn run(inner: Weak<Inner>) {
    loop {
        let Some(alarms) = inner.upgrade() else {
            return;
        };
        let until = alarms.wake_due();
        tokio::select! {
            () = alarms.clock.sleep_until(until) => {}
            () = alarms.earlier.notified() => {}
        }
    }
}

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(at) = self.at else {
            return Poll::Pending;
        };
        let inner = Arc::clone(&self.timers.0);
        if inner.clock.now() >= at {
            return Poll::Ready(());
        }
        let mut set = inner.set.lock();
        let key = match self.key {
            Some(key) => key,
            None => {
                set.count += 1;
                (at, set.count)
            }
        };
        self.key = Some(key);
        let is_earlier = at < set.sleeps_until;
        set.sleeps_until = set.sleeps_until.min(at);
        set.wakers.insert(key, context.waker().clone());
        drop(set);
        if is_earlier {
            inner.earlier.notify_one();
        }
        Poll::Pending
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.timers.0.set.lock().wakers.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_engine::clock::TimerClock;

    #[tokio::test(start_paused = true)]
    async fn timers_fire_on_time_in_any_set_order() {
        let clock: Arc<dyn Clock> = Arc::new(TimerClock::new(Timestamp::from_millis(1_000_000)));
        let alarms = Timers::start(clock.clone());
        let start = clock.now();
        let waits = [900_u64, 5, 60, 5, 3600].map(|seconds| {
            let (alarms, clock) = (alarms.clone(), clock.clone());
            tokio::spawn(async move {
                let at = start + Duration::from_secs(seconds);
                alarms.sleep_until(Some(at)).await;
                (clock.now().since(start).as_secs(), seconds)
            })
        });
        for wait in waits {
            let (took, wanted) = wait.await.unwrap();
            assert_eq!(took, wanted);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_timer_is_removed() {
        let clock: Arc<dyn Clock> = Arc::new(TimerClock::new(Timestamp::from_millis(0)));
        let alarms = Timers::start(clock.clone());
        let far = alarms.sleep_until(Some(clock.now() + Duration::from_secs(600)));
        tokio::time::timeout(Duration::from_secs(1), far)
            .await
            .unwrap_err();
        assert!(alarms.0.set.lock().wakers.is_empty());
    }
}
