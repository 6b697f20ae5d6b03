//! Runs many scenes in parallel, each worker with a mock server of its own.

use super::scene::SCALE;
use crate::mock_server::MockServer;
use crate::support::Outlast;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Scenes wait more than they work, so more than there are processors.
const WORKERS: usize = 5;

/// Starts a mock server whose clock has the speed of the scenes.
pub(crate) fn server() -> MockServer {
    MockServer::start_in(Outlast {
        scale: SCALE,
        ..Outlast::new()
    })
}

/// Sets the flag when its worker panics.
struct Alarm<'a>(&'a AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// Runs the work for each case in parallel; when one fails, the others finish their current case.
pub(crate) fn in_parallel<Case: Send, Found: Send>(
    cases: impl IntoIterator<Item = Case, IntoIter: Send>,
    work: impl Fn(&MockServer, Case) -> Found + Sync,
) -> Vec<Found> {
    let (cases, found) = (Mutex::new(cases.into_iter()), Mutex::new(Vec::new()));
    let alarm = AtomicBool::new(false);
    // A worker that has panicked holds neither lock.
    let next = || match alarm.load(Ordering::Relaxed) {
        true => None,
        false => cases.lock().unwrap().next(),
    };
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                let _alarm = Alarm(&alarm);
                let mock = server();
                while let Some(case) = next() {
                    let result = work(&mock, case);
                    found.lock().unwrap().push(result);
                }
            });
        }
    });
    found.into_inner().unwrap()
}
