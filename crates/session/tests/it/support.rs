//! Test support: a scripted provider, tools that record their calls, a journal in a folder of its own.

use futures_util::{StreamExt, stream};
use outlast_dialect::{Delta, Message, Part, Request};
use outlast_engine::clock::TimerClock;
use outlast_engine::credential::Credential;
use outlast_engine::journal::Entry;
use outlast_engine::strategy::PolicyRetry;
use outlast_engine::tools::{Effect, Output, Toolbox};
use outlast_engine::{BoxFuture, BoxStream, CancellationToken, Clock, Provider};
use outlast_kernel::Timestamp;
use outlast_kernel::event::{Body, Event, StopReason, ToolCall, Usage};
use outlast_kernel::failure::Failure;
use outlast_kernel::policy::Policy;
use outlast_session::Session;
use outlast_session::{self as session, Setup, Subscription};
use outlast_store::Journal;
use outlast_store::journal::{NewSession, Page, StoredEntry};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);

// --- The provider ---

pub(crate) type Item = Result<Delta, Box<Failure>>;

/// The scripted response to a call.
#[derive(Clone)]
pub(crate) struct Call {
    items: Vec<Item>,
    /// Whether the stream stays open after the items, instead of ending.
    hangs: bool,
}

impl From<Vec<Item>> for Call {
    fn from(items: Vec<Item>) -> Self {
        let hangs = false;
        Self { items, hangs }
    }
}

/// Returns a call that yields these items and then hangs.
pub(crate) fn hangs(items: Vec<Item>) -> Call {
    Call { items, hangs: true }
}

/// A request and its time.
#[derive(Clone, Debug)]
pub(crate) struct RecordedRequest {
    pub(crate) after: Duration,
    pub(crate) messages: Vec<Message>,
}

/// Answers each call with the next script; the last one is repeated.
pub(crate) struct Scripted {
    calls: Mutex<VecDeque<Call>>,
    requests: Mutex<Vec<RecordedRequest>>,
    hang: AtomicBool,
    clock: Arc<dyn Clock>,
}

impl Scripted {
    /// Sets whether calls hang without being recorded.
    pub(crate) fn hang(&self, hang: bool) {
        self.hang.store(hang, Ordering::Relaxed);
    }

    pub(crate) fn is_hanging(&self) -> bool {
        self.hang.load(Ordering::Relaxed)
    }

    pub(crate) fn requests(&self) -> Vec<RecordedRequest> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) fn calls_made(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    /// Returns the time of each call, in seconds after the start.
    pub(crate) fn called_at(&self) -> Vec<u64> {
        let asked = self.requests();
        asked.iter().map(|asked| asked.after.as_secs()).collect()
    }
}

impl Provider for Scripted {
    fn name(&self) -> &str {
        "scripted"
    }

    fn stream(&self, request: &Request, _: Option<&Credential>) -> BoxStream<'static, Item> {
        if self.is_hanging() {
            return stream::pending().boxed();
        }
        self.requests.lock().unwrap().push(RecordedRequest {
            after: self.clock.now().since(START),
            messages: request.messages.clone(),
        });
        let mut calls = self.calls.lock().unwrap();
        let call = if calls.len() > 1 {
            calls.pop_front().unwrap()
        } else {
            calls[0].clone()
        };
        let items = stream::iter(call.items);
        if call.hangs {
            items.chain(stream::pending()).boxed()
        } else {
            items.boxed()
        }
    }
}

pub(crate) fn text(text: &str) -> Item {
    Ok(Delta::Text(text.to_owned()))
}

pub(crate) fn stop(reason: StopReason) -> Item {
    Ok(Delta::Stopped(reason))
}

pub(crate) fn usage_delta(input: u64, output: u64) -> Item {
    Ok(Delta::Usage(usage(input, output)))
}

pub(crate) fn usage(input: u64, output: u64) -> Usage {
    Usage {
        input,
        output,
        ..Usage::default()
    }
}

pub(crate) fn answers(answer: &str) -> Call {
    vec![text(answer), stop(StopReason::EndTurn)].into()
}

pub(crate) fn fails(failure: Failure) -> Call {
    vec![Err(Box::new(failure))].into()
}

pub(crate) fn call(id: &str, name: &str) -> ToolCall {
    ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: "{}".to_owned(),
    }
}

pub(crate) fn tool_call_delta(id: &str, name: &str) -> Item {
    Ok(Delta::ToolCall(call(id, name)))
}

/// Returns a completion with these tool calls: id and name.
pub(crate) fn calls(tools: &[(&str, &str)]) -> Call {
    let wanted = tools.iter().map(|(id, name)| tool_call_delta(id, name));
    let items: Vec<Item> = wanted.chain([stop(StopReason::ToolUse)]).collect();
    items.into()
}

pub(crate) fn overloaded() -> Failure {
    Failure::http("scripted", 529, "Overloaded", START)
}

// --- The tools ---

/// Records the calls that ran. `send` may run at most once, `write` is idempotent, `slow` and `stubborn` take an hour, all
/// else is pure; `forbidden` is not admitted.
pub(crate) struct Tools {
    ran: Mutex<Vec<String>>,
    hang: AtomicBool,
    clock: Arc<dyn Clock>,
}

impl Tools {
    /// Returns the ids of the calls that ran, in order.
    pub(crate) fn ran(&self) -> Vec<String> {
        self.ran.lock().unwrap().clone()
    }

    /// Sets whether calls hang.
    pub(crate) fn hang(&self, hang: bool) {
        self.hang.store(hang, Ordering::Relaxed);
    }
}

pub(crate) fn effect(name: &str) -> Effect {
    match name {
        "send" | "slow" | "stubborn" => Effect::AtMostOnce,
        "write" => Effect::Idempotent,
        _ => Effect::Pure,
    }
}

impl Toolbox for Tools {
    fn admit<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, Result<Effect, String>> {
        Box::pin(async move {
            match call.name.as_str() {
                "forbidden" => Err("it is not allowed".to_owned()),
                name => Ok(effect(name)),
            }
        })
    }

    fn run<'a>(&'a self, call: &'a ToolCall, cancel: CancellationToken) -> BoxFuture<'a, Output> {
        self.ran.lock().unwrap().push(call.id.clone());
        let hour = self.clock.now() + Duration::from_secs(3600);
        Box::pin(async move {
            if self.hang.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            match call.name.as_str() {
                "slow" => tokio::select! {
                    () = cancel.cancelled() => return Output::error("it was stopped"),
                    () = self.clock.sleep_until(hour) => {}
                },
                "stubborn" => self.clock.sleep_until(hour).await,
                _ => {}
            }
            Output::ok(format!("{} is done", call.id))
        })
    }
}

// --- The session ---

/// The dependencies of a session, with access to their records.
pub(crate) struct Fixture {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) provider: Arc<Scripted>,
    pub(crate) tools: Arc<Tools>,
}

impl Fixture {
    pub(crate) fn new(calls: impl IntoIterator<Item = Call>) -> Self {
        Self::by(Arc::new(TimerClock::new(START)), calls)
    }

    /// Creates the fixture of another process at the same time of day.
    pub(crate) fn by(clock: Arc<dyn Clock>, calls: impl IntoIterator<Item = Call>) -> Self {
        let provider = Arc::new(Scripted {
            calls: Mutex::new(calls.into_iter().collect()),
            requests: Mutex::default(),
            hang: AtomicBool::new(false),
            clock: Arc::clone(&clock),
        });
        let tools = Arc::new(Tools {
            ran: Mutex::default(),
            hang: AtomicBool::new(false),
            clock: Arc::clone(&clock),
        });
        Self {
            clock,
            provider,
            tools,
        }
    }

    /// Creates a setup with the policy of sessions, and tools.
    pub(crate) fn setup(&self) -> Setup {
        self.setup_by(Policy::named("session").unwrap())
    }

    pub(crate) fn setup_by(&self, policy: Policy) -> Setup {
        let retry = PolicyRetry::new(policy, Arc::clone(&self.clock));
        Setup {
            retry: Some(Arc::new(retry)),
            tools: Some(Arc::clone(&self.tools) as Arc<dyn Toolbox>),
            ..Setup::new(
                Arc::clone(&self.provider) as Arc<dyn Provider>,
                "model",
                Arc::clone(&self.clock),
            )
        }
    }

    pub(crate) fn session(&self) -> Arc<Session> {
        Arc::new(Session::in_memory(self.setup()))
    }

    /// Returns the time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.clock.now().since(START)
    }
}

/// Records all events of a session; `react` may steer it.
pub(crate) struct Listener {
    events: Arc<Mutex<Vec<Event>>>,
    _subscription: Subscription,
}

impl Listener {
    pub(crate) fn new(session: &Arc<Session>) -> Self {
        Self::with(session, |_, _| {})
    }

    pub(crate) fn with(
        session: &Arc<Session>,
        mut react: impl FnMut(&Session, &Body) + Send + 'static,
    ) -> Self {
        let events: Arc<Mutex<Vec<Event>>> = Arc::default();
        let (heard, weak) = (Arc::clone(&events), Arc::downgrade(session));
        let subscription = session.subscribe(move |event| {
            heard.lock().unwrap().push(event.clone());
            react(&weak.upgrade().unwrap(), &event.body);
        });
        Self {
            events,
            _subscription: subscription,
        }
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }

    pub(crate) fn bodies(&self) -> Vec<Body> {
        self.events().into_iter().map(|event| event.body).collect()
    }

    /// Returns the types of the events, as on the wire.
    pub(crate) fn kinds(&self) -> Vec<String> {
        let kind = |body: &Body| serde_json::to_value(body).unwrap()["type"].clone();
        let kinds = self.bodies().iter().map(kind).collect::<Vec<_>>();
        let word = |kind: &serde_json::Value| kind.as_str().unwrap().to_owned();
        kinds.iter().map(word).collect()
    }

    pub(crate) fn count(&self, kind: &str) -> usize {
        self.kinds().iter().filter(|other| *other == kind).count()
    }

    /// Returns the announced retries: number and delay in milliseconds.
    pub(crate) fn retries(&self) -> Vec<(u32, u64)> {
        let retry = |body: &Body| match body {
            Body::RetryScheduled {
                attempt, delay_ms, ..
            } => Some((*attempt, *delay_ms)),
            _ => None,
        };
        self.bodies().iter().filter_map(retry).collect()
    }

    /// Returns the ends of retry chains: success, number, error.
    pub(crate) fn ends(&self) -> Vec<(bool, u32, Option<String>)> {
        let end = |body: Body| match body {
            Body::RetryEnded {
                success,
                attempt,
                error,
            } => Some((success, attempt, error)),
            _ => None,
        };
        self.bodies().into_iter().filter_map(end).collect()
    }
}

pub(crate) fn is_wait(body: &Body) -> bool {
    matches!(body, Body::RetryScheduled { .. })
}

/// Returns a conversation in words: messages, tool calls and results.
pub(crate) fn describe_messages(messages: &[Message]) -> Vec<String> {
    messages
        .iter()
        .flat_map(|message| &message.parts)
        .map(describe_part)
        .collect()
}

fn describe_part(part: &Part) -> String {
    match part {
        Part::Text { text } => text.clone(),
        Part::ToolCall(call) => format!("{}({})", call.name, call.id),
        Part::ToolResult(result) if result.is_error => format!("{}! {}", result.id, result.output),
        Part::ToolResult(result) => format!("{}: {}", result.id, result.output),
        Part::Reasoning(reasoning) => format!("({})", reasoning.text),
        part => panic!("{part:?}"),
    }
}

// --- The journal ---

/// A journal in a folder of its own.
pub(crate) struct TestJournal {
    folder: tempfile::TempDir,
    pub(crate) journal: Journal,
}

impl TestJournal {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(&folder.path().join("journal.db")).unwrap();
        Self {
            folder,
            journal: journal.journal,
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("journal.db")
    }

    /// Opens the journal as another process would.
    pub(crate) fn open_again(&self) -> Journal {
        Journal::open(&self.path()).unwrap().journal
    }

    /// Removes the lock files of all claimed sessions; to other processes their owners are dead then.
    pub(crate) fn remove_locks(&self) {
        let folder = self.folder.path().join("journal.db.owners");
        for found in std::fs::read_dir(folder).unwrap() {
            std::fs::remove_file(found.unwrap().path()).unwrap();
        }
    }

    pub(crate) async fn begin(&self, setup: Setup) -> Arc<Session> {
        Arc::new(
            Session::create(&self.journal, ("/", "a title"), setup)
                .await
                .unwrap(),
        )
    }

    pub(crate) async fn open(&self, id: &str, setup: Setup) -> Arc<Session> {
        Arc::new(Session::open(&self.journal, id, setup).await.unwrap())
    }

    /// Creates a session of that name, as left by a process that wrote these entries.
    pub(crate) async fn write_down(&self, id: &str, stored: &[StoredEntry]) {
        let new = NewSession {
            title: String::new(),
            id: id.to_owned(),
            directory: "/".to_owned(),
            now: START,
        };
        let hold = self.journal.create(new).await.unwrap();
        let lines = stored.iter().map(|stored| stored.entry.clone()).collect();
        self.journal.append(&hold, lines).await.unwrap();
        self.journal.release(hold).await.unwrap();
    }

    /// Returns all entries of a session.
    pub(crate) async fn entries(&self, id: &str) -> Vec<Entry> {
        let page = Page {
            after: 0,
            limit: 10_000,
            kinds: None,
        };
        let stored = self.journal.read(id, page).await.unwrap();
        stored
            .iter()
            .map(|line| session::parse_entry(id, line).unwrap())
            .collect()
    }

    pub(crate) async fn kinds(&self, id: &str) -> Vec<&'static str> {
        self.entries(id).await.iter().map(Entry::kind).collect()
    }
}

/// The end of a run that stops at an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Died,
    Ended,
}

/// Runs until the first of these events and the actions that follow from it at once; drops the rest, as a process that dies
/// does. Unless something waits or hangs, all of the rest may follow at once.
pub(crate) async fn run_until(
    session: &Arc<Session>,
    running: impl Future,
    is_enough: impl Fn(&Body) -> bool + Send + 'static,
) -> Fate {
    let cut = Arc::new(tokio::sync::Notify::new());
    let notify = Arc::clone(&cut);
    let _listener = Listener::with(session, move |_, body| {
        if is_enough(body) {
            notify.notify_one();
        }
    });
    tokio::select! {
        biased;
        () = cut.notified() => Fate::Died,
        _ = running => Fate::Ended,
    }
}

/// Returns a predicate for the event; from the first match on the provider hangs.
pub(crate) fn hang_at(
    provider: &Arc<Scripted>,
    is_it: fn(&Body) -> bool,
) -> impl Fn(&Body) -> bool + Send + 'static {
    let provider = Arc::clone(provider);
    move |body| {
        let is_it = is_it(body);
        if is_it {
            provider.hang(true);
        }
        is_it
    }
}

/// Runs the future in a thread of its own, while all other tasks stand still.
pub(crate) fn on_other_thread<T: Send>(work: impl Future<Output = T> + Send) -> T {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(work)
    };
    std::thread::scope(|scope| scope.spawn(run).join().unwrap())
}
