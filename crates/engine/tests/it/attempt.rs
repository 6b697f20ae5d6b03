//! Calls of the attempt driver: the order of effects, every kind of wait, and everything that ends one, on a paused clock.

use crate::support::{START, clock, failing_gate, overload, take_down, usage_limit};
use outlast_engine::accounts::{Account, Accounts, KeySource};
use outlast_engine::admission::GateRequest;
use outlast_engine::attempt::{
    self, Announcement, Call, Driver, Ended, GateTarget, Interrupt, Wait, Work,
};
use outlast_engine::credential::Credential;
use outlast_engine::shared_state::SharedState;
use outlast_engine::strategy::PolicyRetry;
use outlast_engine::{BoxFuture, Clock, RetryStrategy};
use outlast_kernel::Timestamp;
use outlast_kernel::attempt::{Effect, Effects, Event, Outcome, State, step};
use outlast_kernel::budget::{Limits, Prompt};
use outlast_kernel::decision::GiveUp;
use outlast_kernel::failure::{ClassifiedFailure, Failure};
use outlast_kernel::gate::{Mode, gate_key};
use outlast_kernel::policy::{Overrides, Policy};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;

const SECOND: Duration = Duration::from_secs(1);

fn seconds(seconds: u64) -> Timestamp {
    START + Duration::from_secs(seconds)
}

fn target(model: &'static str) -> GateTarget<'static> {
    GateTarget {
        provider: "p",
        address: "host",
        model,
        account: "own".to_owned(),
    }
}

/// The key of the gate of `target("m")`.
fn key() -> String {
    gate_key("p", "host", "own", "m")
}

type MakeFailure = fn(Timestamp) -> Failure;

fn overloaded(now: Timestamp) -> Failure {
    Failure::http("p", 529, "Overloaded", now)
}

fn refused_for_100_seconds(now: Timestamp) -> Failure {
    Failure::http("p", 429, "Slow down", now).with_headers([("retry-after", "100")])
}

fn expired_key(now: Timestamp) -> Failure {
    Failure::http("p", 401, "expired", now)
}

/// The end of an attempt, after some time.
#[derive(Clone, Copy)]
struct Attempt(Duration, Option<MakeFailure>);

const SUCCESS: Attempt = Attempt(Duration::ZERO, None);
const OVERLOADED: Attempt = Attempt(Duration::ZERO, Some(overloaded));

// --- A call ---

struct TestCall {
    driver: Driver,
    clock: Arc<dyn Clock>,
    strategy: PolicyRetry,
    target: GateTarget<'static>,
    accounts: Option<Accounts>,
    /// The target and the accounts after a change of the settings.
    changed: Option<(GateTarget<'static>, Option<Accounts>)>,
    attempts: VecDeque<Attempt>,
    interrupts: mpsc::UnboundedReceiver<Interrupt>,
    interrupt: mpsc::UnboundedSender<Interrupt>,
    log: Vec<String>,
    began: Vec<Timestamp>,
}

impl TestCall {
    fn log(&mut self, line: &str) {
        let time = self.clock.now().since(START);
        self.log.push(format!("{time:?} {line}"));
    }

    async fn run(&mut self) -> Result<Outcome, Ended> {
        let effects = step(self.driver.state_mut(), Event::Started);
        attempt::run(self, effects).await
    }

    /// Runs the call; returns its outcome and the time of its end.
    async fn run_until(&mut self) -> (Result<Outcome, Ended>, Duration) {
        let outcome = self.run().await;
        (outcome, self.clock.now().since(START))
    }

    /// Runs the call, and interrupts it at that time.
    async fn interrupted(
        &mut self,
        at: Duration,
        interrupt: Interrupt,
    ) -> (Result<Outcome, Ended>, Duration) {
        let sender = self.interrupt.clone();
        let interrupting = async {
            tokio::time::sleep(at).await;
            sender.send(interrupt).unwrap();
        };
        tokio::join!(self.run_until(), interrupting).0
    }

    /// Returns the lines of the log that begin so, after their time.
    fn lines(&self, start: &str) -> Vec<&str> {
        let lines = self.log.iter().map(String::as_str);
        let is_meant = |line: &&str| {
            let line = line.split_once(' ').unwrap().1;
            line.starts_with(start)
        };
        lines.filter(is_meant).collect()
    }

    /// Returns the milliseconds from each attempt to the next.
    fn gaps(&self) -> Vec<u128> {
        let gaps = self.began.windows(2).map(|pair| pair[1].since(pair[0]));
        gaps.map(|gap| gap.as_millis()).collect()
    }
}

impl Call<'static> for TestCall {
    fn driver(&mut self) -> &mut Driver {
        &mut self.driver
    }

    fn target(&self) -> Option<GateTarget<'_>> {
        Some(self.target.clone())
    }

    fn accounts(&self) -> Option<Accounts> {
        self.accounts.clone()
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        self.clock.sleep_until(at)
    }

    fn prepare(&mut self) -> BoxFuture<'_, Result<Option<Effects>, Ended>> {
        self.log("prepare");
        Box::pin(async { Ok(None) })
    }

    fn account_chosen(&mut self, is_new: bool) {
        let name = self.driver.account().unwrap().name.clone();
        if is_new {
            self.log(&format!("account {name}"));
        }
    }

    fn attempt(&mut self) -> BoxFuture<'_, Result<Effects, Ended>> {
        self.log("attempt");
        self.began.push(self.clock.now());
        Box::pin(async {
            let Attempt(latency, failure) = self.attempts.pop_front().unwrap();
            tokio::time::sleep(latency).await;
            match failure {
                Some(failure) => self.on_failure(failure(self.clock.now())).await,
                None => {
                    self.driver.accepted();
                    Ok(step(self.driver.state_mut(), Event::Succeeded))
                }
            }
        })
    }

    fn on_failure(&mut self, failure: Failure) -> BoxFuture<'_, Result<Effects, Ended>> {
        Box::pin(async {
            let now = self.clock.now();
            let failure = self.driver.failed(failure, now);
            let (accounts, model) = (self.accounts.as_ref(), &self.target.model);
            let effect = self.driver.consider_accounts(failure, accounts, model);
            let effect = effect.await;
            let remedies = effect.remedies;
            let own = |index| self.strategy.delay_for(index);
            Ok(self.driver.decide(effect.failure, remedies, own, now))
        })
    }

    fn perform(&mut self, effect: Effect) -> BoxFuture<'_, Result<Effects, Ended>> {
        if let Effect::ReportError(failure, _) = effect {
            self.log(&format!("report {}", failure.verdict.cause));
        }
        Box::pin(async { Ok(Effects::new()) })
    }

    fn account_left(&mut self, name: Option<String>) {
        self.log(&format!("left {name:?}"));
    }

    fn record_wait<'s>(&'s mut self, wait: Wait<'s>) -> BoxFuture<'s, Result<(), Ended>> {
        let line = match wait {
            Wait::Retry(retry) => format!("record retry {}", retry.attempt),
            Wait::Hold(reason) => format!("record {reason:?}"),
        };
        Box::pin(async move {
            // Whatever the record takes, nothing else happens before it.
            tokio::task::yield_now().await;
            self.log(&line);
            Ok(())
        })
    }

    fn record_wait_end(&mut self) {
        self.log("wait ended");
    }

    fn announce(&mut self, announcement: Announcement<'_>) {
        let line = match announcement {
            Announcement::Retry(retry) => {
                let cause = retry.failure.verdict.cause;
                let at = retry.at.since(START);
                format!("announce retry {} at {at:?}: {cause}", retry.attempt)
            }
            Announcement::Hold {
                until,
                reason,
                cause,
            } => {
                let cause = cause.map_or("", |cause| cause.as_str());
                format!(
                    "announce {reason:?} until {:?}: {cause}",
                    until.since(START)
                )
            }
            Announcement::Ended(end) => format!("announce end {}", end.success),
        };
        self.log(&line);
    }

    fn watch<'s>(&'s mut self, work: Work<'s>) -> BoxFuture<'s, Option<Interrupt>> {
        Box::pin(async move {
            let interrupt = tokio::select! {
                biased;
                interrupt = self.interrupts.recv() => interrupt,
                () = work => None,
            };
            if interrupt == Some(Interrupt::Reconsider)
                && let Some((target, accounts)) = self.changed.take()
            {
                (self.target, self.accounts) = (target, accounts);
            }
            interrupt
        })
    }
}

// --- Its surroundings ---

struct Fixture {
    clock: Arc<dyn Clock>,
    shared_state: SharedState,
}

impl Fixture {
    fn new() -> Self {
        let clock = clock();
        let shared_state = SharedState::process_local(Arc::clone(&clock));
        Self {
            clock,
            shared_state,
        }
    }

    fn call(&self, policy: &str, attempts: impl IntoIterator<Item = Attempt>) -> TestCall {
        self.call_with(Policy::named(policy).unwrap(), Prompt::default(), attempts)
    }

    fn call_with(
        &self,
        policy: Policy,
        prompt: Prompt,
        attempts: impl IntoIterator<Item = Attempt>,
    ) -> TestCall {
        let strategy = PolicyRetry::new(policy, Arc::clone(&self.clock));
        let state = State::new(strategy.rules(), prompt);
        let (interrupt, interrupts) = mpsc::unbounded_channel();
        TestCall {
            driver: Driver::new(state, Some(self.shared_state.clone())),
            clock: Arc::clone(&self.clock),
            strategy,
            target: target("m"),
            accounts: None,
            changed: None,
            attempts: attempts.into_iter().collect(),
            interrupts,
            interrupt,
            log: Vec::new(),
            began: Vec::new(),
        }
    }

    /// Takes the gate down. Nobody is ready there, and the returned request, which sleeps, keeps others from being alone.
    fn take_down(&self) -> GateRequest {
        let mut failed = take_down(&self.shared_state, &key(), &*self.clock);
        let mut sleeper = failed.pop().unwrap();
        sleeper.wait_until(seconds(86_400), true);
        sleeper
    }

    fn request(&self) -> GateRequest {
        self.shared_state.request(&key(), self.clock.now())
    }

    /// A call of somebody else meets a usage limit of the account.
    fn limit_account(&self, reset: Timestamp) {
        let mut request = self.request();
        request.bypass();
        request.begin();
        request.failed(&usage_limit(reset));
    }

    fn mode(&self) -> Mode {
        failing_gate(&self.shared_state, &key()).map_or(Mode::Flowing, |gate| gate.mode())
    }

    fn accounts(&self, names: &[&str], max_in_flight: Option<u32>) -> Accounts {
        let account = |name: &&str| Account {
            name: (*name).to_owned(),
            source: Arc::new(NewKeys::default()),
            max_in_flight,
        };
        let list = names.iter().map(account).collect();
        Accounts::new(list, self.shared_state.clone(), Arc::clone(&self.clock))
    }
}

/// Gives another key each time.
#[derive(Default)]
struct NewKeys(AtomicU32);

impl KeySource for NewKeys {
    fn fetch(&self) -> BoxFuture<'_, Result<Credential, String>> {
        let number = self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move { Ok(Credential::new(number.to_string())) })
    }
}

fn completed_after(time: Duration) -> (Result<Outcome, Ended>, Duration) {
    (Ok(Outcome::Completed), time)
}

// --- Order ---

#[tokio::test(start_paused = true)]
async fn wait_is_recorded_then_announced_then_slept() {
    let mut call = Fixture::new().call("overnight", [OVERLOADED, SUCCESS]);
    assert_eq!(call.run().await, Ok(Outcome::Completed));
    assert_eq!(
        call.log,
        [
            "0ns prepare",
            "0ns attempt",
            "0ns record retry 1",
            "0ns announce retry 1 at 5s: overloaded",
            "5s wait ended",
            "5s prepare",
            "5s attempt",
            "5s announce end true",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn hold_is_recorded_then_announced_then_slept() {
    let rig = Fixture::new();
    rig.limit_account(seconds(60));
    let mut call = rig.call("overnight", [SUCCESS]);
    assert_eq!(call.run().await, Ok(Outcome::Completed));
    assert_eq!(
        call.log,
        [
            "0ns prepare",
            "0ns record Gate",
            "0ns announce Gate until 60s: usage_limit",
            "60s attempt",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn stated_time_is_announced_as_time_of_retry() {
    let refused = Attempt(SECOND, Some(refused_for_100_seconds));
    let mut call = Fixture::new().call("overnight", [refused, SUCCESS]);
    assert_eq!(call.run_until().await, completed_after(SECOND * 101));
    assert_eq!(
        call.lines("announce retry"),
        ["1s announce retry 1 at 101s: rate_limited"]
    );
}

#[tokio::test(start_paused = true)]
async fn wait_for_accounts_is_announced_until_the_first_is_free() {
    let rig = Fixture::new();
    let limit = |now| {
        Failure::http(
            "p",
            429,
            "You have hit your usage limit. Try again in 2 hours.",
            now,
        )
    };
    let shorter = |now| {
        Failure::http(
            "p",
            429,
            "You have hit your usage limit. Try again in 1 hour.",
            now,
        )
    };
    let wait = Overrides {
        wait_for_reset: Some(true),
        ..Overrides::default()
    };
    let policy = Policy::named("session").unwrap().with_overrides(wait);
    let attempts = [
        Attempt(Duration::ZERO, Some(limit)),
        Attempt(Duration::ZERO, Some(shorter)),
        SUCCESS,
    ];
    let mut call = rig.call_with(policy.unwrap(), Prompt::default(), attempts);
    call.accounts = Some(rig.accounts(&["a", "b"], None));
    assert_eq!(call.run_until().await, completed_after(SECOND * 3600));
    assert_eq!(
        call.log[1..],
        [
            "0ns account a",
            "0ns attempt",
            "0ns announce retry 1 at 0ns: usage_limit",
            "0ns left Some(\"a\")",
            "0ns prepare",
            "0ns account b",
            "0ns attempt",
            "0ns record retry 2",
            "0ns announce retry 2 at 3600s: usage_limit",
            "3600s wait ended",
            "3600s prepare",
            "3600s attempt",
            "3600s announce end true",
        ]
    );
}

// --- The schedule ---

#[tokio::test(start_paused = true)]
async fn lone_callers_keep_the_gateway_schedule() {
    let rig = Fixture::new();
    let failing = || (0..8).map(|_| OVERLOADED).chain([SUCCESS]);
    // Two callers never take a gate down.
    let mut calls = [
        rig.call("gateway", failing()),
        rig.call("gateway", failing()),
    ];
    let [one, other] = &mut calls;
    let outcomes = tokio::join!(one.run(), other.run());
    assert_eq!(outcomes, (Ok(Outcome::Completed), Ok(Outcome::Completed)));
    for call in calls {
        let gaps = call.gaps();
        for (gap, longest) in gaps.iter().zip([500, 1000, 2000]) {
            assert!((longest * 3 / 4..=longest).contains(gap), "{gaps:?}");
        }
        assert_eq!(gaps[3..7], [5_000, 10_000, 30_000, 60_000]);
        // The one who succeeds first wakes the other.
        assert!((299_000..=300_000).contains(&gaps[7]), "{gaps:?}");
        assert_eq!(call.lines("announce Gate"), [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn quick_retries_do_not_advance_the_schedule() {
    let rig = Fixture::new();
    let mut call = rig.call("gateway", [OVERLOADED; 8].into_iter().chain([SUCCESS]));
    let mut other = rig.request();
    other.enter();
    other.begin();
    let succeeding = async {
        // Its success comes between the first and the second failure of the call.
        tokio::time::sleep(Duration::from_millis(100)).await;
        other.succeeded();
    };
    let (outcome, ()) = tokio::join!(call.run(), succeeding);
    assert_eq!(outcome, Ok(Outcome::Completed));
    let longest = [500, 500, 1000, 2000, 4000, 8000, 8000, 8000];
    let gaps = call.gaps();
    for (gap, longest) in gaps.iter().zip(longest) {
        assert!((longest * 3 / 4..=longest).contains(gap), "{gaps:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn policy_without_quick_retries_ignores_success_of_others() {
    let rig = Fixture::new();
    let mut other = rig.request();
    other.enter();
    other.begin();
    other.succeeded();
    let mut call = rig.call("overnight", [OVERLOADED, OVERLOADED, SUCCESS]);
    assert_eq!(call.run_until().await, completed_after(SECOND * 15));
}

#[tokio::test(start_paused = true)]
async fn long_sleep_ends_early_when_another_call_succeeds() {
    let rig = Fixture::new();
    let mut call = rig.call("overnight", [OVERLOADED, OVERLOADED, OVERLOADED, SUCCESS]);
    let other = async {
        // Within the third wait, which lasts from 15 to 45 s.
        tokio::time::sleep(SECOND * 20).await;
        let mut other = rig.request();
        other.enter();
        other.begin();
        other.succeeded();
    };
    let (ended, ()) = tokio::join!(call.run_until(), other);
    assert_eq!(ended, completed_after(SECOND * 23));
    // Listeners learn of the earlier time.
    assert_eq!(call.lines("announce Gate").len(), 1, "{:?}", call.log);
}

#[tokio::test(start_paused = true)]
async fn call_without_shared_state_has_no_gate() {
    let rig = Fixture::new();
    let _sleeper = rig.take_down();
    let mut call = rig.call("overnight", [OVERLOADED, SUCCESS]);
    let state = call.driver.state().clone();
    call.driver = Driver::new(state, None);
    assert_eq!(call.run_until().await, completed_after(SECOND * 5));
}

// --- Probes ---

#[tokio::test(start_paused = true)]
async fn queued_call_spends_no_attempt_and_reports_each_probe() {
    let rig = Fixture::new();
    let _sleeper = rig.take_down();
    // More probes fail than the policy has attempts.
    let mut call = rig.call("standard", [OVERLOADED; 5].into_iter().chain([SUCCESS]));
    assert_eq!(call.run().await, Ok(Outcome::Completed));
    // Each failed probe makes the next gap longer.
    assert_eq!(call.gaps(), [625, 781, 976, 1220, 1525]);
    assert_eq!(call.lines("announce retry"), [""; 0]);
    assert_eq!(call.lines("record retry"), [""; 0]);
    assert_eq!(call.lines("announce end"), [""; 0]);
    assert_eq!(rig.mode(), Mode::Flowing);
}

#[tokio::test(start_paused = true)]
async fn long_probe_keeps_no_lease_and_still_ends_the_outage() {
    let rig = Fixture::new();
    let _sleeper = rig.take_down();
    let mut call = rig.call("overnight", [Attempt(SECOND * 60, None)]);
    let other = async {
        let mut other = rig.request();
        tokio::time::sleep(SECOND).await;
        other.enter();
        other.admitted().await;
        let at = rig.clock.now();
        other.begin();
        other.failed(&overload());
        assert_eq!(rig.mode(), Mode::Down);
        at
    };
    let (outcome, taken_over) = tokio::join!(call.run(), other);
    assert_eq!(outcome, Ok(Outcome::Completed));
    assert_eq!(taken_over, call.began[0] + SECOND * 20);
    assert_eq!(rig.mode(), Mode::Flowing);
}

#[tokio::test(start_paused = true)]
async fn probe_with_final_failure_ends_its_call_and_the_outage() {
    let rig = Fixture::new();
    let _sleeper = rig.take_down();
    let invalid = |now| Failure::http("p", 400, "invalid request", now);
    let mut call = rig.call("overnight", [Attempt(Duration::ZERO, Some(invalid))]);
    let outcome = call.run().await;
    assert_eq!(outcome, Ok(Outcome::Failed(GiveUp::NotRetryable)));
    assert_eq!(call.lines("report").len(), 1);
    // The provider has answered.
    assert_eq!(rig.mode(), Mode::Flowing);
}

// --- The gate's key, and accounts ---

#[tokio::test(start_paused = true)]
async fn gate_is_that_of_provider_address_account_and_model() {
    for (accounts, account) in [(&[][..], "own"), (&["a/b"], "a/b")] {
        let rig = Fixture::new();
        let limit = |now| {
            Failure::http(
                "p",
                429,
                "You have hit your usage limit. Try again in 1 hour.",
                now,
            )
        };
        let mut call = rig.call("none", [Attempt(Duration::ZERO, Some(limit))]);
        call.accounts = Some(rig.accounts(accounts, None)).filter(|_| !accounts.is_empty());
        call.run().await.unwrap();
        let gates = rig.shared_state.failing_gates();
        let names: Vec<&str> = gates.iter().map(|gate| gate.name.as_str()).collect();
        assert_eq!(names, [gate_key("p", "host", account, "m")]);
    }
}

#[tokio::test(start_paused = true)]
async fn refused_key_is_fetched_again_once_between_two_waits() {
    let rig = Fixture::new();
    let expired = Attempt(Duration::ZERO, Some(expired_key));
    let mut call = rig.call("overnight", [expired, OVERLOADED, expired, SUCCESS]);
    call.accounts = Some(rig.accounts(&["a"], None));
    assert_eq!(call.run_until().await, completed_after(SECOND * 5));
    assert_eq!(call.gaps(), [0, 5_000, 0]);
    // The account is not left.
    assert_eq!(call.lines("left"), ["0ns left None", "5s left None"]);

    let mut call = rig.call("overnight", [expired, expired]);
    call.accounts = Some(rig.accounts(&["b"], None));
    let outcome = call.run().await;
    assert_eq!(outcome, Ok(Outcome::Failed(GiveUp::NotRetryable)));
    assert_eq!(call.began.len(), 2);
}

// --- Announcements ---

#[tokio::test(start_paused = true)]
async fn moved_hold_is_announced_again_at_most_every_5_seconds() {
    let rig = Fixture::new();
    rig.limit_account(seconds(60));
    let mut call = rig.call("overnight", [SUCCESS]);
    let moving = async {
        for (at, reset) in [
            // Before 5 s have passed.
            (1, 90),
            (3, 100),
            // By one second.
            (20, 101),
            // By less than a tenth of the wait.
            (30, 105),
            (40, 120),
        ] {
            rig.clock.sleep_until(seconds(at)).await;
            rig.limit_account(seconds(reset));
        }
    };
    let (end, ()) = tokio::join!(call.run_until(), moving);
    assert_eq!(end, completed_after(SECOND * 120));
    assert_eq!(
        call.lines("announce"),
        [
            "0ns announce Gate until 60s: usage_limit",
            "5s announce Gate until 100s: usage_limit",
            "40s announce Gate until 120s: usage_limit",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn moved_retry_is_announced_again_and_costs_no_attempt() {
    let rig = Fixture::new();
    let refused = Attempt(Duration::ZERO, Some(refused_for_100_seconds));
    let mut call = rig.call("overnight", [refused, SUCCESS]);
    let moving = async {
        rig.clock.sleep_until(seconds(10)).await;
        rig.limit_account(seconds(300));
    };
    let (end, ()) = tokio::join!(call.run_until(), moving);
    assert_eq!(end, completed_after(SECOND * 300));
    assert_eq!(
        call.lines("announce"),
        [
            "0ns announce retry 1 at 100s: rate_limited",
            "10s announce Gate until 300s: usage_limit",
            "300s announce end true",
        ]
    );
}

// --- Resumed waits ---

#[tokio::test(start_paused = true)]
async fn resumed_wait_is_announced_and_not_recorded_again() {
    let rig = Fixture::new();
    let mut call = rig.call("overnight", [SUCCESS]);
    assert_eq!(resume(&rig, &mut call, overloaded).await, SECOND * 100);
    assert_eq!(
        call.log,
        [
            "0ns announce retry 0 at 100s: overloaded",
            "100s wait ended",
            "100s prepare",
            "100s attempt",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn resumed_stated_wait_keeps_its_time_while_gate_is_down() {
    let rig = Fixture::new();
    let _sleeper = rig.take_down();
    let mut call = rig.call("overnight", [SUCCESS]);
    let end = resume(&rig, &mut call, refused_for_100_seconds).await;
    assert_eq!(end, SECOND * 100);

    let rig = Fixture::new();
    let _sleeper = rig.take_down();
    let mut call = rig.call("overnight", [SUCCESS]);
    let end = resume(&rig, &mut call, overloaded).await;
    assert_eq!(end, Duration::from_millis(500));
}

/// Resumes a wait of 100 s after this failure, which has just begun; returns the time of its success.
async fn resume(rig: &Fixture, call: &mut TestCall, failure: MakeFailure) -> Duration {
    let now = rig.clock.now();
    let wait = outlast_kernel::attempt::Wait {
        since: now,
        until: now + SECOND * 100,
        failure: ClassifiedFailure::new(failure(now)),
    };
    let effects = call.driver.resume_wait(wait, now);
    let outcome = attempt::run(call, effects).await;
    assert_eq!(outcome, Ok(Outcome::Completed));
    rig.clock.now().since(START)
}

// --- The end of a wait ---

/// The kinds of waits.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// 5 s.
    Retry,
    /// 60 s.
    Gate,
    /// The same, after the call has failed itself.
    RetryAtGate,
    /// 90 s.
    Permit,
}

/// Runs a call that waits from the beginning on, and interrupts it after 20 s, or after 2 s if it waits for a retry.
async fn interrupted(
    kind: Kind,
    interrupt: Interrupt,
) -> (Result<Outcome, Ended>, Duration, TestCall) {
    let rig = Fixture::new();
    let mut attempts = vec![SUCCESS];
    if matches!(kind, Kind::Retry | Kind::RetryAtGate) {
        attempts.insert(0, OVERLOADED);
    }
    let mut call = rig.call("overnight", attempts);
    let mut blocker = rig.call("overnight", [Attempt(SECOND * 90, None)]);
    if kind == Kind::Permit {
        let accounts = rig.accounts(&["a"], Some(1));
        (blocker.accounts, call.accounts) = (Some(accounts.clone()), Some(accounts));
    }
    call.changed = Some((target("other"), None));
    let blocking = async {
        match kind {
            Kind::Retry => {}
            Kind::Gate => rig.limit_account(seconds(60)),
            Kind::RetryAtGate => {
                rig.clock.sleep_until(START + SECOND).await;
                rig.limit_account(seconds(60));
            }
            Kind::Permit => {
                blocker.run().await.unwrap();
            }
        }
    };
    let at = if kind == Kind::Retry { 2 } else { 20 };
    let (_, end) = tokio::join!(biased; blocking, call.interrupted(SECOND * at, interrupt));
    (end.0, end.1, call)
}

#[tokio::test(start_paused = true)]
async fn abort_ends_every_wait() {
    for kind in [Kind::Retry, Kind::Gate, Kind::RetryAtGate, Kind::Permit] {
        let at = if kind == Kind::Retry {
            SECOND * 2
        } else {
            SECOND * 20
        };
        let (outcome, end, _) = interrupted(kind, Interrupt::Abort).await;
        assert_eq!((outcome, end), (Ok(Outcome::Aborted), at), "{kind:?}");
        let (outcome, end, _) = interrupted(kind, Interrupt::Ended(Ended)).await;
        assert_eq!((outcome, end), (Err(Ended), at), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn aborted_retry_ends_the_waits_of_a_call_that_has_failed() {
    for (kind, expected, at) in [
        (Kind::Retry, Outcome::Failed(GiveUp::Canceled), 2),
        (Kind::RetryAtGate, Outcome::Failed(GiveUp::Canceled), 20),
        (Kind::Gate, Outcome::Completed, 60),
        (Kind::Permit, Outcome::Completed, 90),
    ] {
        let (outcome, end, call) = interrupted(kind, Interrupt::AbortRetry).await;
        assert_eq!((outcome, end), (Ok(expected), SECOND * at), "{kind:?}");
        let is_canceled = expected != Outcome::Completed;
        assert_eq!(
            call.lines("announce end false").len(),
            usize::from(is_canceled)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn retry_now_ends_every_wait_but_that_for_a_permit() {
    for (kind, at) in [
        (Kind::Retry, 2),
        (Kind::Gate, 20),
        (Kind::RetryAtGate, 20),
        (Kind::Permit, 90),
    ] {
        let (outcome, end, _) = interrupted(kind, Interrupt::RetryNow).await;
        assert_eq!((outcome, end), completed_after(SECOND * at), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn changed_target_ends_every_wait() {
    for (kind, at) in [
        (Kind::Retry, 2),
        (Kind::Gate, 20),
        (Kind::RetryAtGate, 20),
        (Kind::Permit, 20),
    ] {
        let (outcome, end, call) = interrupted(kind, Interrupt::Reconsider).await;
        assert_eq!((outcome, end), completed_after(SECOND * at), "{kind:?}");
        assert_eq!(call.target, target("other"));
    }
}

#[tokio::test(start_paused = true)]
async fn deadline_ends_every_hold() {
    for limit in [None, Some(1)] {
        let rig = Fixture::new();
        let prompt = Prompt::new(Limits {
            deadline: Some(seconds(30)),
            ..Limits::default()
        });
        let policy = Policy::named("overnight").unwrap();
        let mut call = rig.call_with(policy, prompt, [SUCCESS]);
        let accounts = rig.accounts(&["a"], limit);
        let chosen = limit.map(|_| accounts);
        let mut blocker = rig.call("overnight", [Attempt(SECOND * 90, None)]);
        (blocker.accounts, call.accounts) = (chosen.clone(), chosen);
        if limit.is_none() {
            rig.limit_account(seconds(60));
        }
        let blocking = async {
            if limit.is_some() {
                blocker.run().await.unwrap();
            }
        };
        let (end, ()) = tokio::join!(biased; call_after(&mut call), blocking);
        let gave_up = Ok(Outcome::Failed(GiveUp::DeadlineExceeded));
        assert_eq!(end, (gave_up, SECOND * 30), "{limit:?}");
        assert_eq!(call.lines("report"), ["30s report deadline_passed"]);
    }
}

/// Runs the call as soon as others have begun theirs.
async fn call_after(call: &mut TestCall) -> (Result<Outcome, Ended>, Duration) {
    tokio::task::yield_now().await;
    call.run_until().await
}

#[tokio::test(start_paused = true)]
async fn hold_beyond_the_longest_accepted_wait_ends_the_call() {
    // The policy accepts five minutes.
    let rig = Fixture::new();
    let mut call = rig.call("session", [OVERLOADED]);
    let limiting = async {
        rig.clock.sleep_until(seconds(1)).await;
        rig.limit_account(seconds(3600));
    };
    let (end, ()) = tokio::join!(call.run_until(), limiting);
    let (requested, allowed) = (SECOND * 3598, SECOND * 300);
    let why = GiveUp::StatedWaitTooLong { requested, allowed };
    assert_eq!(end, (Ok(Outcome::Failed(why)), SECOND * 2));
    assert_eq!(call.lines("report"), ["2s report overloaded"]);
}

#[tokio::test(start_paused = true)]
async fn reset_that_moves_beyond_the_longest_accepted_wait_ends_the_hold() {
    let rig = Fixture::new();
    rig.limit_account(seconds(60));
    let mut call = rig.call("session", [SUCCESS]);
    let limiting = async {
        rig.clock.sleep_until(seconds(10)).await;
        rig.limit_account(seconds(3600));
    };
    let (end, ()) = tokio::join!(call.run_until(), limiting);
    let (requested, allowed) = (SECOND * 3590, SECOND * 290);
    let why = GiveUp::StatedWaitTooLong { requested, allowed };
    assert_eq!(end, (Ok(Outcome::Failed(why)), SECOND * 10));
    assert_eq!(call.lines("report"), ["10s report usage_limit"]);
}

#[tokio::test(start_paused = true)]
async fn first_call_with_reset_beyond_its_limit_is_not_held() {
    let rig = Fixture::new();
    rig.limit_account(seconds(3600));
    let mut call = rig.call("session", [SUCCESS]);
    assert_eq!(call.run_until().await, completed_after(Duration::ZERO));
    // A policy that never waits is not held at all.
    let mut call = rig.call("none", [SUCCESS]);
    assert_eq!(call.run_until().await, completed_after(Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn hold_without_a_stated_time_ends_at_the_longest_accepted_wait() {
    let rig = Fixture::new();
    let _sleeper = rig.take_down();
    // Two older requests probe, and hang for longer than their leases.
    let mut hanging = [rig.request(), rig.request()];
    for request in &mut hanging {
        request.enter();
    }
    tokio::time::advance(Duration::from_millis(10)).await;
    let mut call = rig.call("standard", []);
    let [one, other] = &mut hanging;
    let probing = async {
        one.admitted().await;
        one.begin();
        other.admitted().await;
        other.begin();
    };
    let (outcome, ()) = tokio::join!(call.run(), probing);
    let budget = SECOND * 30;
    let why = GiveUp::SleepBudgetExhausted { budget };
    assert_eq!(outcome, Ok(Outcome::Failed(why)));
    assert_eq!(rig.clock.now(), START + Duration::from_millis(10) + budget);
}

// --- Permits ---

#[tokio::test(start_paused = true)]
async fn wait_for_permit_is_recorded_and_announced_before_it_begins() {
    let rig = Fixture::new();
    let accounts = Some(rig.accounts(&["a"], Some(1)));
    let mut blocker = rig.call("overnight", [Attempt(SECOND * 90, None)]);
    let mut call = rig.call("overnight", [SUCCESS]);
    (blocker.accounts, call.accounts) = (accounts.clone(), accounts);
    let (_, end) = tokio::join!(blocker.run(), call_after(&mut call));
    assert_eq!(end, completed_after(SECOND * 90));
    assert_eq!(
        call.log,
        [
            "0ns prepare",
            "0ns account a",
            "500ms record Permit",
            "500ms announce Permit until 1.5s: ",
            "90s attempt",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn permit_that_is_not_free_in_time_ends_the_call() {
    let rig = Fixture::new();
    let accounts = Some(rig.accounts(&["a"], Some(1)));
    let mut blocker = rig.call("overnight", [Attempt(SECOND * 900, None)]);
    let mut call = rig.call("session", []);
    (blocker.accounts, call.accounts) = (accounts.clone(), accounts);
    let (_, (outcome, end)) = tokio::join!(blocker.run(), call_after(&mut call));
    let budget = SECOND * 300;
    let why = GiveUp::SleepBudgetExhausted { budget };
    assert_eq!((outcome, end), (Ok(Outcome::Failed(why)), budget));
    assert_eq!(call.lines("report"), ["300s report rate_limited"]);
}

#[tokio::test(start_paused = true)]
async fn call_that_waits_for_permit_does_not_keep_its_probe() {
    let rig = Fixture::new();
    let accounts = Some(rig.accounts(&["own"], Some(1)));
    let mut blocker = rig.call("overnight", [Attempt(SECOND * 90, None)]);
    let mut call = rig.call("overnight", [SUCCESS]);
    (blocker.accounts, call.accounts) = (accounts.clone(), accounts);
    let others = async {
        rig.clock.sleep_until(seconds(10)).await;
        let _sleeper = rig.take_down();
        // The call gets the first probe, and no permit.
        rig.clock.sleep_until(seconds(12)).await;
        let mut other = rig.request();
        other.enter();
        other.admitted().await;
        assert!(rig.clock.now() < seconds(13));
    };
    let calling = async {
        rig.clock.sleep_until(seconds(11)).await;
        call.run().await
    };
    let (_, outcome, ()) = tokio::join!(blocker.run(), calling, others);
    assert_eq!(outcome, Ok(Outcome::Completed));
}

#[tokio::test(start_paused = true)]
async fn retry_now_skips_the_gate_also_after_a_wait_for_a_permit() {
    let rig = Fixture::new();
    let accounts = Some(rig.accounts(&["own"], Some(1)));
    let mut blocker = rig.call("overnight", [Attempt(SECOND * 30, None)]);
    let mut call = rig.call("overnight", [SUCCESS]);
    (blocker.accounts, call.accounts) = (accounts.clone(), accounts);
    let calling = async {
        rig.clock.sleep_until(seconds(1)).await;
        rig.limit_account(seconds(3600));
        call.interrupted(SECOND * 10, Interrupt::RetryNow).await
    };
    let (_, end) = tokio::join!(blocker.run(), calling);
    assert_eq!(end, completed_after(SECOND * 30));
}
