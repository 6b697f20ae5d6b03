//! Many turns at one gate, on a paused clock.

use crate::support::{Item, START, ScriptedProvider, clock, failure_item, hello, overloaded};
use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use outlast_dialect::{Delta, Message, Request};
use outlast_engine::credential::Credential;
use outlast_engine::shared_state::SharedState;
use outlast_engine::strategy::PolicyRetry;
use outlast_engine::tools::{Effect, Output, Toolbox};
use outlast_engine::turn::{Control, ResumeState, Turn, TurnOutcome};
use outlast_engine::{BoxFuture, BoxStream, CancellationToken, Clock, Provider, run_turn};
use outlast_kernel::Timestamp;
use outlast_kernel::attempt::Wait;
use outlast_kernel::budget::{Limits, Prompt};
use outlast_kernel::decision::GiveUp;
use outlast_kernel::event::{Body, Event, StopReason, ToolCall, TurnStatus};
use outlast_kernel::failure::{ClassifiedFailure, Failure};
use outlast_kernel::policy::Policy;
use outlast_kernel::verdict::Cause;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const CALL_DURATION: Duration = Duration::from_millis(300);
/// Enough turns to take a gate down at once of which nothing is known.
const CROWD: usize = 40;

/// A provider that is down until a given time, and records every call.
struct FailingProvider {
    clock: Arc<dyn Clock>,
    until: Timestamp,
    states_retry_after: bool,
    calls: Arc<Mutex<Calls>>,
}

#[derive(Default)]
struct Calls {
    refused: u32,
    in_flight: u32,
    max_in_flight: u32,
    served: Vec<Timestamp>,
}

impl Provider for FailingProvider {
    fn name(&self) -> &str {
        "down"
    }

    fn stream(
        &self,
        _: &Request,
        _: Option<&Credential>,
    ) -> BoxStream<'static, Result<Delta, Box<Failure>>> {
        let (clock, until, states_it) = (self.clock.clone(), self.until, self.states_retry_after);
        let calls = Arc::clone(&self.calls);
        let answer = async move {
            {
                let mut calls = calls.lock().unwrap();
                calls.in_flight += 1;
                calls.max_in_flight = calls.max_in_flight.max(calls.in_flight);
            }
            tokio::time::sleep(CALL_DURATION).await;
            let now = clock.now();
            let mut calls = calls.lock().unwrap();
            calls.in_flight -= 1;
            if now >= until {
                calls.served.push(now);
                let stop = Delta::Stopped(StopReason::EndTurn);
                return vec![Ok(Delta::Text("hi".to_owned())), Ok(stop)];
            }
            calls.refused += 1;
            let wait = until.since(now).as_secs().to_string();
            let headers = states_it.then_some(("retry-after", wait.as_str()));
            let failure = Failure::http("down", 503, "Overloaded", now).with_headers(headers);
            vec![Err(Box::new(failure))]
        };
        stream::once(answer).flat_map(stream::iter).boxed()
    }
}

fn question() -> Request {
    Request {
        model: "m".to_owned(),
        messages: vec![Message::user("hi")],
        ..Request::default()
    }
}

struct Fixture {
    clock: Arc<dyn Clock>,
    shared_state: SharedState,
    provider: FailingProvider,
}

impl Fixture {
    fn new(outage: Duration, states_retry_after: bool) -> Self {
        let clock = clock();
        Self {
            shared_state: SharedState::process_local(clock.clone()),
            provider: FailingProvider {
                clock: clock.clone(),
                until: START + outage,
                states_retry_after,
                calls: Arc::default(),
            },
            clock,
        }
    }

    async fn run_turn(
        &self,
        budget: Prompt,
        abort: CancellationToken,
    ) -> (TurnOutcome, Vec<Event>) {
        let retry = PolicyRetry::new(Policy::named("overnight").unwrap(), self.clock.clone());
        let request = question();
        let turn = Turn {
            retry: Some(&retry),
            budget,
            control: Control::new(abort).0,
            shared_state: Some(&self.shared_state),
            ..Turn::new(&self.provider, request, &*self.clock)
        };
        let mut events = Vec::new();
        let ended = run_turn(turn, &mut |event| events.push(event)).await;
        (ended, events)
    }

    async fn run_turns(&self, count: usize) -> Vec<(TurnOutcome, Vec<Event>)> {
        let turns = (0..count).map(|_| self.run_turn(Prompt::default(), CancellationToken::new()));
        join_all(turns).await
    }

    fn calls(&self) -> std::sync::MutexGuard<'_, Calls> {
        self.provider.calls.lock().unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn turns_in_outage_make_one_probe_at_a_time() {
    for states_it in [false, true] {
        let crowd = Fixture::new(Duration::from_secs(600), states_it);
        let ended = crowd.run_turns(50).await;
        assert!(
            ended
                .iter()
                .all(|(ended, _)| ended.seal == TurnStatus::Completed)
        );
        let calls = crowd.calls();
        // The first call of each turn went out before the outage was known.
        let probes = calls.refused - 50;
        assert!(probes <= 60, "{probes} probes");
        if states_it {
            assert!(probes <= 2, "{probes} probes before a stated time");
        }
        let recovered = START + Duration::from_secs(600);
        let first = calls.served[0].since(recovered);
        assert!(
            first <= Duration::from_secs(20),
            "first success after {first:?}"
        );
        let last = calls.served.last().unwrap().since(recovered);
        assert!(last <= Duration::from_secs(40), "drained after {last:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn late_turn_is_held_before_its_first_attempt() {
    let crowd = Fixture::new(Duration::from_secs(100), false);
    let early = crowd.run_turns(CROWD);
    let late = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let turn = crowd.run_turn(Prompt::default(), CancellationToken::new());
        turn.await
    };
    let (_, (ended, events)) = tokio::join!(early, late);
    assert_eq!(ended.seal, TurnStatus::Completed);
    let position = |is_meant: fn(&Body) -> bool| {
        let found = events.iter().position(|event| is_meant(&event.body));
        found.unwrap()
    };
    let held = position(|body| {
        let cause = Some(Cause::Overloaded);
        matches!(body, Body::Held { cause: of, .. } if *of == cause)
    });
    let attempt = position(|body| matches!(body, Body::AttemptStarted { .. }));
    assert!(held < attempt, "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn lone_turn_keeps_its_own_schedule_exactly() {
    let crowd = Fixture::new(Duration::from_secs(100), false);
    let (_, events) = crowd.run_turns(1).await.remove(0);
    let delays: Vec<u64> = events
        .iter()
        .filter_map(|event| match event.body {
            Body::RetryScheduled { delay_ms, .. } => Some(delay_ms / 1000),
            _ => None,
        })
        .collect();
    assert_eq!(delays, [5, 10, 30, 60]);
    assert_eq!(crowd.calls().refused, 4);
}

/// A user may know better than the provider: a retry that the user requests is not held at the gate.
#[tokio::test(start_paused = true)]
async fn retry_now_is_not_held_by_stated_time() {
    let crowd = Fixture::new(Duration::from_secs(600), true);
    let retry = PolicyRetry::new(Policy::named("overnight").unwrap(), crowd.clock.clone());
    let (control, handle) = Control::new(CancellationToken::new());
    let turn = Turn {
        retry: Some(&retry),
        control,
        shared_state: Some(&crowd.shared_state),
        ..Turn::new(&crowd.provider, question(), &*crowd.clock)
    };
    let mut tries = Vec::new();
    let mut listen = |event: Event| match event.body {
        Body::AttemptStarted { .. } => tries.push(event.time.since(START).as_secs()),
        Body::RetryScheduled { attempt: 1, .. } => handle.retry_now(),
        _ => {}
    };
    let ended = run_turn(turn, &mut listen).await;
    assert_eq!(ended.seal, TurnStatus::Completed);
    // The next one waits for the stated time.
    assert_eq!(tries[..2], [0, 0]);
    assert!(tries[2] >= 599, "{tries:?}");
}

#[tokio::test(start_paused = true)]
async fn probes_for_all_spend_no_retry() {
    let crowd = Fixture::new(Duration::from_secs(600), false);
    let ended = crowd.run_turns(CROWD).await;
    let mut probes = 0;
    for (_, events) in &ended {
        let count = |is_meant: fn(&Body) -> bool| {
            let meant = events.iter().filter(|event| is_meant(&event.body));
            meant.count()
        };
        let retries = count(|body| matches!(body, Body::RetryScheduled { .. }));
        // Their first calls failed before the outage was known.
        assert_eq!(retries, 1);
        probes += count(|body| matches!(body, Body::AttemptStarted { .. })) - 2;
    }
    assert!(probes >= 30, "{probes} probes");
}

#[tokio::test(start_paused = true)]
async fn held_turn_ends_at_its_deadline() {
    let crowd = Fixture::new(Duration::from_secs(3600), false);
    let deadline = Some(START + Duration::from_secs(60));
    let limits = Limits {
        deadline,
        ..Limits::default()
    };
    let budget = || Prompt::new(limits);
    let others = crowd.run_turns(CROWD);
    let hurried = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (ended, _) = crowd.run_turn(budget(), CancellationToken::new()).await;
        (ended.seal, crowd.clock.now())
    };
    let ((seal, at), _) = tokio::join!(hurried, async {
        tokio::select! {
            _ = others => {}
            () = tokio::time::sleep(Duration::from_secs(120)) => {}
        }
    });
    assert_eq!(
        (seal, at),
        (TurnStatus::Error, START + Duration::from_secs(60))
    );
}

#[tokio::test(start_paused = true)]
async fn aborted_turns_leave_the_queue() {
    let crowd = Fixture::new(Duration::from_secs(100), false);
    let aborts: Vec<CancellationToken> = (0..CROWD).map(|_| CancellationToken::new()).collect();
    let leaving = aborts
        .iter()
        .map(|abort| crowd.run_turn(Prompt::default(), abort.clone()));
    let aborting = async {
        tokio::time::sleep(Duration::from_secs(7)).await;
        aborts.iter().for_each(CancellationToken::cancel);
    };
    let staying = crowd.run_turns(2);
    let (left, stayed, ()) = tokio::join!(join_all(leaving), staying, aborting);
    assert!(
        left.iter()
            .all(|(ended, _)| ended.seal == TurnStatus::Aborted)
    );
    assert!(
        stayed
            .iter()
            .all(|(ended, _)| ended.seal == TurnStatus::Completed)
    );
    let last = *crowd.calls().served.last().unwrap();
    assert!(last <= START + Duration::from_secs(125), "{last}");
}

#[tokio::test(start_paused = true)]
async fn own_deadline_says_nothing_about_provider() {
    let crowd = Fixture::new(Duration::ZERO, false);
    let too_short = Prompt::new(Limits {
        deadline: Some(START + CALL_DURATION / 3),
        ..Limits::default()
    });
    let (ended, _) = crowd.run_turn(too_short, CancellationToken::new()).await;
    let (judged, why) = ended.error.unwrap();
    assert_eq!(judged.verdict.cause, Cause::DeadlinePassed);
    assert_eq!(
        (ended.seal, why),
        (TurnStatus::Error, GiveUp::DeadlineExceeded)
    );
    // No other turn is held because of it.
    let others = crowd.run_turns(3).await;
    assert_eq!(crowd.clock.now(), START + CALL_DURATION / 3 + CALL_DURATION);
    let is_held = |event: &Event| matches!(event.body, Body::Held { .. });
    for (ended, events) in others {
        assert_eq!(ended.seal, TurnStatus::Completed);
        assert!(!events.iter().any(is_held));
    }
}

#[tokio::test(start_paused = true)]
async fn resumed_wait_queues_with_the_others() {
    let crowd = Fixture::new(Duration::from_secs(100), false);
    let resume_state = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let now = crowd.clock.now();
        let failure = ClassifiedFailure::new(Failure::http("down", 503, "Overloaded", now));
        let retry = PolicyRetry::new(Policy::named("overnight").unwrap(), crowd.clock.clone());
        let request = question();
        let turn = Turn {
            retry: Some(&retry),
            shared_state: Some(&crowd.shared_state),
            resume_state: ResumeState {
                wait: Some(Wait {
                    since: now,
                    until: now + Duration::from_secs(1800),
                    failure,
                }),
                ..ResumeState::default()
            },
            ..Turn::new(&crowd.provider, request, &*crowd.clock)
        };
        let ended = run_turn(turn, &mut |_| {}).await;
        (ended.seal, crowd.clock.now())
    };
    let (_, (seal, at)) = tokio::join!(crowd.run_turns(CROWD), resume_state);
    assert_eq!(seal, TurnStatus::Completed);
    let after = at.since(START + Duration::from_secs(100));
    assert!(
        after < Duration::from_secs(40),
        "{after:?} after the end of the outage"
    );
}

#[tokio::test(start_paused = true)]
async fn retry_that_the_gate_holds_can_be_cancelled() {
    let crowd = Fixture::new(Duration::from_secs(600), false);
    let retry = PolicyRetry::new(Policy::named("overnight").unwrap(), crowd.clock.clone());
    let request = question();
    let (control, handle) = Control::new(CancellationToken::new());
    let turn = Turn {
        retry: Some(&retry),
        control,
        shared_state: Some(&crowd.shared_state),
        ..Turn::new(&crowd.provider, request, &*crowd.clock)
    };
    // Its own wait is over, and the probes of the others have not succeeded: it is held.
    let cancelling = async {
        tokio::time::sleep(Duration::from_secs(120)).await;
        handle.abort_retry();
    };
    let held = async {
        let ended = run_turn(turn, &mut |_| {}).await;
        (ended.seal, crowd.clock.now())
    };
    let others = crowd.run_turns(CROWD);
    let (_, (seal, at), ()) = tokio::join!(others, held, cancelling);
    assert_eq!(
        (seal, at),
        (TurnStatus::Error, START + Duration::from_secs(120))
    );
}

#[tokio::test(start_paused = true)]
async fn step_that_fails_shortly_after_outage_keeps_its_own_delay() {
    let clock = clock();
    let knowledge = SharedState::process_local(clock.clone());
    let retry = PolicyRetry::new(Policy::named("session").unwrap(), clock.clone());
    let attempts = async |calls: Vec<Vec<Item>>| {
        let provider = ScriptedProvider::new(calls);
        let turn = Turn {
            retry: Some(&retry),
            shared_state: Some(&knowledge),
            tools: Some(&SlowTool),
            ..Turn::new(&provider, question(), &*clock)
        };
        let mut times = Vec::new();
        let ended = run_turn(turn, &mut |event| {
            if matches!(event.body, Body::AttemptStarted { .. }) {
                times.push(event.time);
            }
        })
        .await;
        assert_eq!(ended.seal, TurnStatus::Completed);
        times
    };
    let failing = || vec![failure_item(overloaded())];
    let wanting = vec![tool_call("c1"), stop_for_tools()];
    // Both meet the outage, and the ramp begins after it; then the second step of one of them fails.
    let one = attempts(vec![failing(), wanting, failing(), hello()]);
    let other = attempts(vec![failing(), hello()]);
    let (times, _) = tokio::join!(one, other);
    assert_eq!(times.len(), 4);
    assert_eq!(times[3].since(times[2]), Duration::from_secs(2));
}

/// A tool that takes three seconds.
struct SlowTool;

impl Toolbox for SlowTool {
    fn admit<'a>(&'a self, _: &'a ToolCall) -> BoxFuture<'a, Result<Effect, String>> {
        Box::pin(async { Ok(Effect::Pure) })
    }

    fn run<'a>(&'a self, _: &'a ToolCall, _: CancellationToken) -> BoxFuture<'a, Output> {
        Box::pin(async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            Output::ok("done")
        })
    }
}

fn tool_call(id: &str) -> Item {
    Ok(Delta::ToolCall(ToolCall {
        id: id.to_owned(),
        name: "brief".to_owned(),
        arguments: "{}".to_owned(),
    }))
}

fn stop_for_tools() -> Item {
    Ok(Delta::Stopped(StopReason::ToolUse))
}
