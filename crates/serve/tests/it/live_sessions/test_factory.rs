//! A session factory with one model, a journal, and a clock that the test advances.

use crate::kinds::NOW;
use outlast_dialect::Dialect;
use outlast_engine::clock::TimerClock;
use outlast_engine::provider::Adapter;
use outlast_engine::strategy::PolicyRetry;
use outlast_engine::{BoxFuture, Clock};
use outlast_kernel::budget::Limits;
use outlast_kernel::policy::Policy;
use outlast_mock::ScriptedTransport;
use outlast_session::Session;
use outlast_session::Setup;
use outlast_session::factory::{
    FactoryError, Host, HostedSession, Model, OpenedSession, SessionDescription, SessionFactory,
    SessionOptions,
};
use outlast_session::tools::shell::ShellCommand;
use outlast_store::Journal;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::Semaphore;

/// Maximum duration of a test, in seconds of its clock.
const MAX_SECONDS: u32 = 20_000;

/// A host with one model and no settings.
struct TestHost;

fn model() -> Model {
    Model {
        id: "m".to_owned(),
        name: "m".to_owned(),
        api: "anthropic-messages".to_owned(),
        provider: "mock".to_owned(),
        base_url: String::new(),
        reasoning: false,
        input: Vec::new(),
        cost: outlast_session::factory::ModelCost::default(),
        context_window: 1000,
        max_tokens: 1000,
    }
}

fn not_here<T>() -> Result<T, String> {
    Err("not here".to_owned())
}

impl Host for TestHost {
    fn create(&self) -> BoxFuture<'_, Result<OpenedSession, String>> {
        Box::pin(async { not_here() })
    }

    fn open<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<OpenedSession, String>> {
        Box::pin(async { not_here() })
    }

    fn fork<'a>(
        &'a self,
        _: &'a Session,
        _: Option<u64>,
    ) -> BoxFuture<'a, Result<OpenedSession, String>> {
        Box::pin(async { not_here() })
    }

    fn models(&self) -> Vec<Model> {
        vec![model()]
    }

    fn setup_with_model<'a>(
        &'a self,
        _: Arc<Setup>,
        _: (&'a str, &'a str),
    ) -> BoxFuture<'a, Result<Option<(Setup, Model)>, String>> {
        Box::pin(async { not_here() })
    }

    fn setup_with_policy(&self, _: &Setup, _: &str) -> Result<Setup, String> {
        not_here()
    }

    fn policy(&self) -> Option<Policy> {
        None
    }

    fn limits(&self) -> Limits {
        Limits::default()
    }

    fn resume_options(&self) -> Value {
        Value::Null
    }

    fn journal_path(&self) -> Option<String> {
        None
    }

    fn folder(&self) -> PathBuf {
        PathBuf::new()
    }

    fn shell_command(&self, command: &str) -> ShellCommand {
        ShellCommand {
            command: command.to_owned(),
            directory: PathBuf::new(),
            hidden_variables: Vec::new(),
        }
    }

    fn leave_session(&self, _: &Session) {}

    fn warn(&self, _: &str) {}
}

pub(super) struct TestFactory {
    pub(super) journal: Journal,
    clock: Arc<dyn Clock>,
    script: &'static str,
    /// The number of sessions that may still be opened.
    pub(super) open_permits: Semaphore,
    /// The seconds that have passed.
    passed: AtomicU32,
    _folder: TempDir,
}

impl TestFactory {
    pub(super) fn new(script: &'static str) -> Arc<Self> {
        let folder = TempDir::new().unwrap();
        Arc::new(Self {
            journal: Journal::open(&folder.path().join("s.db")).unwrap().journal,
            clock: Arc::new(TimerClock::new(NOW)),
            script,
            passed: AtomicU32::new(0),
            open_permits: Semaphore::new(Semaphore::MAX_PERMITS),
            _folder: folder,
        })
    }

    pub(super) fn setup(&self) -> Setup {
        let transport =
            ScriptedTransport::new(self.script.parse().unwrap(), Arc::clone(&self.clock));
        let adapter = Adapter::new(
            Dialect::Anthropic,
            Arc::new(transport),
            Arc::clone(&self.clock),
        );
        let policy = Policy::named("session").unwrap();
        Setup {
            retry: Some(Arc::new(PolicyRetry::new(policy, Arc::clone(&self.clock)))),
            retry_enabled: true,
            ..Setup::new(Arc::new(adapter), "m", Arc::clone(&self.clock))
        }
    }
}

impl SessionFactory for TestFactory {
    fn journal(&self) -> Option<&Journal> {
        Some(&self.journal)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    fn folder(&self) -> PathBuf {
        PathBuf::new()
    }

    fn describe<'a>(
        &'a self,
        _: Option<&'a str>,
        _: &'a SessionOptions,
    ) -> BoxFuture<'a, Result<SessionDescription, FactoryError>> {
        Box::pin(async {
            Ok(SessionDescription {
                model: model(),
                models: vec![model()],
                policy: "session".to_owned(),
                problem: None,
            })
        })
    }

    fn open<'a>(
        &'a self,
        name: &'a str,
        _: &'a SessionOptions,
    ) -> BoxFuture<'a, Result<HostedSession, FactoryError>> {
        Box::pin(async move {
            self.open_permits.acquire().await.unwrap().forget();
            let session = match self.journal.summary(name).await {
                Ok(_) => Session::open(&self.journal, name, self.setup()).await,
                Err(_) => {
                    let id = name.to_owned();
                    Session::create_with_id(&self.journal, id, "", "", self.setup()).await
                }
            };
            let session = session.map_err(|error| FactoryError::Failed(error.to_string()))?;
            Ok(HostedSession {
                opened: OpenedSession {
                    session: Arc::new(session),
                    model: model(),
                },
                host: Arc::new(TestHost),
            })
        })
    }
}

/// Keeps the paused clock from advancing by itself. The journal replies from its own thread, and meanwhile a paused
/// clock would jump from one cleanup to the next: over a day in a millisecond.
pub(super) struct TimeHold(
    #[expect(dead_code, reason = "it ends with this")] std::sync::mpsc::Sender<()>,
);

pub(super) fn hold_time() -> TimeHold {
    let (held, end) = std::sync::mpsc::channel::<()>();
    tokio::task::spawn_blocking(move || end.recv().ok());
    TimeHold(held)
}

impl TestFactory {
    /// Advances the clock by a second, once the journal has answered all earlier requests.
    pub(super) async fn advance_second(&self) {
        let passed = self.passed.fetch_add(1, Ordering::Relaxed);
        assert!(passed < MAX_SECONDS, "what is waited for does not come");
        self.journal.sessions().await.unwrap();
        tokio::time::advance(Duration::from_secs(1)).await;
    }

    pub(super) async fn seconds(&self, count: u32) {
        for _ in 0..count {
            self.advance_second().await;
        }
    }
}
