//! A scripted provider, and a turn to run it in.

use crate::scripted_transport::question;
use futures_util::{StreamExt, stream};
use outlast_dialect::{Delta, Request};
use outlast_engine::admission::GateRequest;
use outlast_engine::clock::TimerClock;
use outlast_engine::credential::Credential;
use outlast_engine::shared_state::SharedState;
use outlast_engine::strategy::{Aborted, PolicyRetry};
use outlast_engine::turn::{Control, Handle, Ids, Turn, TurnOutcome};
use outlast_engine::{
    BoxFuture, BoxStream, CancellationToken, Clock, Provider, RetryStrategy, run_turn,
};
use outlast_kernel::Timestamp;
use outlast_kernel::event::{Body, Event, StopReason};
use outlast_kernel::failure::{ClassifiedFailure, Failure};
use outlast_kernel::gate::Gate;
use outlast_kernel::policy::Policy;
use outlast_kernel::verdict::{Authority, Cause, Hint, Scope, Verdict};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Fails a test that would hang.
pub(crate) const HANG_TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);

pub(crate) type Item = Result<Delta, Box<Failure>>;

/// The action of a call after its scripted items.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterItems {
    End,
    Hang,
}

/// Answers each call with the next script; the last one is repeated.
pub(crate) struct ScriptedProvider {
    calls: Mutex<VecDeque<(Vec<Item>, AfterItems)>>,
    pub(crate) made: Mutex<u32>,
    pub(crate) dropped: Arc<Mutex<u32>>,
}

impl ScriptedProvider {
    pub(crate) fn new(calls: impl IntoIterator<Item = Vec<Item>>) -> Self {
        Self::with_ends(calls.into_iter().map(|items| (items, AfterItems::End)))
    }

    pub(crate) fn with_ends(calls: impl IntoIterator<Item = (Vec<Item>, AfterItems)>) -> Self {
        Self {
            calls: Mutex::new(calls.into_iter().collect()),
            made: Mutex::new(0),
            dropped: Arc::default(),
        }
    }

    pub(crate) fn calls_made(&self) -> u32 {
        *self.made.lock().unwrap()
    }
}

struct DropCounter(Arc<Mutex<u32>>);

impl Drop for DropCounter {
    fn drop(&mut self) {
        *self.0.lock().unwrap() += 1;
    }
}

impl Provider for ScriptedProvider {
    fn name(&self) -> &str {
        "scripted"
    }

    fn stream(&self, _: &Request, _: Option<&Credential>) -> BoxStream<'static, Item> {
        *self.made.lock().unwrap() += 1;
        let mut calls = self.calls.lock().unwrap();
        let (items, then) = if calls.len() > 1 {
            calls.pop_front().unwrap()
        } else {
            calls[0].clone()
        };
        let open = DropCounter(Arc::clone(&self.dropped));
        let rest = if then == AfterItems::Hang {
            stream::pending().boxed()
        } else {
            stream::empty().boxed()
        };
        stream::iter(items)
            .chain(rest)
            .map(move |item| (&open, item).1)
            .boxed()
    }
}

pub(crate) fn text(text: &str) -> Item {
    Ok(Delta::Text(text.to_owned()))
}

pub(crate) fn stop() -> Item {
    Ok(Delta::Stopped(StopReason::EndTurn))
}

pub(crate) fn failure_item(failure: Failure) -> Item {
    Err(Box::new(failure))
}

pub(crate) fn hello() -> Vec<Item> {
    vec![text("Hello"), stop()]
}

/// Returns an overload as some endpoints send it: a 429 with the code of an overload.
pub(crate) fn overloaded() -> Failure {
    let message = "The service is temporarily overloaded. Please retry.";
    Failure {
        status: Some(429),
        ..Failure::emitted("scripted", message, START)
    }
    .with_code("overloaded_error")
    .with_retryable(true)
}

pub(crate) fn emitted(retryable: Option<bool>) -> Failure {
    Failure {
        retryable,
        ..Failure::emitted("scripted", "it failed", START)
    }
}

pub(crate) fn thrown() -> Failure {
    Failure::thrown("scripted", "socket hang up", START)
}

/// A strategy that records its sleeps and sleeps on the paused clock.
pub(crate) struct RecordingStrategy {
    policy: Policy,
    pub(crate) sleeps: Mutex<Vec<Duration>>,
}

impl RecordingStrategy {
    pub(crate) fn overnight() -> Self {
        Self {
            policy: Policy::named("overnight").unwrap(),
            sleeps: Mutex::default(),
        }
    }

    pub(crate) fn slept_seconds(&self) -> Vec<u64> {
        self.sleeps
            .lock()
            .unwrap()
            .iter()
            .map(Duration::as_secs)
            .collect()
    }
}

impl RetryStrategy for RecordingStrategy {
    fn delay_for(&self, attempt: u32) -> Option<Duration> {
        self.policy.delay_for(attempt)
    }

    fn sleep<'a>(
        &'a self,
        delay: Duration,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<(), Aborted>> {
        self.sleeps.lock().unwrap().push(delay);
        Box::pin(async move {
            tokio::select! {
                () = cancel.cancelled() => Err(Aborted),
                () = tokio::time::sleep(delay) => Ok(()),
            }
        })
    }
}

pub(crate) fn policy(name: &str) -> PolicyRetry {
    PolicyRetry::new(Policy::named(name).unwrap(), clock())
}

pub(crate) fn clock() -> Arc<dyn Clock> {
    Arc::new(TimerClock::new(START))
}

/// Runs a turn to its end and returns its events.
pub(crate) async fn run(
    provider: &dyn Provider,
    retry: Option<&dyn RetryStrategy>,
) -> (TurnOutcome, Vec<Event>) {
    run_with(provider, retry, |_, _| {}).await
}

/// Runs a turn; `watch` sees each event as it is emitted and may use the handle.
pub(crate) async fn run_with(
    provider: &dyn Provider,
    retry: Option<&dyn RetryStrategy>,
    mut watch: impl FnMut(&Event, &Handle) + Send,
) -> (TurnOutcome, Vec<Event>) {
    let clock = clock();
    let (control, handle) = Control::new(CancellationToken::new());
    let request = question();
    let ids = Ids {
        session: "s".to_owned(),
        turn: "t".to_owned(),
    };
    let turn = Turn {
        retry,
        ids,
        control,
        ..Turn::new(provider, request, &*clock)
    };
    let mut events = Vec::new();
    let mut sink = |event: Event| {
        watch(&event, &handle);
        events.push(event);
    };
    let ended = run_turn(turn, &mut sink).await;
    (ended, events)
}

/// Returns the types of the events, in order.
pub(crate) fn kinds(events: &[Event]) -> Vec<&'static str> {
    events.iter().map(|event| kind(&event.body)).collect()
}

fn kind(body: &Body) -> &'static str {
    match body {
        Body::Start { .. } => "start",
        Body::Input { .. } => "input",
        Body::AttemptStarted { .. } => "attempt_started",
        Body::TextDelta { .. } => "text_delta",
        Body::Usage(_) => "usage",
        Body::StepComplete { .. } => "step_complete",
        Body::RetryScheduled { .. } => "retry_scheduled",
        Body::RetryEnded { .. } => "retry_ended",
        Body::Error { .. } => "error",
        Body::Done { .. } => "done",
        Body::Sealed { .. } => "sealed",
        _ => "other",
    }
}

/// Returns the announced retries: attempt, delay in milliseconds.
pub(crate) fn retries(events: &[Event]) -> Vec<(u32, u64)> {
    let retry = |event: &Event| match event.body {
        Body::RetryScheduled {
            attempt, delay_ms, ..
        } => Some((attempt, delay_ms)),
        _ => None,
    };
    events.iter().filter_map(retry).collect()
}

pub(crate) fn count(events: &[Event], wanted: &str) -> usize {
    kinds(events).iter().filter(|kind| **kind == wanted).count()
}

// --- Gates ---

/// Enough requests and failures to take a gate down of which nothing is known.
const REQUESTS: u32 = 5;
const FAILURES_EACH: u32 = 5;

pub(crate) fn overload() -> Verdict {
    ClassifiedFailure::new(Failure::http("p", 529, "Overloaded", START))
        .verdict
        .clone()
}

/// Returns the verdict of a usage limit, which binds the whole account until that time.
pub(crate) fn usage_limit(reset: Timestamp) -> Verdict {
    Verdict {
        hint: Some(Hint {
            not_before: reset,
            source: "body".to_owned(),
            authority: Authority::Stated,
        }),
        ..Verdict::new(Cause::UsageLimit, Scope::Credential)
    }
}

/// Makes calls that fail until the gate is down. Returns their requests, which are not queued.
pub(crate) fn take_down(
    shared_state: &SharedState,
    key: &str,
    clock: &dyn Clock,
) -> Vec<GateRequest> {
    let request = |_| shared_state.request(key, clock.now());
    let mut requests: Vec<GateRequest> = (0..REQUESTS).map(request).collect();
    for _ in 0..FAILURES_EACH {
        for request in &mut requests {
            request.bypass();
            request.begin();
        }
        for request in &mut requests {
            request.failed(&overload());
        }
    }
    requests
}

/// Returns the gate with that key, if calls fail at it.
pub(crate) fn failing_gate(shared_state: &SharedState, key: &str) -> Option<Gate> {
    let gates = shared_state.failing_gates();
    let found = gates.into_iter().find(|failing| failing.name == key);
    found.map(|failing| failing.gate)
}
