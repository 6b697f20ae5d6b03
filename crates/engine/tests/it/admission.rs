//! Many requests of one process at one gate, on a paused clock.

use crate::support::{START, clock, failing_gate, overload, take_down, usage_limit};
use outlast_engine::Clock;
use outlast_engine::admission::GateRequest;
use outlast_engine::shared_state::SharedState;
use outlast_kernel::Timestamp;
use outlast_kernel::gate::Mode;
use outlast_kernel::verdict::{Authority, Cause, Hint, Scope, Verdict};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const KEY: &str = "p@/a/m";
const LEASE: Duration = Duration::from_secs(20);
const MAX_PROBE_GAP: Duration = Duration::from_secs(18);

struct Fixture {
    clock: Arc<dyn Clock>,
    shared_state: SharedState,
    /// A request that waits for a stated time of its own, so that no other one is alone.
    sleeper: Option<GateRequest>,
}

impl Fixture {
    fn new() -> Self {
        let clock = clock();
        let shared_state = SharedState::process_local(Arc::clone(&clock));
        Self {
            clock,
            shared_state,
            sleeper: None,
        }
    }

    /// A gate that is down, with nobody in its queue who is ready.
    fn down() -> Self {
        let mut rig = Self::new();
        let mut failed = take_down(&rig.shared_state, KEY, &*rig.clock);
        assert_eq!(rig.mode(), Mode::Down);
        let mut sleeper = failed.pop().unwrap();
        sleeper.wait_until(START + Duration::from_secs(86_400), true);
        rig.sleeper = Some(sleeper);
        rig
    }

    fn request(&self) -> GateRequest {
        self.shared_state.request(KEY, self.clock.now())
    }

    fn mode(&self) -> Mode {
        failing_gate(&self.shared_state, KEY).map_or(Mode::Flowing, |gate| gate.mode())
    }

    fn next_probe(&self) -> Timestamp {
        let gate = failing_gate(&self.shared_state, KEY).unwrap();
        gate.outage().unwrap().1
    }

    /// Makes a call at an open gate that fails.
    fn fail_one_call(&self, verdict: &Verdict) -> GateRequest {
        let mut request = self.request();
        assert!(request.enter());
        request.begin();
        request.failed(verdict);
        request
    }

    /// Waits for the gate, and begins a call.
    async fn call(&self) -> GateRequest {
        let mut request = self.request();
        start(&mut request).await;
        request
    }
}

/// Waits for the gate, and begins a call.
async fn start(request: &mut GateRequest) {
    request.enter();
    request.admitted().await;
    request.begin();
}

fn refused(not_before: Timestamp) -> Verdict {
    Verdict {
        hint: Some(Hint {
            not_before,
            source: "retry-after".to_owned(),
            authority: Authority::Stated,
        }),
        ..Verdict::new(Cause::RateLimited, Scope::Credential)
    }
}

// --- Open ---

#[tokio::test(start_paused = true)]
async fn open_gate_admits_all_requests_at_once() {
    let rig = Fixture::new();
    let mut requests: Vec<GateRequest> = (0..100).map(|_| rig.request()).collect();
    for request in &mut requests {
        assert!(request.enter());
        request.begin();
    }
    requests.iter_mut().for_each(GateRequest::succeeded);
    assert_eq!(rig.mode(), Mode::Flowing);
}

#[tokio::test(start_paused = true)]
async fn failures_of_two_requests_hold_nobody_else() {
    let rig = Fixture::new();
    let mut requests = [rig.request(), rig.request()];
    for _ in 0..100 {
        for request in &mut requests {
            request.bypass();
            request.begin();
            request.failed(&overload());
        }
    }
    assert!(rig.request().enter());
}

#[tokio::test(start_paused = true)]
async fn retry_after_of_one_request_binds_nobody_else() {
    let rig = Fixture::new();
    let in_a_minute = START + Duration::from_secs(60);
    let mut refused = rig.fail_one_call(&refused(in_a_minute));
    refused.wait_until(in_a_minute, true);
    assert!(rig.request().enter());
    refused.admitted().await;
    assert_eq!(rig.clock.now(), in_a_minute);
}

#[tokio::test(start_paused = true)]
async fn usage_limit_holds_all_requests_of_account_until_reset() {
    let rig = Fixture::new();
    let reset = START + Duration::from_secs(5 * 3600);
    let mut refused = rig.fail_one_call(&usage_limit(reset));
    refused.wait_until(reset, true);
    let mut others: Vec<GateRequest> = (0..3).map(|_| rig.request()).collect();
    for other in &mut others {
        assert!(!other.enter());
        assert_eq!(other.stated_end(), Some(reset));
        assert_eq!(other.cause(), Some(Cause::UsageLimit));
        assert_eq!(other.expected_start(), Some(reset));
    }
    // The other account is not bound.
    assert!(rig.shared_state.request("p@/b/m", START).enter());
    start(&mut refused).await;
    assert_eq!(rig.clock.now(), reset);
    refused.succeeded();
    for other in &mut others {
        other.admitted().await;
    }
    assert_eq!(rig.clock.now(), reset);
}

// --- Down ---

#[tokio::test(start_paused = true)]
async fn thousand_waiters_probe_singly_then_start_in_order() {
    const OUTAGE: Duration = Duration::from_secs(600);
    let rig = Fixture::down();
    let recovery = rig.clock.now() + OUTAGE;
    let (probes, in_flight) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let served: Arc<Mutex<Vec<(usize, Timestamp)>>> = Arc::default();
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..1000 {
        let (mut request, clock) = (rig.request(), Arc::clone(&rig.clock));
        let (probes, in_flight) = (Arc::clone(&probes), Arc::clone(&in_flight));
        let served = Arc::clone(&served);
        calls.spawn(async move {
            loop {
                start(&mut request).await;
                if clock.now() >= recovery {
                    served.lock().unwrap().push((number, clock.now()));
                    return request.succeeded();
                }
                assert_eq!(in_flight.fetch_add(1, Ordering::Relaxed), 0);
                probes.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(300)).await;
                in_flight.fetch_sub(1, Ordering::Relaxed);
                assert!(request.is_probe_for_all());
                request.failed(&overload());
            }
        });
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    calls.join_all().await;
    let served = served.lock().unwrap();
    let probes = probes.load(Ordering::Relaxed);
    assert!((30..60).contains(&probes), "{probes} probes");
    let first = served[0].1;
    assert!(first.since(recovery) <= MAX_PROBE_GAP);
    let is_early = |(_, at): &&(usize, Timestamp)| at.since(first) < Duration::from_secs(1);
    let early = served.iter().filter(is_early).count();
    assert!(early <= 10, "{early} calls in the first second");
    // The first may be the least probed of all.
    let numbers: Vec<usize> = served.iter().skip(1).map(|(number, _)| *number).collect();
    assert!(numbers.is_sorted(), "not in order of arrival");
}

#[tokio::test(start_paused = true)]
async fn failed_probe_delays_the_next_one() {
    let rig = Fixture::down();
    let mut gaps = Vec::new();
    let (mut one, mut other) = (rig.request(), rig.request());
    other.enter();
    for _ in 0..3 {
        start(&mut one).await;
        let now = rig.clock.now();
        assert!(one.is_probe_for_all());
        one.failed(&overload());
        gaps.push(rig.next_probe().since(now).as_millis());
    }
    assert_eq!(gaps, [625, 781, 976]);
    assert_eq!(other.expected_start(), Some(rig.next_probe()));
}

#[tokio::test(start_paused = true)]
async fn probe_lease_is_not_renewed_and_its_late_success_counts() {
    let rig = Fixture::down();
    let mut hanging = rig.call().await;
    let began = rig.clock.now();
    let mut other = rig.call().await;
    assert_eq!(rig.clock.now(), began + LEASE);
    assert!(other.is_probe_for_all());
    other.failed(&overload());
    assert_eq!(rig.mode(), Mode::Down);
    hanging.succeeded();
    assert_eq!(rig.mode(), Mode::Flowing);
}

#[tokio::test(start_paused = true)]
async fn dropped_waiter_is_skipped_and_dropped_probe_is_free_at_once() {
    let rig = Fixture::down();
    let mut requests = [rig.request(), rig.request(), rig.request()];
    for request in &mut requests {
        request.enter();
    }
    let [gone, second, mut third] = requests;
    drop(gone);
    let mut second = second;
    start(&mut second).await;
    let began = rig.clock.now();
    assert!(second.is_probe_for_all());
    drop(second);
    start(&mut third).await;
    assert_eq!(rig.clock.now(), began);
    third.succeeded();
    assert!(rig.request().enter());
}

#[tokio::test(start_paused = true)]
async fn dropped_pass_that_nobody_took_is_free_at_once() {
    let rig = Fixture::down();
    let (mut one, mut other) = (rig.request(), rig.request());
    assert!(!one.enter());
    assert!(!other.enter());
    // The pass of the probe is there, but its request has not looked yet.
    tokio::time::sleep_until(tokio::time::Instant::now() + Duration::from_secs(1)).await;
    let now = rig.clock.now();
    drop(one);
    start(&mut other).await;
    assert_eq!(rig.clock.now(), now);
}

#[tokio::test(start_paused = true)]
async fn lone_request_of_down_gate_keeps_its_own_time() {
    let rig = Fixture::new();
    let mut requests = take_down(&rig.shared_state, KEY, &*rig.clock);
    let mut last = requests.pop().unwrap();
    drop(requests);
    for seconds in [60, 300] {
        let own = rig.clock.now() + Duration::from_secs(seconds);
        last.wait_until(own, false);
        last.admitted().await;
        assert_eq!(rig.clock.now(), own);
        last.begin();
        // Its failure is one of its own schedule.
        assert!(!last.is_probe_for_all());
        last.failed(&overload());
    }
}

#[tokio::test(start_paused = true)]
async fn own_schedules_end_when_gate_goes_down() {
    let rig = Fixture::new();
    let mut sleeper = rig.fail_one_call(&overload());
    let far = START + Duration::from_secs(1800);
    sleeper.wait_until(far, false);
    let mut patient = rig.fail_one_call(&overload());
    patient.wait_until(far, true);
    let _others = take_down(&rig.shared_state, KEY, &*rig.clock);
    sleeper.admitted().await;
    assert!(rig.clock.now() < START + Duration::from_secs(1));
    sleeper.begin();
    sleeper.failed(&overload());
    drop(sleeper);
    // A stated time of its own still binds.
    patient.admitted().await;
    assert_eq!(rig.clock.now(), far);
}

#[tokio::test(start_paused = true)]
async fn request_that_waits_anew_is_queued_once() {
    let rig = Fixture::down();
    let mut requests: Vec<GateRequest> = (0..20).map(|_| rig.request()).collect();
    for request in &mut requests {
        assert!(!request.enter());
    }
    let mut last = requests.pop().unwrap();
    // The outage is none that is over at once, so that the others follow the successful probe at a pace.
    for _ in 0..3 {
        start(&mut requests[0]).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        requests[0].failed(&overload());
    }
    start(&mut requests[0]).await;
    requests[0].succeeded();
    let gate = failing_gate(&rig.shared_state, KEY).unwrap();
    assert_eq!(gate.mode(), Mode::Paced);
    let own = rig.clock.now() + Duration::from_secs(60);
    // The provider stated it: the success of others does not shorten it.
    last.wait_until(own, true);
    last.wait_until(own, true);
    for request in &mut requests[1..] {
        start(request).await;
        request.succeeded();
    }
    assert!(rig.clock.now() < own);
    last.admitted().await;
    assert_eq!(rig.clock.now(), own);
}

#[tokio::test(start_paused = true)]
async fn request_that_waits_anew_keeps_its_pass() {
    let rig = Fixture::down();
    let mut probing = rig.request();
    assert!(!probing.enter());
    // It has the pass of the probe, and has not looked yet.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let now = rig.clock.now();
    probing.wait_until(now + Duration::from_secs(60), false);
    assert!(probing.is_admitted());
    probing.begin();
    assert!(probing.is_probe_for_all());
}

#[tokio::test(start_paused = true)]
async fn bypass_starts_whatever_the_gate_says() {
    let rig = Fixture::down();
    let mut queued = rig.request();
    assert!(!queued.enter());
    for mut request in [rig.request(), queued] {
        request.bypass();
        assert!(request.is_admitted());
        request.begin();
        assert!(!request.is_probe_for_all());
    }
    assert_eq!(rig.mode(), Mode::Down);
}

// --- Quick retries ---

#[tokio::test(start_paused = true)]
async fn quick_retry_needs_others_that_succeed() {
    let rig = Fixture::new();
    let mut lone = rig.fail_one_call(&overload());
    assert_eq!(lone.quick_delay(0.0), None);
    let mut other = rig.call().await;
    other.succeeded();
    for (jitter, millis) in [(0.0, 500), (0.0, 1000), (1.0, 1500), (0.0, 4000)] {
        let delay = lone.quick_delay(jitter).unwrap();
        assert_eq!(delay, Duration::from_millis(millis));
    }
    // A success of long ago, before its trouble began, says nothing.
    drop(lone);
    tokio::time::advance(Duration::from_secs(30)).await;
    let mut later = rig.fail_one_call(&overload());
    assert_eq!(later.quick_delay(0.0), None);
}

#[tokio::test(start_paused = true)]
async fn nobody_retries_quickly_while_gate_is_down() {
    let rig = Fixture::new();
    let mut failed = rig.fail_one_call(&overload());
    let mut other = rig.call().await;
    other.succeeded();
    assert!(failed.quick_delay(0.0).is_some());
    let reset = START + Duration::from_secs(60);
    drop(rig.fail_one_call(&usage_limit(reset)));
    assert_eq!(failed.quick_delay(0.0), None);
}
