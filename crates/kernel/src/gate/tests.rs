//! The rules of the gate, one by one, and its invariants under random events.

use super::{
    Action, Call, Evidence, Gate, GateFailure, Grant, Mode, Pass, ProcessQueue, QueueSummary,
    Report, RequestId, RequestRecord, SyncReply, Urgency,
};
use crate::Timestamp;
use proptest::prelude::{Strategy, any, prop};
use proptest::{prop_assert, prop_oneof, proptest};
use std::collections::BTreeMap;
use std::time::Duration;

const fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000 + millis)
}

const fn call(request: u64, began: u64) -> Call {
    Call {
        request: RequestId(request),
        began: at(began),
        pass: Pass::Open,
    }
}

/// A process with a gate of its own, whose exchanges are done at once.
struct Host {
    queue: ProcessQueue,
    gate: Gate,
    now: u64,
    records: BTreeMap<RequestId, RequestRecord>,
    calls: BTreeMap<RequestId, Call>,
    starts: Vec<(u64, RequestId, Pass)>,
    /// The number of times that the gate had gone down at each start.
    downs: Vec<u32>,
}

impl Host {
    fn new() -> Self {
        Self {
            queue: ProcessQueue::new(Gate::default(), false),
            gate: Gate::default(),
            now: 0,
            records: BTreeMap::new(),
            calls: BTreeMap::new(),
            starts: Vec::new(),
            downs: Vec::new(),
        }
    }

    fn arrive(&mut self, request: u64) {
        let id = RequestId(request);
        let record = RequestRecord::new(at(self.now));
        self.records.insert(id, record);
        self.queue.arrive(id, &record, at(self.now));
        self.settle();
    }

    fn succeed(&mut self, request: u64) {
        if let Some(call) = self.calls.remove(&RequestId(request)) {
            self.queue.succeeded(&call, at(self.now));
            self.settle();
        }
    }

    /// Fails a call; its request retries after that many milliseconds.
    fn fail(&mut self, request: u64, failure: GateFailure, retry_after: u64) {
        let id = RequestId(request);
        let Some(call) = self.calls.remove(&id) else {
            return;
        };
        let mut record = self.records[&id];
        let now = at(self.now);
        self.queue.failed(&call, &mut record, &failure, now);
        self.records.insert(id, record);
        match call.pass {
            Pass::Probe { is_lone: false, .. } => self.queue.requeue(id, &record, now),
            Pass::Open | Pass::Paced(_) | Pass::Probe { .. } => {
                let wake = at(self.now + retry_after);
                self.queue.wait(id, &record, wake, failure.stated, now);
            }
        }
        self.settle();
    }

    fn advance(&mut self, to: u64) {
        while let Some(next) = self.queue.next_wake()
            && next <= at(to)
        {
            self.now = self
                .now
                .max(next.since(at(0)).as_millis().try_into().unwrap());
            self.settle();
        }
        self.now = to;
    }

    fn settle(&mut self) {
        loop {
            let actions = self.queue.poll(at(self.now));
            if actions.is_empty() {
                return;
            }
            self.carry_out(actions);
        }
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Start(id, pass) => {
                    let call = Call {
                        request: id,
                        began: at(self.now),
                        pass,
                    };
                    self.queue.started(&call);
                    self.calls.insert(id, call);
                    self.starts.push((self.now, id, pass));
                    self.downs.push(self.gate.downs());
                }
                Action::Sync(sync) => {
                    let grant = self.gate.sync(&sync.report, &sync.queue, at(self.now));
                    let reply = SyncReply {
                        gate: self.gate.clone(),
                        grant,
                        fleet_oldest: None,
                    };
                    let more = self.queue.synced(reply, at(self.now));
                    self.carry_out(more);
                }
            }
        }
    }

    /// Takes the gate down: ten requests fail until it is.
    fn down() -> Self {
        let mut host = Self::new();
        (0..10).for_each(|request| host.arrive(request));
        while host.gate.mode() != Mode::Down {
            host.advance(host.now + 100);
            (0..10).for_each(|request| host.fail(request, GateFailure::default(), 100));
        }
        host
    }
}

// --- Evidence ---

#[test]
fn success_of_call_begun_before_streak_does_not_end_it() {
    let (mut evidence, view) = (Evidence::default(), Gate::default());
    let (old, new) = (call(1, 0), call(2, 10));
    for call in [&old, &new] {
        evidence.started(call);
    }
    let mut record = RequestRecord::new(at(10));
    evidence.failed(&new, &mut record, &GateFailure::default(), &view, at(20));
    evidence.succeeded(&old, &view, at(30));
    assert_eq!(
        evidence
            .take_report(at(30))
            .streak
            .map(|streak| streak.began),
        Some(at(10))
    );
    // A later call refutes it.
    let later = call(3, 40);
    evidence.started(&later);
    evidence.succeeded(&later, &view, at(50));
    evidence.failed(
        &call(2, 35),
        &mut record,
        &GateFailure::default(),
        &view,
        at(60),
    );
    assert_eq!(evidence.take_report(at(60)).streak, None);
}

#[test]
fn failure_that_overtook_older_call_does_not_count_yet() {
    let (mut evidence, view) = (Evidence::default(), Gate::default());
    let [first, slow, fast] = [call(1, 0), call(2, 5), call(3, 10)];
    for call in [&first, &slow, &fast] {
        evidence.started(call);
    }
    for call in [&first, &fast] {
        let mut record = RequestRecord::new(call.began);
        evidence.failed(call, &mut record, &GateFailure::default(), &view, at(20));
    }
    let streak = evidence.take_report(at(20)).streak.unwrap();
    assert!((streak.failures - 1.0).abs() < 1e-9, "{streak:?}");
    // The older call fails as well.
    let mut record = RequestRecord::new(at(5));
    evidence.failed(&slow, &mut record, &GateFailure::default(), &view, at(30));
    let streak = evidence.take_report(at(30)).streak.unwrap();
    assert!((streak.failures - 2.0).abs() < 1e-9, "{streak:?}");
}

#[test]
fn hanging_call_does_not_hold_up_count_forever() {
    let (mut evidence, view) = (Evidence::default(), Gate::default());
    let (first, hanging) = (call(1, 0), call(2, 5));
    evidence.started(&first);
    evidence.started(&hanging);
    let mut record = RequestRecord::new(at(0));
    evidence.failed(&first, &mut record, &GateFailure::default(), &view, at(10));
    let young = call(3, 20);
    evidence.started(&young);
    evidence.failed(&young, &mut record, &GateFailure::default(), &view, at(30));
    let counted = |evidence: &mut Evidence, now| {
        let streak = evidence.take_report(at(now)).streak;
        streak.map(|streak| streak.failures)
    };
    assert_eq!(counted(&mut evidence, 40), Some(1.0));
    // Four usual latencies of at most 10 s later.
    assert_eq!(counted(&mut evidence, 40_100), Some(1.0));
}

#[test]
fn outage_does_not_change_success_share() {
    let mut host = Host::down();
    let share = host.gate.success_share();
    for _ in 0..100 {
        host.advance(host.now + 20_000);
        (0..10).for_each(|request| host.fail(request, GateFailure::default(), 0));
    }
    assert!((host.gate.success_share() - share).abs() < 1e-12);
}

#[test]
fn unpaced_refusals_begin_a_pace_once_it_is_measured() {
    for (served, mode) in [(1, Mode::Flowing), (0, Mode::Paced)] {
        let mut host = Host::new();
        let refusal = GateFailure {
            is_refusal: true,
            ..GateFailure::default()
        };
        (0..200).for_each(|request| host.arrive(request));
        (0..served).for_each(|request| host.succeed(request));
        (served..200).for_each(|request| host.fail(request, refusal, 1000));
        // Where nothing has ever succeeded, there is no pace to wait for.
        assert_eq!((host.gate.mode(), host.gate.downs()), (mode, 0));
        host.advance(11_000);
        (served..200).for_each(|request| host.fail(request, refusal, 1000));
        assert_eq!((host.gate.mode(), host.gate.downs()), (Mode::Paced, 0));
    }
}

#[test]
fn two_requests_never_take_gate_down() {
    let mut host = Host::new();
    host.arrive(1);
    host.arrive(2);
    for _ in 0..500 {
        host.advance(host.now + 100);
        host.fail(1, GateFailure::default(), 100);
        host.fail(2, GateFailure::default(), 100);
    }
    assert_eq!(host.gate.downs(), 0);
    assert!(host.starts.len() > 900);
}

#[test]
fn lone_request_keeps_its_own_schedule() {
    let mut host = Host::new();
    host.arrive(1);
    let delays = [500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 300_000];
    let mut expected = vec![0];
    for delay in delays {
        let wake = host.now + delay;
        host.fail(1, GateFailure::default(), delay);
        host.advance(wake);
        expected.push(wake);
    }
    let starts: Vec<u64> = host.starts.iter().map(|(at, ..)| *at).collect();
    assert_eq!(starts, expected);
}

#[test]
fn last_request_of_an_outage_follows_its_own_schedule() {
    let mut host = Host::down();
    (1..10).for_each(|request| host.queue.leave(RequestId(request)));
    // Its failed probe was for all; the next one is its own retry.
    host.advance(host.now + 1000);
    host.fail(0, GateFailure::default(), 0);
    let before = host.starts.len();
    for delay in [5000, 10_000, 300_000] {
        host.advance(host.now + 100);
        let wake = host.now + delay;
        host.fail(0, GateFailure::default(), delay);
        host.advance(wake);
        assert_eq!(host.starts.last().map(|start| start.0), Some(wake));
    }
    assert_eq!(host.starts.len(), before + 3);
}

#[test]
fn first_probes_go_to_oldest_request_then_every_second_one() {
    let mut host = Host::down();
    let before = host.starts.len();
    for _ in 0..40 {
        host.advance(host.now + 1000);
        (0..10).for_each(|request| host.fail(request, GateFailure::default(), 0));
    }
    let probes: Vec<u64> = host.starts[before..]
        .iter()
        .map(|(_, id, _)| id.0)
        .collect();
    assert_eq!(probes[..6], [0, 0, 0, 0, 1, 0], "{probes:?}");
}

#[test]
fn late_success_of_expired_probe_ends_outage() {
    let mut host = Host::down();
    let before = host.starts.len();
    host.advance(host.now + 21_500);
    let probes = &host.starts[before..];
    assert!(probes.len() >= 2, "{probes:?}");
    let (_, first, _) = probes[0];
    host.succeed(first.0);
    assert_ne!(host.gate.mode(), Mode::Down);
}

#[test]
fn stated_time_of_account_binds_everybody_at_once() {
    let mut host = Host::new();
    (0..5).for_each(|request| host.arrive(request));
    let reset = 3_600_000;
    let limit = GateFailure {
        is_refusal: true,
        stated: Some(at(reset)),
        binds_account: true,
    };
    host.fail(0, limit, 0);
    assert_eq!(host.gate.mode(), Mode::Down);
    host.arrive(9);
    let before = host.starts.len();
    host.advance(reset - 1);
    assert_eq!(host.starts.len(), before);
    host.advance(reset + 1000);
    assert!(host.starts.len() > before);
}

#[test]
fn success_of_call_begun_after_stated_time_is_known_ends_outage() {
    let mut host = Host::new();
    (0..3).for_each(|request| host.arrive(request));
    host.advance(100);
    let limit = GateFailure {
        is_refusal: true,
        stated: Some(at(3_600_000)),
        binds_account: true,
    };
    host.fail(0, limit, 0);
    host.advance(200);
    host.succeed(1);
    // The call was under way when the limit was reached.
    assert_eq!(host.gate.mode(), Mode::Down);
    let forced = call(9, 5_000);
    host.queue.started(&forced);
    host.now = 6_000;
    host.queue.succeeded(&forced, at(6_000));
    host.settle();
    assert_eq!(host.gate.mode(), Mode::Flowing);
}

#[test]
fn success_of_call_begun_before_usage_limit_does_not_lift_it() {
    let mut host = Host::new();
    host.arrive(0);
    host.advance(50);
    host.fail(0, GateFailure::default(), 60_000);
    host.advance(1_060);
    assert!(host.gate.streak_began().is_some());
    (1..3).for_each(|request| host.arrive(request));
    host.advance(1_100);
    let limit = GateFailure {
        is_refusal: true,
        stated: Some(at(3_600_000)),
        binds_account: true,
    };
    host.fail(1, limit, 0);
    assert_eq!(host.gate.mode(), Mode::Down);
    host.advance(1_200);
    host.succeed(2);
    assert_eq!(host.gate.mode(), Mode::Down);
}

#[test]
fn success_that_another_process_reports_ends_outage() {
    let mut host = Host::down();
    let began = host.gate.streak_began().unwrap() + Duration::from_millis(1);
    let report = Report {
        successes: 1,
        last_success_began: Some(began),
        ..Report::default()
    };
    let now = at(host.now + 60_000);
    host.gate.sync(&report, &QueueSummary::default(), now);
    assert_ne!(host.gate.mode(), Mode::Down);
}

#[test]
fn stated_time_of_failed_probe_binds_others_for_ten_minutes() {
    let mut host = Host::down();
    let before = host.starts.len();
    host.advance(host.now + 1_000);
    let (_, probe, _) = host.starts[before];
    let stated = GateFailure {
        stated: Some(at(host.now + 86_400_000)),
        ..GateFailure::default()
    };
    host.fail(probe.0, stated, 0);
    let (_, probe_at) = host.gate.outage().unwrap();
    assert_eq!(probe_at, at(host.now + 600_000));
}

#[test]
fn clock_that_is_set_back_delays_no_exchange() {
    let (gate, late) = (Host::down().gate, 3_600_000);
    let mut queue = ProcessQueue::new(gate.clone(), true);
    queue.arrive(RequestId(0), &RequestRecord::new(at(late)), at(late));
    let is_exchange = |actions: &[Action]| matches!(actions, [Action::Sync(_)]);
    assert!(is_exchange(&queue.poll(at(late))));
    let reply = SyncReply {
        gate,
        grant: Some(Grant::Hold(at(late + 10_000))),
        fleet_oldest: None,
    };
    assert!(queue.synced(reply, at(late)).is_empty());
    // Threads read the clock in any order.
    assert!(queue.poll(at(late - 10)).is_empty());
    assert!(is_exchange(&queue.poll(at(0))));
}

#[test]
fn false_alarm_returns_to_flowing_and_doubles_limit() {
    let mut host = Host::new();
    (0..30).for_each(|request| host.arrive(request));
    let limit = host.gate.streak_limit(at(0));
    host.advance(100);
    (0..29).for_each(|request| host.fail(request, GateFailure::default(), 10));
    // The last call began with the others, and holds up nothing once it is old.
    host.advance(41_000);
    host.arrive(40);
    host.advance(41_100);
    (0..29).for_each(|request| host.fail(request, GateFailure::default(), 10));
    assert_eq!(host.gate.mode(), Mode::Down);
    host.succeed(29);
    assert_eq!(host.gate.mode(), Mode::Flowing);
    let doubled = host.gate.streak_limit(at(host.now));
    assert!(doubled > limit, "{doubled} {limit}");
}

// --- Quick retries ---

#[test]
fn quick_retries_need_successes_of_others() {
    let mut host = Host::new();
    host.arrive(1);
    host.arrive(2);
    let mut record = host.records[&RequestId(1)];
    assert_eq!(host.queue.quick_delay(&mut record, 0.0, at(10)), None);
    host.succeed(2);
    let mut delays = Vec::new();
    while let Some(delay) = host.queue.quick_delay(&mut record, 0.0, at(10)) {
        delays.push(delay.as_millis());
    }
    assert_eq!(delays[..6], [500, 1000, 2000, 4000, 8000, 8000]);
    // As many as others need with luck, not without end.
    assert!((20..=24).contains(&delays.len()), "{}", delays.len());
    let jittered = RequestRecord::new(at(0));
    let delay = host.queue.quick_delay(&mut jittered.clone(), 1.0, at(10));
    assert_eq!(delay, Some(Duration::from_millis(375)));
}

// --- Invariants ---

#[derive(Clone, Copy, Debug)]
enum Step {
    Arrive,
    Succeed(u8),
    Fail(u8, GateFailure),
    Leave(u8),
    Advance(u64),
}

fn failure() -> impl Strategy<Value = GateFailure> {
    (
        any::<bool>(),
        prop::option::of(0..30_000_u64),
        any::<bool>(),
    )
        .prop_map(|(is_refusal, stated, binds)| GateFailure {
            is_refusal,
            stated: stated.map(at),
            binds_account: binds && stated.is_some(),
        })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => proptest::strategy::Just(Step::Arrive),
        2 => any::<u8>().prop_map(Step::Succeed),
        6 => (any::<u8>(), failure()).prop_map(|(it, failure)| Step::Fail(it, failure)),
        1 => any::<u8>().prop_map(Step::Leave),
        3 => (0..3000_u64).prop_map(Step::Advance),
    ]
}

#[test]
fn usage_limit_holds_own_process_before_it_is_shared() {
    let mut queue = ProcessQueue::new(Gate::default(), true);
    assert!(queue.arrive_open(at(0)).is_some());
    let (call, mut record) = (call(0, 0), RequestRecord::new(at(0)));
    queue.started(&call);
    let limit = GateFailure {
        is_refusal: true,
        stated: Some(at(60_000)),
        binds_account: true,
    };
    queue.failed(&call, &mut record, &limit, at(10));
    assert!(queue.arrive_open(at(20)).is_none());
}

#[test]
fn success_of_another_request_shortens_long_sleep() {
    let mut queue = ProcessQueue::new(Gate::default(), false);
    let (sleeper, mut record) = (call(0, 0), RequestRecord::new(at(0)));
    let sleep = |queue: &mut ProcessQueue, record: &mut RequestRecord, now| {
        queue.started(&sleeper);
        queue.failed(&sleeper, record, &GateFailure::default(), at(now));
        let half_an_hour = at(now) + Duration::from_secs(1800);
        queue.wait(sleeper.request, record, half_an_hour, None, at(now));
    };
    let start_of_sleeper = |queue: &mut ProcessQueue, now| {
        let started = Action::Start(sleeper.request, Pass::Open);
        queue.poll(at(now)).contains(&started)
    };
    assert!(queue.arrive_open(at(0)).is_some());
    for round in 0..6 {
        let now = round * 100_000;
        sleep(&mut queue, &mut record, now);
        // A call that began before the failure proves nothing.
        for (began, is_proof) in [(now, false), (now + 10_000, true)] {
            queue.arrive_open(at(began)).expect("an open gate");
            let other = call(1 + began, began);
            queue.started(&other);
            queue.succeeded(&other, at(now + 12_000));
            let is_early = start_of_sleeper(&mut queue, now + 12_000);
            assert_eq!(is_early, is_proof && round < 5, "{round}");
        }
    }
}

#[test]
fn success_of_another_request_shortens_no_stated_time() {
    let mut queue = ProcessQueue::new(Gate::default(), false);
    let record = RequestRecord::new(at(0));
    let stated = at(1_800_000);
    queue.arrive_waiting(RequestId(0), &record, stated, Some(stated), at(0));
    let other = call(1, 10_000);
    queue.arrive_open(at(10_000)).expect("an open gate");
    queue.started(&other);
    queue.succeeded(&other, at(12_000));
    assert_eq!(queue.shortened_sleeps(), 0);
    assert_eq!(queue.expected_start(RequestId(0), at(12_000)), Some(stated));
}

#[test]
fn request_that_waits_anew_is_queued_once() {
    let mut queue = ProcessQueue::new(Gate::default(), true);
    let (id, record) = (RequestId(0), RequestRecord::new(at(0)));
    queue.arrive_waiting(id, &record, at(1_000), None, at(0));
    queue.wait(id, &record, at(2_000), None, at(0));
    assert_eq!(queue.poll(at(1_500)), []);
    assert_eq!(queue.poll(at(2_000)), [Action::Start(id, Pass::Open)]);
    assert_eq!(queue.next_wake(), None);
}

proptest! {
    /// No request is started twice at a time or lost, probes do not overlap within a lease, and nobody starts before a time
    /// that binds the account; the same events give the same gate.
    #[test]
    fn requests_are_neither_lost_nor_doubled(steps in prop::collection::vec(step(), 1..300)) {
        let (mut host, mut twin) = (Host::new(), Host::new());
        let mut arrived = 0_u64;
        for step in steps {
            let before = host.starts.len();
            for host in [&mut host, &mut twin] {
                match step {
                    Step::Arrive => host.arrive(arrived),
                    Step::Succeed(it) => host.succeed(u64::from(it) % arrived.max(1)),
                    Step::Fail(it, failure) => {
                        let stated = failure.stated.map(|it| it + Duration::from_millis(host.now));
                        let failure = GateFailure { stated, ..failure };
                        host.fail(u64::from(it) % arrived.max(1), failure, 700);
                    }
                    Step::Leave(it) => {
                        let id = RequestId(u64::from(it) % arrived.max(1));
                        if !host.calls.contains_key(&id) {
                            host.queue.leave(id);
                            host.settle();
                        }
                    }
                    Step::Advance(time) => host.advance(host.now + time),
                }
            }
            arrived += u64::from(matches!(step, Step::Arrive));
            prop_assert!(host.gate == twin.gate && host.starts == twin.starts);
            for (time, _, pass) in &host.starts[before..] {
                let is_early = at(*time) < host.gate.not_before();
                prop_assert!(!is_early || matches!(pass, Pass::Open | Pass::Paced(_)), "{time}");
            }
            let starts = host.starts.iter().zip(&host.downs);
            let probes = starts.filter(|((_, _, pass), _)| matches!(pass, Pass::Probe { .. }));
            let probes: Vec<_> = probes.collect();
            for pair in probes.windows(2) {
                let ((earlier, outage), (later, later_outage)) = (pair[0], pair[1]);
                let call = host.calls.get(&earlier.1);
                let is_over = call.is_none_or(|call| call.pass != earlier.2);
                let is_leased = outage == later_outage && !is_over;
                prop_assert!(!is_leased || later.0 >= earlier.0 + 20_000, "{probes:?}");
            }
        }
    }

    /// A gate survives its JSON form.
    #[test]
    fn gate_is_restored_from_json(failures in 0..60_u64) {
        let mut host = Host::new();
        (0..10).for_each(|request| host.arrive(request));
        for number in 0..failures {
            host.advance(host.now + 50);
            host.fail(number % 10, GateFailure::default(), 50);
        }
        let text = serde_json::to_string(&host.gate).unwrap();
        let restored: Gate = serde_json::from_str(&text).unwrap();
        prop_assert!(restored == host.gate);
    }
}

#[test]
fn report_of_failure_is_due_within_interval() {
    let (mut evidence, view) = (Evidence::default(), Gate::default());
    let call = call(1, 0);
    evidence.started(&call);
    let mut record = RequestRecord::new(at(0));
    let urgency = evidence.failed(&call, &mut record, &GateFailure::default(), &view, at(5));
    assert_eq!(urgency, Urgency::Soon);
}

#[test]
fn process_far_behind_the_oldest_gets_no_slots() {
    let mut gate = Gate::default();
    gate.go_paced(100.0, false, at(0));
    let queue = |oldest| QueueSummary {
        waiting: 5,
        wanted: 5,
        oldest: Some(oldest),
        fleet_waiting: 10,
        fleet_oldest: Some(at(0)),
        lone_wake: None,
    };
    assert!(matches!(
        gate.grant(&queue(at(2500)), at(3000)),
        Grant::Hold(_)
    ));
    assert!(matches!(
        gate.grant(&queue(at(0)), at(3000)),
        Grant::Slots(_)
    ));
}
