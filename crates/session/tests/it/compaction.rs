//! Summaries by providers that fail: retried for a while, then requested from the next model, then replaced by elision.

use crate::support::START;
use futures_util::StreamExt;
use outlast_dialect::{Delta, Dialect, Message, Request};
use outlast_engine::clock::TimerClock;
use outlast_engine::compaction::{Compactor, Job, Outcome, Size};
use outlast_engine::credential::Credential;
use outlast_engine::provider::Adapter;
use outlast_engine::strategy::PolicyRetry;
use outlast_engine::target::ModelTarget;
use outlast_engine::token_estimate;
use outlast_engine::{BoxStream, CancellationToken, Clock, Provider};
use outlast_kernel::budget::{Cost, Limits, Price, Prompt};
use outlast_kernel::event::{Body, CompactionReason};
use outlast_kernel::failure::Failure;
use outlast_kernel::fallback::Exclusions;
use outlast_kernel::policy::Policy;
use outlast_kernel::verdict::Cause;
use outlast_mock::ScriptedTransport;
use outlast_session::compaction::{Compaction, Settings};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const WINDOW: u64 = 100_000;

/// A scripted provider that records its requests.
struct RecordingProvider {
    provider: Adapter,
    requests: Mutex<Vec<Request>>,
}

impl RecordingProvider {
    fn calls(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

impl Provider for RecordingProvider {
    fn name(&self) -> &str {
        self.provider.name()
    }

    fn stream(
        &self,
        request: &Request,
        credential: Option<&Credential>,
    ) -> BoxStream<'static, Result<Delta, Box<Failure>>> {
        self.requests.lock().unwrap().push(request.clone());
        self.provider.stream(request, credential).boxed()
    }
}

/// Summarisers with a script each; the first one is asked first.
struct Fixture {
    clock: Arc<dyn Clock>,
    providers: Vec<Arc<RecordingProvider>>,
    routes: Vec<ModelTarget>,
    policy: Policy,
}

impl Fixture {
    fn new(scripts: &[&str]) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(TimerClock::new(START));
        let hear = |script: &&str| {
            let script = script.parse().unwrap();
            let transport = Arc::new(ScriptedTransport::new(script, Arc::clone(&clock)));
            let provider = Adapter::new(Dialect::Anthropic, transport, Arc::clone(&clock));
            let requests = Mutex::default();
            Arc::new(RecordingProvider { provider, requests })
        };
        let providers: Vec<Arc<RecordingProvider>> = scripts.iter().map(hear).collect();
        let route = |(index, heard): (usize, &Arc<RecordingProvider>)| {
            ModelTarget::new(
                Arc::clone(heard) as Arc<dyn Provider>,
                format!("model-{index}"),
            )
        };
        Self {
            routes: providers.iter().enumerate().map(route).collect(),
            providers,
            clock,
            policy: Policy::named("session").unwrap(),
        }
    }

    fn with_windows(mut self, window: u64) -> Self {
        for route in &mut self.routes {
            route.traits.window = Some(window);
        }
        self
    }

    fn calls(&self) -> Vec<usize> {
        self.providers.iter().map(|heard| heard.calls()).collect()
    }

    async fn compact(&self) -> CompactionResult {
        self.compact_within(Prompt::default(), CancellationToken::new())
            .await
    }

    async fn compact_within(&self, budget: Prompt, cancel: CancellationToken) -> CompactionResult {
        self.compact_request(&long(), budget, cancel).await
    }

    async fn compact_request(
        &self,
        request: &Request,
        budget: Prompt,
        cancel: CancellationToken,
    ) -> CompactionResult {
        let retry = Arc::new(PolicyRetry::new(
            self.policy.clone(),
            Arc::clone(&self.clock),
        ));
        let settings = Settings::default();
        let clock = Arc::clone(&self.clock);
        let compaction = Compaction::new(self.routes.clone(), retry, clock, settings);
        let mut events = Vec::new();
        let mut say = |body| events.push(body);
        let (tokens, left) = (
            token_estimate::request_tokens(request),
            Exclusions::default(),
        );
        let job = Job {
            focus: None,
            request,
            size: Size {
                tokens,
                window: Some(WINDOW),
            },
            reason: CompactionReason::Threshold,
            budget,
            cancel,
            unavailable_models: &left,
            emit: &mut say,
        };
        let since = self.clock.now();
        let outcome = compaction.compact(job).await;
        let took = self.clock.now().since(since);
        CompactionResult {
            outcome,
            events,
            took,
        }
    }
}

struct CompactionResult {
    outcome: Outcome,
    events: Vec<Body>,
    took: Duration,
}

impl CompactionResult {
    /// Returns the model that summarised; `None` when parts were elided.
    fn model(&self) -> Option<&str> {
        let smaller = self.outcome.result.as_ref().unwrap();
        assert!(smaller.size < WINDOW * 3 / 4, "{}", smaller.size);
        smaller.model.as_deref()
    }

    /// Returns the announced retries: number, seconds after the start, cause.
    fn retries(&self) -> Vec<(u32, u64, Cause)> {
        let retry = |body: &Body| match body {
            Body::AutoCompactionRetry {
                attempt,
                retry_at,
                cause,
                ..
            } => (*attempt, retry_at.since(START).as_secs(), *cause),
            other => panic!("{other:?}"),
        };
        self.events.iter().map(retry).collect()
    }
}

/// Returns a conversation of some 90,000 tokens.
fn long() -> Request {
    let message = |number| Message::user(format!("{number} {}", "word ".repeat(1500)));
    Request {
        messages: (0..48).map(message).collect(),
        ..Request::default()
    }
}

#[tokio::test(start_paused = true)]
async fn failed_summary_is_retried_and_announced() {
    let world = Fixture::new(&["overloaded:2"]);
    let done = world.compact().await;
    assert_eq!(done.model(), Some("model-0"));
    let overloaded = Cause::Overloaded;
    assert_eq!(done.retries(), [(1, 2, overloaded), (2, 6, overloaded)]);
    assert_eq!((world.calls(), done.took.as_secs()), (vec![3], 6));
}

#[tokio::test(start_paused = true)]
async fn failing_summariser_falls_back_to_next_model() {
    // The script of the first model, its number of calls, the duration in seconds.
    let table = [
        ("error:401", 1, 0),
        ("error:403", 1, 0),
        ("error:400", 1, 0),
        ("overloaded:9", 3, 6),
        ("stall", 1, 300),
        ("stall:3", 1, 300),
        ("hold:100000", 1, 310),
        ("error:504", 1, 0),
        ("rate-limited:retry-after=31", 1, 0),
        ("rate-limited:retry-after=30", 2, 30),
        ("usage-limit", 1, 0),
        ("ok:empty", 1, 0),
        ("ok:refusal", 1, 0),
        ("ok:length", 1, 0),
    ];
    let mut wrong = Vec::new();
    for (script, calls, seconds) in table {
        let world = Fixture::new(&[script, "ok"]);
        let done = world.compact().await;
        let expected_model = if script == "rate-limited:retry-after=30" {
            "model-0"
        } else {
            "model-1"
        };
        let second = usize::from(expected_model == "model-1");
        let got = (done.model(), world.calls(), done.took.as_secs());
        if got != (Some(expected_model), vec![calls, second], seconds) {
            wrong.push(format!("{script}: {got:?} {:?}", done.events));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn summary_cut_mid_stream_is_retried() {
    let world = Fixture::new(&["drop-after:3+ok"]);
    let done = world.compact().await;
    assert_eq!((done.model(), world.calls()), (Some("model-0"), vec![2]));
}

#[tokio::test(start_paused = true)]
async fn conversation_is_elided_when_no_summariser_succeeds() {
    for scripts in [&["error:401", "overloaded:9"][..], &["stall"], &[]] {
        let world = Fixture::new(scripts);
        let done = world.compact().await;
        assert_eq!(done.model(), None, "{scripts:?}");
        let smaller = done.outcome.result.unwrap();
        let text: String = smaller.messages.iter().map(Message::text).collect();
        assert!(text.contains("bytes left out"));
        assert_eq!(smaller.messages.last(), long().messages.last());
    }
}

#[tokio::test(start_paused = true)]
async fn overflowing_summary_request_skips_other_summarisers() {
    let world = Fixture::new(&["overflow", "ok"]);
    let done = world.compact().await;
    assert_eq!((done.model(), world.calls()), (None, vec![1, 0]));
}

#[tokio::test(start_paused = true)]
async fn summary_not_shorter_than_its_source_is_rejected() {
    // It has nearly nine thousand tokens.
    let said = |word: &str, bytes: usize| Message::user(word.repeat(bytes / word.len()));
    let request = Request {
        messages: vec![said("word ", 30_000), said("short ", 72_000)],
        ..Request::default()
    };
    let world = Fixture::new(&["ok:long", "ok"]);
    let cancel = CancellationToken::new();
    let done = world
        .compact_request(&request, Prompt::default(), cancel)
        .await;
    assert_eq!((done.model(), world.calls()), (Some("model-1"), vec![1, 1]));
}

#[tokio::test(start_paused = true)]
async fn conversation_is_clipped_to_summariser_window() {
    for window in [40_000, 8000, 3000] {
        let world = Fixture::new(&["ok"]).with_windows(window);
        let done = world.compact().await;
        assert_eq!(done.model(), Some("model-0"), "{window}");
        let asked = world.providers[0].requests.lock().unwrap()[0].clone();
        let most = u64::from(asked.max_tokens.unwrap());
        assert!(
            most <= 4096.min(window / 4) && token_estimate::request_tokens(&asked) + most <= window,
            "{window}"
        );
        assert!(
            token_estimate::request_tokens(&asked) > window / 4,
            "no more is left out than needed"
        );
        let told = asked.messages[0].text();
        assert!(told.lines().all(|line| line.starts_with("| ")));
    }
}

#[tokio::test(start_paused = true)]
async fn cancel_stops_compaction_during_wait_and_call() {
    for script in ["overloaded:9", "hold:1000", "stall:2"] {
        let world = Fixture::new(&[script, "ok"]);
        let cancel = CancellationToken::new();
        let soon = world.clock.sleep_until(START + Duration::from_millis(1500));
        let canceller = async {
            soon.await;
            cancel.cancel();
        };
        let compacting = world.compact_within(Prompt::default(), cancel.clone());
        let (done, ()) = tokio::join!(compacting, canceller);
        assert_eq!(done.outcome.result.unwrap_err(), "cancelled", "{script}");
        let late = done.took.saturating_sub(Duration::from_millis(1500));
        assert!(late <= Duration::from_millis(250), "{script} {late:?}");
        assert_eq!(world.calls(), [1, 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn summary_waits_spend_sleep_budget_of_prompt() {
    let world = Fixture::new(&["overloaded:9", "overloaded+ok"]);
    let budget = Prompt::new(Limits {
        sleep: Some(Duration::from_secs(9)),
        ..Limits::default()
    });
    let done = world.compact_within(budget, CancellationToken::new()).await;
    assert_eq!(done.model(), Some("model-1"));
    let left = done.outcome.budget.sleep_left();
    assert_eq!(left, Some(Duration::from_secs(1)), "2 s and 4 s, then 2 s");

    let budget = Prompt::new(Limits {
        sleep: Some(Duration::from_secs(7)),
        ..Limits::default()
    });
    let world = Fixture::new(&["overloaded:9", "overloaded+ok"]);
    let done = world.compact_within(budget, CancellationToken::new()).await;
    assert_eq!(
        done.model(),
        None,
        "there was a second left, two were needed"
    );
}

#[tokio::test(start_paused = true)]
async fn summary_cost_is_added_to_prompt_cost() {
    let mut world = Fixture::new(&["ok:refusal", "ok"]);
    for route in &mut world.routes {
        route.price = Some(Price {
            input: Cost(1_000_000),
            output: Cost(2_000_000),
            ..Price::default()
        });
    }
    let mut budget = Prompt::new(Limits {
        cost: Some(Cost(10_000_000)),
        ..Limits::default()
    });
    budget.spend(Cost(5_000_000));
    let done = world
        .compact_within(budget.clone(), CancellationToken::new())
        .await;
    assert_eq!(done.model(), Some("model-1"));
    let usage = done.outcome.usage;
    assert!(usage.input > 30_000 && usage.output > 10, "{usage:?}");
    let cost = usage.input + 2 * usage.output;
    assert_eq!(done.outcome.budget.cost(), Cost(5_000_000 + cost));

    // No model is asked any more once the ceiling is reached.
    budget.spend(Cost(5_000_000));
    let done = world.compact_within(budget, CancellationToken::new()).await;
    assert_eq!((done.model(), world.calls()), (None, vec![1, 1]));
}

#[tokio::test(start_paused = true)]
async fn usage_of_failed_attempts_is_reported() {
    let world = Fixture::new(&["ok:refusal"]);
    let mut request = long();
    request.system = Some("x".repeat(400_000));
    let cancel = CancellationToken::new();
    let done = world
        .compact_request(&request, Prompt::default(), cancel)
        .await;
    let why = done.outcome.result.unwrap_err();
    assert!(why.contains("(no summary: the model refused)"), "{why}");
    assert!(
        done.outcome.usage.input > 40_000,
        "{:?}",
        done.outcome.usage
    );
}
