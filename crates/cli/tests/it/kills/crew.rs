//! Many scenes side by side, each worker with a server of its own.

use super::scene::SCALE;
use crate::mock_server::MockServer;
use crate::support::Outlast;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Scenes wait more than they work, so more than there are processors.
const WORKERS: usize = 5;

/// A server whose clock goes as fast as that of the scenes.
pub(crate) fn server() -> MockServer {
    MockServer::start_in(Outlast {
        scale: SCALE,
        ..Outlast::new()
    })
}

/// Says so when its worker panics.
struct Alarm<'a>(&'a AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// Does the work for each case; when one fails, the others end with what they are at.
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
