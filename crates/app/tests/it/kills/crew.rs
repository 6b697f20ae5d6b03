//! Many scenes side by side, each worker with a server of its own.

use super::scene::SCALE;
use crate::mock_server::MockServer;
use crate::support::Outlast;
use std::sync::Mutex;

/// Scenes wait more than they work, so more than there are processors.
const WORKERS: usize = 5;

/// A server whose clock goes as fast as that of the scenes.
pub(crate) fn server() -> MockServer {
    MockServer::start_in(Outlast {
        scale: SCALE,
        ..Outlast::new()
    })
}

/// Does the work for each case; the first that fails fails all.
pub(crate) fn in_parallel<Case: Send, Found: Send>(
    cases: impl IntoIterator<Item = Case, IntoIter: Send>,
    work: impl Fn(&MockServer, Case) -> Found + Sync,
) -> Vec<Found> {
    let (cases, found) = (Mutex::new(cases.into_iter()), Mutex::new(Vec::new()));
    // A worker that has panicked holds neither lock; the others end when they have done what they are at.
    let next = || cases.lock().unwrap().next();
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
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
