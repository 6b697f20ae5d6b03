//! A clock that runs fast, waits for a slow machine, and can be paused.

use outlast_engine::clock::WallClock;
use outlast_engine::{BoxFuture, Clock};
use outlast_kernel::Timestamp;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Interval at which the clock advances.
const TICK: Duration = Duration::from_millis(1);
/// Maximum time that one tick counts for: while the machine has no time for the test, no time passes for it.
const MAX_TICK: Duration = Duration::from_millis(5);

/// A clock that runs a number of times as fast as the wall clock.
pub(super) struct TestClock {
    scale: u32,
    state: watch::Sender<State>,
}

#[derive(Clone, Copy)]
struct State {
    now: Timestamp,
    is_paused: bool,
}

impl TestClock {
    /// Starts a running clock. Must be called within a runtime.
    pub(super) fn start(scale: u32) -> Arc<Self> {
        let state = State {
            now: WallClock::default().now(),
            is_paused: false,
        };
        let clock = Arc::new(Self {
            scale,
            state: watch::Sender::new(state),
        });
        let ticking = Arc::downgrade(&clock);
        tokio::spawn(async move {
            let mut last = Instant::now();
            loop {
                tokio::time::sleep(TICK).await;
                let Some(clock) = ticking.upgrade() else {
                    return;
                };
                let elapsed = last.elapsed();
                last += elapsed;
                clock.tick(elapsed.min(MAX_TICK) * clock.scale);
            }
        });
        clock
    }

    fn tick(&self, time: Duration) {
        self.state.send_if_modified(|state| {
            if !state.is_paused {
                state.now = state.now + time;
            }
            // Sleepers check the time by themselves.
            false
        });
    }

    /// Stops the clock: no wait ends until it runs again.
    pub(super) fn pause(&self) {
        self.state.send_modify(|state| state.is_paused = true);
    }

    /// Lets the clock run again.
    pub(super) fn resume(&self) {
        self.state.send_modify(|state| state.is_paused = false);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        self.state.borrow().now
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        let (scale, mut state) = (self.scale, self.state.subscribe());
        Box::pin(async move {
            loop {
                let State { now, is_paused } = *state.borrow_and_update();
                if now >= at {
                    return;
                }
                let wait = (at.since(now) / scale).max(TICK);
                tokio::select! {
                    () = tokio::time::sleep(wait), if !is_paused => {}
                    // A sleeper that still waits when the clock is gone is released.
                    changed = state.changed() => if changed.is_err() { return },
                }
            }
        })
    }
}
