//! Tests of holds, with a clock that tests move, and with real files.

use super::identity::{Identity, Parts};
use super::registry::{HeldRequest, MAX_ABANDONED};
use super::{Command, Hold, Holds, Progress, RESUME_WINDOW, RequestSummary, Signal};
use crate::control::WaitingRequest;
use http::{HeaderMap, HeaderName, HeaderValue};
use outlast_engine::clock::TimerClock;
use outlast_engine::shared_state::StoreEvent;
use outlast_engine::{BoxFuture, Clock};
use outlast_kernel::Timestamp;
use outlast_kernel::budget::{Limits, Prompt};
use outlast_kernel::verdict::Cause;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tempfile::TempDir;

#[path = "holds_tests/file.rs"]
mod file;
#[path = "holds_tests/memory.rs"]
mod memory;

const START: u64 = 1_800_000_000;
const MINUTE: Duration = Duration::from_secs(60);
/// The timeout of a test that would hang.
const HANG_TIMEOUT: Duration = Duration::from_secs(120);

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis((START + seconds) * 1000)
}

/// A clock that shows the time that a test sets.
#[derive(Default)]
struct ManualClock(AtomicU64);

impl ManualClock {
    fn set(&self, seconds: u64) {
        self.0.store(seconds, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        at(self.0.load(Ordering::Relaxed))
    }

    fn sleep_until(&self, _: Timestamp) -> BoxFuture<'static, ()> {
        unreachable!("nothing here waits for a time")
    }
}

/// Holds with their clock and the events that they reported.
struct TestGateway {
    holds: Holds,
    clock: Arc<ManualClock>,
    notices: mpsc::Receiver<StoreEvent>,
}

impl TestGateway {
    async fn open(path: Option<PathBuf>, seconds: u64) -> Self {
        let clock = Arc::new(ManualClock::default());
        clock.set(seconds);
        let (say, notices) = mpsc::channel();
        let listener = Arc::new(move |notice| say.send(notice).unwrap());
        let holds = Holds::open(path, Arc::clone(&clock) as Arc<dyn Clock>, listener).await;
        Self {
            holds,
            clock,
            notices,
        }
    }

    async fn in_memory() -> Self {
        Self::open(None, 0).await
    }

    fn begin(&self, body: &str, id: &str) -> Hold {
        let seconds = self.clock.0.load(Ordering::Relaxed);
        self.holds
            .begin(identity_of(body), summary(id), progress(seconds, 1))
    }

    fn resume(&self, body: &str) -> Option<(Hold, Progress)> {
        self.holds.resume(&identity_of(body), summary("again"))
    }

    /// Returns the id of each hold, and whether its client has left.
    fn views(&self) -> Vec<(String, bool)> {
        let show = |shown: WaitingRequest| (shown.id, shown.left.is_some());
        self.holds.list().into_iter().map(show).collect()
    }

    fn notices(&self) -> Vec<StoreEvent> {
        self.notices.try_iter().collect()
    }
}

fn identity_of(body: &str) -> Identity {
    let mut making = Identity::builder(&Parts {
        credential: b"mark",
        client: "codex",
        method: "POST",
        path: "/v1/responses",
        headers: &HeaderMap::new(),
    });
    making.update_body(body.as_bytes());
    making.finish()
}

fn summary(id: &str) -> RequestSummary {
    RequestSummary {
        id: id.into(),
        client: "codex".into(),
        dialect: Some("openai_responses".into()),
        model: Some("gpt-5".into()),
        account: None,
        path: "/v1/responses".into(),
    }
}

fn progress(since: u64, attempts: u32) -> Progress {
    let mut prompt = Prompt::new(Limits {
        deadline: Some(at(90_000)),
        sleep: Some(Duration::from_secs(8 * 3600)),
        ..Limits::default()
    });
    prompt.reserve_sleep(Duration::from_secs(u64::from(attempts)));
    Progress {
        prompt,
        since: at(since),
        attempts,
        cause: Some(Cause::Overloaded),
        ..Progress::default()
    }
}

fn ids(shown: &[(String, bool)]) -> Vec<&str> {
    shown.iter().map(|(id, _)| id.as_str()).collect()
}
