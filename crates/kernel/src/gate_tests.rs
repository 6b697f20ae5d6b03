use super::pace::MAX_RATE;
use super::*;
use crate::policy::Policy;
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

const fn ms(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn id(name: &str) -> WaiterId {
    WaiterId(name.to_owned())
}

/// A caller whose own schedule would have it retry at 1000 s.
fn waiter(name: &str, since: u64) -> Waiter {
    Waiter {
        id: id(name),
        since: at(since),
        own_wake: at(1000),
        deadline: None,
        batch: None,
    }
}

/// A gate and its queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct GateWithQueue {
    gate: Gate,
    queue: Queue,
}

impl GateWithQueue {
    fn new(config: Config) -> Self {
        Self {
            gate: Gate::new(config),
            queue: Queue::default(),
        }
    }

    fn request_pass(&mut self, waiter: Waiter, now: Timestamp) -> GateReply {
        self.queue.request_pass(&mut self.gate, waiter, now)
    }

    fn join(&mut self, waiter: Waiter) {
        self.queue.join(waiter);
    }

    fn find_waiter(&self, id: &WaiterId) -> Option<Waiter> {
        self.queue.iter().find(|waiter| waiter.id == *id).cloned()
    }

    fn leave(&mut self, id: &WaiterId) {
        if let Some(waiter) = self.find_waiter(id) {
            self.queue.leave(&waiter);
        }
    }

    fn wake_time(&self, id: &WaiterId) -> Option<Timestamp> {
        self.queue.wake_time(&self.gate, &self.find_waiter(id)?)
    }

    fn waiting(&self) -> u32 {
        self.queue.len()
    }

    fn failed(&mut self, pass: Pass, stated: Option<Timestamp>, now: Timestamp) {
        self.gate.record_failure(pass, stated, now);
    }

    fn succeeded(&mut self, pass: Pass, now: Timestamp) {
        self.gate.record_success(pass, self.queue.len(), now);
    }

    fn renew(&mut self, pass: Pass, now: Timestamp) -> bool {
        self.gate.renew_lease(pass, now)
    }

    fn is_closed(&self) -> bool {
        self.gate.is_closed()
    }
}

/// Queues callers since second 0, 1, 2 and so on.
fn enqueue(gate: &mut GateWithQueue, names: &[&str]) {
    for (since, name) in (0..).zip(names) {
        gate.join(waiter(name, since));
    }
}

fn proceed(gate: &mut GateWithQueue, waiter: Waiter, now: Timestamp) -> Pass {
    match gate.request_pass(waiter, now) {
        GateReply::Proceed(pass) => pass,
        other => panic!("{other:?} at {now}"),
    }
}

fn probe(gate: &mut GateWithQueue, waiter: Waiter, now: Timestamp) -> Pass {
    match gate.request_pass(waiter, now) {
        GateReply::Probe(pass) => pass,
        other => panic!("{other:?} at {now}"),
    }
}

/// A gate that a failure opened at second 0.
fn opened(names: &[&str]) -> GateWithQueue {
    let mut gate = GateWithQueue::default();
    let pass = proceed(&mut gate, waiter("first", 0), at(0));
    gate.failed(pass, None, at(0));
    enqueue(&mut gate, names);
    gate
}

/// A gate with a probe in flight since second 2, and these callers in its queue.
fn half_open(names: &[&str]) -> (GateWithQueue, Pass) {
    let mut gate = opened(&["prober", "another"]);
    let pass = probe(&mut gate, waiter("prober", 0), at(2));
    gate.leave(&id("another"));
    enqueue(&mut gate, names);
    (gate, pass)
}

/// A gate whose ramp began at second 2, with these callers in its queue.
fn ramping(names: &[&str]) -> GateWithQueue {
    let (mut gate, pass) = half_open(names);
    gate.succeeded(pass, at(2));
    gate
}

fn rate(gate: &GateWithQueue) -> Rate {
    match &gate.gate.stage {
        Stage::Ramp(ramp) => ramp.rate,
        other => panic!("not a ramp: {other:?}"),
    }
}

fn wakes(gate: &GateWithQueue, names: &[&str]) -> Vec<Timestamp> {
    let wake = |name: &&str| gate.wake_time(&id(name)).unwrap();
    names.iter().map(wake).collect()
}

// --- closed and open ---

#[test]
fn a_closed_gate_lets_everyone_pass() {
    let mut gate = GateWithQueue::default();
    for second in [0, 0, 0, 7] {
        let pass = proceed(&mut gate, waiter("a", second), at(second));
        gate.succeeded(pass, at(second));
    }
    assert!(gate.is_closed());
    assert_eq!(gate.waiting(), 0);
}

#[test]
fn who_passes_a_closed_gate_leaves_the_others_in_line() {
    let mut gate = GateWithQueue::default();
    enqueue(&mut gate, &["a", "b", "c"]);
    proceed(&mut gate, waiter("b", 1), at(5));
    assert_eq!(wakes(&gate, &["a", "c"]), [at(1000), at(1000)]);
    assert_eq!(gate.waiting(), 2);
}

#[test]
fn the_first_failure_opens_the_gate_for_all() {
    let mut gate = GateWithQueue::default();
    let first = proceed(&mut gate, waiter("a", 0), at(0));
    let second = proceed(&mut gate, waiter("b", 0), at(0));
    gate.failed(first, None, at(1));
    assert!(!gate.is_closed());
    gate.join(waiter("a", 0));
    assert_eq!(
        gate.request_pass(waiter("c", 1), at(1)),
        GateReply::Hold(at(5))
    );

    let before = gate.clone();
    gate.failed(second, None, at(2));
    assert_eq!(gate, before, "calls that were in flight say nothing new");
    gate.succeeded(second, at(2));
    assert_eq!(gate, before);
}

#[test]
fn a_lone_waiter_keeps_its_own_schedule_exactly() {
    let delays = Policy::named("overnight").unwrap().delays(9);
    let mut gate = opened(&[]);
    let mut now = at(0);
    for delay in [Duration::ZERO, Duration::from_millis(200)]
        .into_iter()
        .chain(delays)
    {
        let own_wake = now + delay;
        let alone = Waiter {
            own_wake,
            ..waiter("a", 0)
        };
        gate.join(alone.clone());
        assert_eq!(gate.wake_time(&id("a")), Some(own_wake));
        if delay > Duration::ZERO {
            assert_eq!(
                gate.request_pass(alone.clone(), now),
                GateReply::Hold(own_wake)
            );
        }
        let pass = probe(&mut gate, alone, own_wake);
        gate.failed(pass, None, own_wake);
        now = own_wake;
    }
}

#[test]
fn a_lone_waiter_can_be_probed_for_too() {
    let config = Config {
        probe_for_one: true,
        ..Config::default()
    };
    let mut gate = GateWithQueue::new(config);
    let pass = proceed(&mut gate, waiter("a", 0), at(0));
    gate.failed(pass, None, at(0));
    gate.join(waiter("a", 0));
    assert_eq!(wakes(&gate, &["a"]), [at(2)]);
    let pass = probe(&mut gate, waiter("a", 0), at(2));
    gate.failed(pass, None, at(2));
    gate.join(waiter("a", 0));
    assert_eq!(wakes(&gate, &["a"]), [ms(5200)]);
}

#[test]
fn a_waiter_left_alone_does_not_rush_because_its_own_time_has_passed() {
    let mut gate = opened(&["b"]);
    let held = Waiter {
        own_wake: at(1),
        ..waiter("a", 0)
    };
    let pass = probe(&mut gate, held.clone(), at(2));
    gate.failed(pass, None, at(3));
    gate.leave(&id("b"));
    assert_eq!(gate.request_pass(held, at(3)), GateReply::Hold(ms(6200)));
}

#[test]
fn for_two_or_more_one_probes_at_a_time_with_growing_gaps() {
    let mut gate = opened(&["a", "b", "c"]);
    let mut now = at(0);
    for gap in [
        2000, 3200, 5120, 8192, 13_107, 15_000, 15_000, 15_000, 15_000,
    ] {
        let due = now + Duration::from_millis(gap);
        assert_eq!(gate.wake_time(&id("a")), Some(due), "gap {gap}");
        let early = ms(due.as_millis() - 1);
        assert_eq!(
            gate.request_pass(waiter("a", 0), early),
            GateReply::Hold(due)
        );
        let pass = probe(&mut gate, waiter("a", 0), due);
        for name in ["b", "c"] {
            assert!(matches!(
                gate.request_pass(waiter(name, 1), due),
                GateReply::Hold(_)
            ));
        }
        now = due + Duration::from_millis(300);
        gate.failed(pass, None, now);
        gate.join(waiter("a", 0));
    }
}

#[test]
fn a_waiter_that_asks_again_keeps_its_place() {
    let mut gate = opened(&["a", "b", "c"]);
    for _ in 0..3 {
        gate.request_pass(waiter("a", 0), at(1));
        gate.join(waiter("b", 1));
    }
    assert_eq!(gate.waiting(), 3);
    assert_eq!(wakes(&gate, &["a", "b", "c"]), [at(2), at(4), at(6)]);
    gate.join(waiter("d", 0));
    assert_eq!(
        wakes(&gate, &["a", "d", "b", "c"]),
        [at(2), at(4), at(6), at(8)],
        "its trouble began earlier"
    );
}

#[test]
fn who_leaves_the_line_moves_the_others_up() {
    let mut gate = opened(&["a", "b", "c"]);
    gate.leave(&id("a"));
    gate.leave(&id("nobody"));
    assert_eq!(gate.wake_time(&id("a")), None);
    assert_eq!(wakes(&gate, &["b", "c"]), [at(2), at(4)]);
    gate.leave(&id("b"));
    assert_eq!(wakes(&gate, &["c"]), [at(1000)], "alone again");
}

#[test]
fn who_does_not_come_is_passed_over_and_can_come_back() {
    let mut gate = opened(&["dead", "late", "c", "d"]);
    let pass = probe(&mut gate, waiter("c", 2), at(6));
    assert_eq!(gate.waiting(), 1);
    assert_eq!(gate.wake_time(&id("late")), None);
    gate.failed(pass, None, at(6));
    gate.join(waiter("c", 2));
    assert_eq!(wakes(&gate, &["c"]), [ms(9200)]);
    assert_eq!(
        gate.request_pass(waiter("late", 1), at(7)),
        GateReply::Hold(ms(9200))
    );
}

#[test]
fn nobody_stands_by_for_more_than_five() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let expected = [2, 4, 6, 8, 10, 12, 12, 12].map(at);
    assert_eq!(wakes(&opened(&names), &names), expected);
}

// --- stated times ---

#[test]
fn nobody_passes_before_a_stated_time_whenever_it_is_reported() {
    let stated = Some(at(500));
    let report = |gate: &mut GateWithQueue, pass, second| gate.failed(pass, stated, at(second));

    let mut by_the_first = GateWithQueue::default();
    let first = proceed(&mut by_the_first, waiter("x", 0), at(0));
    let old = first;
    report(&mut by_the_first, first, 0);

    let mut late_while_open = opened(&[]);
    report(&mut late_while_open, old, 1);

    let (mut by_the_probe, pass) = half_open(&[]);
    report(&mut by_the_probe, pass, 3);

    let (mut late_while_half_open, pass) = half_open(&[]);
    report(&mut late_while_half_open, old, 3);
    let dead_probe = late_while_half_open.clone();
    let mut then_a_success = late_while_half_open.clone();
    then_a_success.succeeded(pass, at(4));
    late_while_half_open.failed(pass, None, at(4));

    let mut on_the_ramp = ramping(&["y"]);
    let pass = proceed(&mut on_the_ramp, waiter("y", 0), at(2));
    report(&mut on_the_ramp, pass, 3);
    let mut late_on_the_ramp = ramping(&["y"]);
    report(&mut late_on_the_ramp, old, 3);
    let mut then_reopened = on_the_ramp.clone();
    then_reopened.failed(pass, None, at(3));
    then_reopened.failed(pass, None, at(3));
    let mut then_all_have_gone = on_the_ramp.clone();
    then_all_have_gone.succeeded(pass, at(4));

    let table = [
        ("by the first", by_the_first),
        ("late, while open", late_while_open),
        ("by the probe", by_the_probe),
        ("late, while half open", late_while_half_open),
        ("late, while half open, and the probe died", dead_probe),
        ("late, while half open, then a success", then_a_success),
        ("on the ramp", on_the_ramp),
        ("late, on the ramp", late_on_the_ramp),
        ("on the ramp, which then reopened", then_reopened),
        ("on the ramp, when all had gone", then_all_have_gone),
    ];
    for (case, gate) in table {
        for names in [&["a"][..], &["a", "b"]] {
            let mut gate = gate.clone();
            gate.leave(&id("y"));
            let own = |name| Waiter {
                own_wake: at(10),
                ..waiter(name, 0)
            };
            names.iter().for_each(|name| gate.join(own(name)));
            assert_eq!(gate.wake_time(&id("a")), Some(at(500)), "{case}");
            let held = gate.request_pass(own("a"), ms(499_999));
            assert_eq!(held, GateReply::Hold(at(500)), "{case}");
            let answer = gate.request_pass(own("a"), at(500));
            assert!(
                matches!(answer, GateReply::Proceed(_) | GateReply::Probe(_)),
                "{case}: {answer:?}"
            );
        }
    }
}

#[test]
fn a_gate_that_closes_forgets_the_stated_time() {
    let (mut gate, pass) = half_open(&[]);
    gate.failed(pass, Some(at(500)), at(3));
    let pass = probe(&mut gate, waiter("a", 0), at(1000));
    gate.succeeded(pass, at(1000));
    let pass = proceed(&mut gate, waiter("a", 0), at(100));
    gate.failed(pass, None, at(100));
    enqueue(&mut gate, &["a", "b"]);
    assert_eq!(wakes(&gate, &["a"]), [at(102)], "the clock was set back");
}

#[test]
fn after_a_stated_time_the_line_moves_in_order() {
    let old = proceed(&mut GateWithQueue::default(), waiter("x", 0), at(0));
    let names = ["a", "b", "c"];
    let table = [
        (opened(&names), [500_000, 502_000, 504_000]),
        (half_open(&names).0, [500_000, 502_000, 504_000]),
        (ramping(&names), [500_000, 500_200, 500_400]),
    ];
    for (mut gate, expected) in table {
        gate.failed(old, Some(at(500)), at(3));
        assert_eq!(wakes(&gate, &names), expected.map(ms));
    }
}

#[test]
fn a_stated_time_that_comes_when_all_is_well_again_holds_nobody() {
    let (mut gate, pass) = half_open(&[]);
    gate.succeeded(pass, at(3));
    gate.failed(pass, Some(at(500)), at(4));
    assert!(gate.is_closed());
    let pass = proceed(&mut gate, waiter("a", 4), at(4));
    gate.failed(pass, None, at(5));
    enqueue(&mut gate, &["a", "b"]);
    assert_eq!(wakes(&gate, &["a"]), [at(7)]);
}

// --- half open ---

#[test]
fn a_probe_in_flight_holds_everyone_else() {
    let (mut gate, _) = half_open(&["a", "b"]);
    for (name, since, expected) in [("a", 0, 62), ("b", 1, 64), ("new", 2, 66)] {
        let held = gate.request_pass(waiter(name, since), at(50));
        assert_eq!(held, GateReply::Hold(at(expected)));
    }
    let (mut gate, _) = half_open(&[]);
    let alone = Waiter {
        own_wake: at(10),
        ..waiter("a", 0)
    };
    assert_eq!(
        gate.request_pass(alone, at(10)),
        GateReply::Hold(at(62)),
        "one too"
    );
}

#[test]
fn when_a_probe_dies_the_next_in_line_probes_and_the_dead_ones_report_changes_nothing() {
    let (mut gate, dead) = half_open(&["a", "b"]);
    let held = gate.request_pass(waiter("a", 0), ms(61_999));
    assert_eq!(held, GateReply::Hold(at(62)));
    let alive = probe(&mut gate, waiter("a", 0), at(62));
    assert!(alive.token > dead.token);

    let before = gate.clone();
    gate.failed(dead, None, at(63));
    assert_eq!(gate, before);
    gate.succeeded(dead, at(63));
    assert_eq!(gate, before);
    assert!(!gate.renew(dead, at(63)));
    assert_eq!(gate, before);
    gate.succeeded(alive, at(64));
    assert_eq!(wakes(&gate, &["b"]), [at(64)]);
}

#[test]
fn a_probe_that_gives_signs_of_life_keeps_its_lease() {
    let (mut gate, pass) = half_open(&["a"]);
    for second in [30, 80, 130] {
        assert!(gate.renew(pass, at(second)));
        let until = at(second + 60);
        assert_eq!(
            gate.request_pass(waiter("a", 0), at(second)),
            GateReply::Hold(until)
        );
    }
    gate.failed(pass, None, at(140));
    assert!(!gate.renew(pass, at(141)), "its probe is over");
}

#[test]
fn a_probe_that_succeeds_with_nobody_in_line_closes_the_gate() {
    let (mut gate, pass) = half_open(&[]);
    gate.succeeded(pass, at(3));
    assert!(gate.is_closed());
    proceed(&mut gate, waiter("a", 3), at(3));
}

// --- the ramp ---

#[test]
fn after_a_probe_succeeded_the_waiters_are_woken_early_and_in_order() {
    let mut gate = ramping(&["a", "b", "c"]);
    let expected = [2000, 2200, 2400].map(ms);
    assert_eq!(wakes(&gate, &["a", "b", "c"]), expected);
    for (name, since, now) in [("a", 0, 2000), ("b", 1, 2200)] {
        let early = gate.request_pass(waiter(name, since), ms(now - 1));
        assert_eq!(early, GateReply::Hold(ms(now)));
        proceed(&mut gate, waiter(name, since), ms(now));
    }
    assert_eq!(wakes(&gate, &["c"]), [ms(2400)], "also when it is alone");
}

#[test]
fn who_comes_a_little_late_pushes_nobody_back() {
    for (comes, next) in [(2000, 2200), (2249, 2200), (2250, 2450), (9000, 9200)] {
        let mut gate = ramping(&["a", "b"]);
        proceed(&mut gate, waiter("a", 0), ms(comes));
        assert_eq!(wakes(&gate, &["b"]), [ms(next)], "{comes}");
    }
}

#[test]
fn the_ramp_grows_with_success_and_the_faster_it_is_the_more_slowly() {
    let mut gate = ramping(&["a", "b"]);
    let pass = proceed(&mut gate, waiter("a", 0), at(2));
    let mut successes = 0;
    for (count, expected) in [
        (0, 5_000),
        (1, 5_500),
        (25, 10_200),
        (415, 25_000),
        (500, 26_600),
    ] {
        while successes < count {
            gate.succeeded(pass, at(2));
            successes += 1;
        }
        let apart = rate(&gate).abs_diff(expected);
        assert!(apart <= 100, "{count}: {} and {expected}", rate(&gate));
    }
    for _ in 0..100_000 {
        gate.succeeded(pass, at(2));
    }
    assert_eq!(rate(&gate), MAX_RATE);
}

#[test]
fn a_refusal_slows_the_ramp_down_and_makes_it_careful() {
    let mut gate = ramping(&["a", "b", "c"]);
    let first = proceed(&mut gate, waiter("a", 0), at(2));
    let second = proceed(&mut gate, waiter("b", 1), at(3));
    gate.failed(first, None, at(4));
    assert_eq!(rate(&gate), 4_375);
    assert_eq!(wakes(&gate, &["c"]), [ms(4229)]);
    gate.failed(second, None, at(4));
    assert_eq!(rate(&gate), 4_375, "it went out at the same rate");
    let third = proceed(&mut gate, waiter("c", 2), at(5));
    gate.join(waiter("c", 2));
    gate.succeeded(third, at(5));
    assert_eq!(rate(&gate), 4_378, "without the refusals: 4,921");
    gate.failed(third, None, at(5));
    assert_eq!(rate(&gate), 4_175, "the next cut is smaller");
    enqueue(&mut gate, &["c", "d", "e"]);
    gate.succeeded(third, at(95));
    assert_eq!(rate(&gate), 4_178, "still carefully");
    gate.succeeded(third, at(96));
    assert_eq!(rate(&gate), 4_208, "the refusal is long ago");
}

#[test]
fn a_refusal_costs_more_when_it_ends_a_search_or_states_a_time() {
    let table = [
        (1_000, [875, 875, 875]),
        (5_000, [4_375, 4_800, 4_375]),
        (25_000, [21_875, 24_800, 24_200]),
        (250_000, [218_750, 249_024, 242_188]),
    ];
    for (rate_before, [first, later, stated]) in table {
        let refused = |earlier: bool, stated: Option<Timestamp>| {
            let mut gate = ramping(&["a", "b"]);
            if earlier {
                let pass = proceed(&mut gate, waiter("a", 0), at(2));
                gate.failed(pass, None, at(2));
            }
            let Stage::Ramp(ramp) = &mut gate.gate.stage else {
                panic!("{gate:?}")
            };
            ramp.rate = rate_before;
            let pass = proceed(&mut gate, waiter("b", 1), at(4));
            gate.failed(pass, stated, at(4));
            rate(&gate)
        };
        assert_eq!(refused(false, None), first);
        assert_eq!(refused(true, None), later);
        assert_eq!(refused(true, Some(at(5))), stated);
    }
}

#[test]
fn one_that_fails_alone_within_the_ramp_keeps_its_own_time() {
    let mut gate = ramping(&["left over"]);
    // It waited for the ramp to begin.
    assert_eq!(wakes(&gate, &["left over"]), [at(2)]);
    let pass = proceed(&mut gate, waiter("left over", 0), at(2));
    gate.succeeded(pass, at(3));
    // Its next call fails, in a ramp with no other caller.
    let own = |seconds| Waiter {
        own_wake: at(seconds),
        ..waiter("left over", 5)
    };
    let pass = proceed(&mut gate, own(5), at(5));
    gate.failed(pass, None, at(5));
    gate.join(own(7));
    assert_eq!(wakes(&gate, &["left over"]), [at(7)]);
    // With other callers, it follows the ramp.
    gate.join(waiter("another", 6));
    assert!(wakes(&gate, &["left over"])[0] < at(6));
}

#[test]
fn three_failures_in_a_row_reopen_and_the_next_ramp_begins_more_slowly() {
    let mut gate = ramping(&["a", "b"]);
    let pass = proceed(&mut gate, waiter("a", 0), at(2));
    gate.join(waiter("a", 0));
    for _ in 0..5 {
        gate.failed(pass, None, at(3));
        gate.failed(pass, None, at(3));
        gate.succeeded(pass, at(3));
    }
    assert!(
        matches!(gate.gate.stage, Stage::Ramp(_)),
        "never three in a row"
    );
    for _ in 0..3 {
        gate.failed(pass, None, at(3));
    }
    assert_eq!(wakes(&gate, &["a", "b"]), [at(5), at(7)], "from the start");
    let pass = probe(&mut gate, waiter("a", 0), at(5));
    gate.succeeded(pass, at(6));
    assert_eq!(rate(&gate), 2_195);
    let pass = proceed(&mut gate, waiter("b", 1), at(6));
    gate.join(waiter("b", 1));
    gate.succeeded(pass, at(6));
    assert_eq!(rate(&gate), 2_395, "quickly at first");
    for _ in 0..100 {
        gate.succeeded(pass, at(6));
    }
    let careful = rate(&gate);
    assert!(
        (3_950..4_390).contains(&careful),
        "near the last pace: {careful}"
    );
    gate.succeeded(pass, at(6));
    assert_eq!(rate(&gate), careful + 3, "then carefully");
}

#[test]
fn however_often_it_is_refused_the_ramp_does_not_stand_still() {
    let mut gate = ramping(&["a", "b"]);
    for second in (10..1000).step_by(10) {
        match gate.request_pass(waiter("a", 0), at(second)) {
            GateReply::Proceed(pass) => gate.failed(pass, None, at(second)),
            GateReply::Probe(pass) => gate.succeeded(pass, at(second)),
            other => panic!("{other:?}"),
        }
        if let Stage::Ramp(ramp) = &gate.gate.stage {
            assert!(ramp.rate >= MIN_RATE);
        }
        gate.join(waiter("a", 0));
    }
    assert_eq!(wakes(&gate, &["a", "b"]), [at(992), at(994)]);
    let pass = probe(&mut gate, waiter("a", 0), at(992));
    gate.succeeded(pass, at(992));
    assert_eq!(rate(&gate), MIN_RATE);
    assert_eq!(wakes(&gate, &["b"]), [at(992)]);
}

#[test]
fn the_gate_closes_when_nobody_had_to_wait_for_half_a_minute() {
    let mut gate = ramping(&["a", "b"]);
    let a = proceed(&mut gate, waiter("a", 0), at(2));
    gate.succeeded(a, at(32));
    assert!(!gate.is_closed(), "one waits");
    let b = proceed(&mut gate, waiter("b", 1), at(31));
    assert!(!gate.is_closed());
    let mut another = gate.clone();

    gate.succeeded(b, ms(31_999));
    assert!(!gate.is_closed(), "a line was there not long ago");
    gate.succeeded(b, at(32));
    assert!(gate.is_closed());
    gate.failed(a, None, at(33));
    assert!(gate.is_closed(), "a report from the ramp is old now");

    // No caller reported, but the next one that asks finds it calm.
    proceed(&mut another, waiter("c", 40), at(40));
    assert!(another.is_closed());
}

#[test]
fn a_line_to_speak_of_keeps_the_ramp_and_lets_it_grow() {
    let names = ["a", "b", "c", "d"];
    // At five calls a second, three queued callers wait for half a second and more.
    for (waiting, grows) in [(2, false), (3, true)] {
        let mut gate = ramping(&names[..=waiting]);
        let pass = proceed(&mut gate, waiter("a", 0), at(2));
        gate.succeeded(pass, at(20));
        assert_eq!(rate(&gate) > 5_000, grows, "{waiting}");
        names.iter().for_each(|name| gate.leave(&id(name)));
        gate.succeeded(pass, at(40));
        assert_eq!(gate.is_closed(), !grows, "{waiting}");
    }
}

#[test]
fn slots_are_finer_than_a_millisecond() {
    let mut gate = ramping(&["a"]);
    let Stage::Ramp(ramp) = &mut gate.gate.stage else {
        panic!("{gate:?}")
    };
    ramp.rate = 700_000;
    let mut calls = 0;
    for millis in 2000..3000 {
        while matches!(
            gate.request_pass(waiter("a", 0), ms(millis)),
            GateReply::Proceed(_)
        ) {
            calls += 1;
        }
    }
    assert_eq!(calls, 700);
}

#[test]
fn how_late_that_is_does_not_depend_on_the_pace() {
    let mut gate = ramping(&["a"]);
    let Stage::Ramp(ramp) = &mut gate.gate.stage else {
        panic!("{gate:?}")
    };
    ramp.rate = 100_000;
    for (late, next) in [(0, 2010), (259, 2020), (270, 2280)] {
        proceed(&mut gate, waiter("a", 0), ms(2000 + late));
        gate.join(waiter("a", 0));
        assert_eq!(wakes(&gate, &["a"]), [ms(next)], "{late}");
    }
}

// --- learning ---

/// A closed gate that carried so many calls a second for a minute.
fn carrying(calls: u64) -> GateWithQueue {
    let mut gate = GateWithQueue::default();
    for n in 0..=60 * calls {
        let now = ms(n * 1000 / calls);
        let pass = proceed(&mut gate, waiter("a", 0), now);
        gate.succeeded(pass, now);
    }
    gate
}

/// Returns the rate at which the ramp begins after so many failed probes.
fn first_rate(mut gate: GateWithQueue, failed_probes: u64) -> Rate {
    let pass = proceed(&mut gate, waiter("a", 0), at(60));
    gate.failed(pass, None, at(60));
    enqueue(&mut gate, &["a", "b"]);
    for n in 0..=failed_probes {
        let now = at(100 + 100 * n);
        let pass = probe(&mut gate, waiter("a", 0), now);
        gate.join(waiter("a", 0));
        if n == failed_probes {
            gate.succeeded(pass, now);
        } else {
            gate.failed(pass, None, now);
        }
    }
    rate(&gate)
}

#[test]
fn the_ramp_begins_by_what_the_provider_carried_before() {
    let table = [
        (1, 875, 750),
        (4, 3_500, 3_000),
        (10, 8_750, 5_000),
        (40, 35_000, 10_000),
        (200, 175_000, 50_000),
    ];
    for (calls, after_a_hiccup, after_an_outage) in table {
        let gate = carrying(calls);
        assert_eq!(first_rate(gate.clone(), 0), after_a_hiccup, "{calls}");
        assert_eq!(first_rate(gate, 1), after_an_outage, "{calls}");
    }
    assert_eq!(
        first_rate(GateWithQueue::default(), 0),
        5_000,
        "nothing is known"
    );
    assert_eq!(first_rate(GateWithQueue::default(), 3), 5_000);
}

#[test]
fn what_several_carried_is_added_up() {
    let mut gate = GateWithQueue::default();
    for n in 0..60 {
        let pass = proceed(&mut gate, waiter("a", 0), at(n));
        gate.succeeded(pass, at(n));
        for calls in [10, 19] {
            gate.gate.record_accepted(calls, at(n));
        }
    }
    assert_eq!(gate.gate.learnt.rate, 30_000);
    let mut open = opened(&["a"]);
    let before = open.clone();
    open.gate.record_accepted(100, at(30));
    assert_eq!(open, before, "only of a closed gate");
}

#[test]
fn what_was_carried_is_forgotten_slowly() {
    let mut gate = carrying(40);
    let learnt = |gate: &GateWithQueue| gate.gate.learnt.rate;
    assert_eq!(learnt(&gate), 40_000);
    for n in 1..=45 {
        let now = at(60 + 10 * n);
        let pass = proceed(&mut gate, waiter("a", 0), now);
        gate.succeeded(pass, now);
    }
    let left = learnt(&gate);
    assert!((18_000..22_000).contains(&left), "after 450 s: {left}");
}

#[test]
fn above_what_is_known_the_ramp_searches_slowly_and_below_it_catches_up() {
    let mut gate = carrying(40);
    let pass = proceed(&mut gate, waiter("a", 0), at(60));
    gate.failed(pass, None, at(60));
    enqueue(&mut gate, &["a", "b", "c", "d"]);
    for second in [100, 200] {
        let pass = probe(&mut gate, waiter("a", 0), at(second));
        gate.join(waiter("a", 0));
        match second {
            100 => gate.failed(pass, None, at(second)),
            _ => gate.succeeded(pass, at(second)),
        }
    }
    let pass = proceed(&mut gate, waiter("a", 0), at(200));
    let mut grow = |successes| {
        (0..successes).for_each(|_| gate.succeeded(pass, at(200)));
        rate(&gate)
    };
    assert_eq!(grow(1), 10_200);
    assert_eq!(grow(129), 36_000);
    assert_eq!(grow(1), 36_010, "a hundredth of a call");
}

#[test]
fn a_failure_that_the_gate_missed_opens_it_if_it_is_closed() {
    let mut gate = GateWithQueue::default();
    gate.gate.record_missed_failure(at(7));
    enqueue(&mut gate, &["a", "b"]);
    assert_eq!(wakes(&gate, &["a"]), [at(9)]);
    for other in [opened(&["a"]), half_open(&["a"]).0, ramping(&["a"])] {
        let mut told = other.clone();
        told.gate.record_missed_failure(at(3));
        assert_eq!(told, other);
    }
}

// --- deadlines, and bounded memory ---

#[test]
fn nobody_is_held_past_its_deadline() {
    let gates = [
        ("open", opened(&["z"])),
        ("open, alone", opened(&[])),
        ("half open", half_open(&["z"]).0),
        ("ramp", {
            let mut gate = ramping(&["z"]);
            proceed(&mut gate, waiter("z", 0), at(2));
            gate
        }),
    ];
    for (case, mut gate) in gates {
        let hurried = Waiter {
            deadline: Some(ms(2100)),
            ..waiter("zz", 0)
        };
        let waiting = gate.waiting();
        let held = gate.request_pass(hurried.clone(), ms(1500));
        assert_eq!(held, GateReply::Hold(ms(2100)), "{case}");
        assert_eq!(gate.wake_time(&id("zz")), Some(ms(2100)), "{case}");
        let late = gate.request_pass(hurried, ms(2100));
        assert_eq!(
            (late, gate.waiting()),
            (GateReply::DeadlineExceeded, waiting),
            "{case}"
        );
    }
    let late = Waiter {
        deadline: Some(at(1)),
        ..waiter("a", 0)
    };
    assert_eq!(
        GateWithQueue::default().request_pass(late, at(1)),
        GateReply::DeadlineExceeded
    );
}

#[test]
fn a_gate_survives_a_round_trip_through_text_in_every_stage() {
    let mut stated = opened(&["a"]);
    stated.failed(
        proceed(&mut GateWithQueue::default(), waiter("x", 0), at(0)),
        Some(at(9)),
        at(1),
    );
    for gate in [
        GateWithQueue::default(),
        opened(&["a", "b"]),
        stated,
        half_open(&["a"]).0,
        ramping(&["a", "b"]),
    ] {
        let text = serde_json::to_string(&gate.gate).unwrap();
        let read: Gate = serde_json::from_str(&text).unwrap();
        assert_eq!(read, gate.gate, "{text}");
        assert!(text.len() < 600, "a small state: {text}");
    }
    let (_, pass) = half_open(&[]);
    let text = serde_json::to_string(&pass).unwrap();
    assert_eq!(serde_json::from_str::<Pass>(&text).unwrap(), pass);
}

// --- all sequences ---

#[derive(Clone, Debug)]
enum Op {
    Ask(Waiter),
    Wait(Waiter),
    Leave(WaiterId),
    Failed(usize, Option<Timestamp>),
    Succeeded(usize),
    Renew(usize),
}

/// Operations of a few callers, with times from `times`.
fn any_op(times: BoxedStrategy<Timestamp>) -> impl Strategy<Value = Op> {
    // Some callers came at the same time.
    let callers = prop::sample::select(vec![("a", 0), ("b", 3), ("c", 3), ("d", 40), ("e", 2)]);
    let drawn = (callers, times.clone(), prop::option::of(times.clone()));
    let waiter = drawn.prop_map(|((name, since), own_wake, deadline)| Waiter {
        own_wake,
        deadline,
        ..waiter(name, since)
    });
    prop_oneof![
        8 => waiter.clone().prop_map(Op::Ask),
        2 => waiter.prop_map(Op::Wait),
        1 => "[a-e]".prop_map(|name| Op::Leave(WaiterId(name))),
        3 => (0_usize..4, prop::option::weighted(0.3, times)).prop_map(|(n, stated)| Op::Failed(n, stated)),
        3 => (0_usize..4).prop_map(Op::Succeeded),
        1 => (0_usize..4).prop_map(Op::Renew),
    ]
}

/// Plays operations against a gate and keeps the facts for its invariants.
struct InvariantChecker {
    gate: GateWithQueue,
    /// The newest last.
    passes: Vec<Pass>,
    lease: Option<(u64, Timestamp)>,
    stated: Timestamp,
}

impl InvariantChecker {
    fn new(lease: Duration, probe_for_one: bool) -> Self {
        Self {
            gate: GateWithQueue::new(Config {
                probe_for_one,
                lease,
            }),
            passes: Vec::new(),
            lease: None,
            stated: Timestamp::default(),
        }
    }

    fn pass(&self, age: usize) -> Option<Pass> {
        self.passes.iter().rev().nth(age).copied()
    }

    fn play(&mut self, op: Op, now: Timestamp) -> Result<(), TestCaseError> {
        let token = self.gate.gate.token;
        match op {
            Op::Ask(waiter) => self.ask(waiter, now)?,
            Op::Wait(waiter) => self.gate.join(waiter),
            Op::Leave(id) => self.gate.leave(&id),
            Op::Failed(age, stated) => {
                if let Some(pass) = self.pass(age) {
                    if pass.token == token {
                        self.stated = self.stated.max(stated.unwrap_or_default());
                    }
                    self.lease = self.lease.filter(|(holder, _)| *holder != pass.token);
                    self.gate.failed(pass, stated, now);
                }
            }
            Op::Succeeded(age) => {
                if let Some(pass) = self.pass(age) {
                    self.lease = self.lease.filter(|(holder, _)| *holder != pass.token);
                    self.gate.succeeded(pass, now);
                }
            }
            Op::Renew(age) => {
                if let Some(pass) = self.pass(age) {
                    let valid = self.lease.is_some_and(|(holder, _)| holder == pass.token);
                    prop_assert_eq!(self.gate.renew(pass, now), valid);
                    if valid {
                        self.lease = Some((pass.token, now + self.gate.gate.config.lease));
                    }
                }
            }
        }
        prop_assert!(self.gate.gate.token >= token, "tokens never fall");
        self.check_queue_order()
    }

    fn ask(&mut self, waiter: Waiter, now: Timestamp) -> Result<(), TestCaseError> {
        let deadline = waiter.deadline.unwrap_or(Timestamp::LATEST);
        match self.gate.request_pass(waiter, now) {
            GateReply::Proceed(pass) => {
                prop_assert_eq!(self.lease, None, "everyone waits for the probe");
                prop_assert!(now >= self.stated);
                self.passes.push(pass);
            }
            GateReply::Probe(pass) => {
                let expired = self.lease.is_none_or(|(_, expires)| now >= expires);
                prop_assert!(expired, "two probes at {now}: {:?}", self.lease);
                prop_assert!(now >= self.stated);
                self.lease = Some((pass.token, now + self.gate.gate.config.lease));
                self.passes.push(pass);
            }
            GateReply::Hold(until) => prop_assert!(until > now && until <= deadline),
            GateReply::DeadlineExceeded => prop_assert!(now >= deadline),
        }
        Ok(())
    }

    fn check_queue_order(&self) -> Result<(), TestCaseError> {
        let line = &self.gate.queue;
        let key = |waiter: &Waiter| (waiter.since, waiter.id.clone());
        prop_assert!(
            line.iter().is_sorted_by(|a, b| key(a) < key(b)),
            "in order, each once"
        );
        for waiter in line.iter() {
            prop_assert!(self.gate.wake_time(&waiter.id).is_some());
        }
        Ok(())
    }
}

fn usual_times() -> BoxedStrategy<Timestamp> {
    (0_u64..300_000).prop_map(ms).boxed()
}

fn extreme_times() -> BoxedStrategy<Timestamp> {
    prop_oneof![
        Just(ms(0)),
        Just(ms(1)),
        Just(Timestamp::LATEST),
        Just(ms(Timestamp::LATEST.as_millis() - 1)),
        any::<u64>().prop_map(ms),
        (0_u64..300_000).prop_map(ms),
    ]
    .boxed()
}

fn extreme_durations() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(Duration::ZERO),
        Just(Duration::MAX),
        any::<u64>().prop_map(Duration::from_millis),
        Just(Duration::from_secs(60)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn one_probe_at_a_time_and_none_before_a_stated_time(
        probe_for_one in any::<bool>(),
        ops in prop::collection::vec((any_op(usual_times()), 0_u64..6_000), 1..120),
    ) {
        let mut witness = InvariantChecker::new(Duration::from_secs(20), probe_for_one);
        let mut now = 0;
        for (op, pause) in ops {
            now += pause;
            witness.play(op, ms(now))?;
        }
    }

    #[test]
    fn no_time_and_no_duration_is_too_much(
        lease in extreme_durations(),
        ops in prop::collection::vec((any_op(extreme_times()), extreme_times()), 1..60),
    ) {
        let mut witness = InvariantChecker::new(lease, false);
        let mut clock = ops.iter().map(|(_, time)| *time).collect::<Vec<_>>();
        clock.sort();
        for ((op, _), now) in ops.into_iter().zip(clock) {
            witness.play(op, now)?;
        }
    }

    #[test]
    fn a_clock_that_jumps_breaks_nothing(
        lease in extreme_durations(),
        ops in prop::collection::vec((any_op(extreme_times()), extreme_times()), 1..60),
    ) {
        let mut witness = InvariantChecker::new(lease, true);
        for (op, now) in ops {
            match op {
                Op::Ask(waiter) => {
                    let deadline = waiter.deadline.unwrap_or(Timestamp::LATEST);
                    match witness.gate.request_pass(waiter, now) {
                        GateReply::Proceed(pass) | GateReply::Probe(pass) => witness.passes.push(pass),
                        GateReply::Hold(until) => prop_assert!(until > now && until <= deadline),
                        GateReply::DeadlineExceeded => prop_assert!(now >= deadline),
                    }
                }
                Op::Renew(age) => {
                    witness.pass(age).map(|pass| witness.gate.renew(pass, now));
                }
                other => witness.play(other, now)?,
            }
        }
    }
}

// --- many agents, one outage ---

const CAPACITY: u64 = 25;
const OUTAGE: u64 = 30 * 60 * 1000;

/// A scenario, all times in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Scenario {
    agents: u64,
    /// The time between the first calls of two agents: longer than any response takes.
    apart: u64,
    outage: u64,
    /// The number of calls that the provider accepts at once after a quiet time.
    burst: u64,
    /// The shortest and the longest time of a response.
    latency: (u64, u64),
    /// The greatest delay of an agent.
    late: u64,
    /// The interval at which an agent reads its wake time; 0 when it learns of each change at once.
    reads_every: u64,
}

const QUICK: Scenario = Scenario {
    agents: 500,
    apart: 3000,
    outage: OUTAGE,
    burst: CAPACITY,
    latency: (50, 50),
    late: 0,
    reads_every: 0,
};
const SLOW: Scenario = Scenario {
    latency: (500, 2000),
    ..QUICK
};

#[derive(Debug)]
struct Measurements {
    useless: usize,
    most_probes_in_flight: usize,
    first_success: u64,
    drained: u64,
    peak: usize,
    calls: usize,
}

struct Agent {
    waiter: Waiter,
    retries: u32,
    call: Option<Call>,
}

struct Call {
    pass: Pass,
    probe: bool,
    /// Probes for others are charged to the gate.
    charged: bool,
    accepted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum AgentEvent {
    Response,
    Poll,
}

struct Simulation {
    setting: Scenario,
    overnight: Policy,
    gate: GateWithQueue,
    agents: Vec<Agent>,
    upcoming: BinaryHeap<Reverse<(u64, usize, AgentEvent)>>,
    /// The number of calls that the provider accepts at once, in thousandths of a call, and since when.
    burst_left: (u64, u64),
    sent: Vec<u64>,
    successes: Vec<u64>,
    most_probes_in_flight: usize,
    chance: u64,
}

impl Simulation {
    fn new(setting: Scenario) -> Self {
        let agent = |n: u64| Agent {
            waiter: Waiter {
                id: WaiterId(n.to_string()),
                since: ms(n * setting.apart),
                own_wake: ms(n * setting.apart),
                deadline: None,
                batch: None,
            },
            retries: 0,
            call: None,
        };
        let agents: Vec<_> = (0..setting.agents).map(agent).collect();
        let first_reading = |(n, agent): (usize, &Agent)| {
            Reverse((agent.waiter.since.as_millis(), n, AgentEvent::Poll))
        };
        Self {
            setting,
            overnight: Policy::named("overnight").unwrap(),
            gate: GateWithQueue::default(),
            upcoming: agents.iter().enumerate().map(first_reading).collect(),
            agents,
            burst_left: (setting.burst * 1000, setting.outage),
            sent: Vec::new(),
            successes: Vec::new(),
            most_probes_in_flight: 0,
            chance: 1,
        }
    }

    fn run(mut self) -> Measurements {
        while self.successes.len() < self.agents.len() {
            let comes = self.upcoming.peek().map_or(u64::MAX, |next| next.0.0);
            match self.next_to_wake() {
                Some((now, n)) if now < comes => self.ask(n, now),
                _ => match self.upcoming.pop().unwrap().0 {
                    (now, n, AgentEvent::Response) => self.on_response(n, now),
                    (now, n, AgentEvent::Poll) => self.poll(n, now),
                },
            }
        }
        self.numbers()
    }

    /// Returns the agent that asks next when every agent follows the gate at once. Of an open gate's queue, the first
    /// caller is the first to be woken.
    fn next_to_wake(&self) -> Option<(u64, usize)> {
        if self.setting.reads_every > 0 {
            return None;
        }
        let woken = if self.gate.is_closed() { usize::MAX } else { 1 };
        let woken = self.gate.queue.iter().take(woken);
        let wakes = woken.map(|waiter| {
            let wake = self.gate.wake_time(&waiter.id).unwrap().as_millis();
            let n: usize = waiter.id.0.parse().unwrap();
            (wake + n as u64 * 7 % (self.setting.late + 1), n)
        });
        wakes.min()
    }

    fn poll(&mut self, n: usize, now: u64) {
        match self.gate.wake_time(&self.agents[n].waiter.id) {
            Some(wake) if wake > ms(now) => self.schedule_poll(n, now, wake),
            _ => self.ask(n, now),
        }
    }

    fn schedule_poll(&mut self, n: usize, now: u64, wake: Timestamp) {
        if self.setting.reads_every > 0 {
            let next = wake.as_millis().min(now + self.setting.reads_every);
            self.upcoming.push(Reverse((next, n, AgentEvent::Poll)));
        }
    }

    fn ask(&mut self, n: usize, now: u64) {
        let (pass, probe) = match self
            .gate
            .request_pass(self.agents[n].waiter.clone(), ms(now))
        {
            GateReply::Proceed(pass) => (pass, false),
            GateReply::Probe(pass) => (pass, true),
            GateReply::Hold(until) => return self.schedule_poll(n, now, until),
            GateReply::DeadlineExceeded => panic!("nobody has a deadline"),
        };
        self.agents[n].call = Some(Call {
            pass,
            probe,
            charged: !probe || self.gate.waiting() == 0,
            accepted: self.provider_accepts(now),
        });
        let calls = self.agents.iter().filter_map(|agent| agent.call.as_ref());
        let probing = calls.filter(|call| call.probe).count();
        self.most_probes_in_flight = self.most_probes_in_flight.max(probing);
        self.sent.push(now);
        let answered = now + self.latency();
        self.upcoming
            .push(Reverse((answered, n, AgentEvent::Response)));
    }

    fn on_response(&mut self, n: usize, now: u64) {
        let agent = &mut self.agents[n];
        let call = agent.call.take().unwrap();
        if call.accepted {
            self.successes.push(now);
            self.gate.succeeded(call.pass, ms(now));
            return;
        }
        self.gate.failed(call.pass, None, ms(now));
        if call.charged {
            agent.waiter.own_wake = ms(now) + self.overnight.delay_for(agent.retries).unwrap();
            agent.retries += 1;
        }
        self.gate.join(agent.waiter.clone());
        self.poll(n, now);
    }

    fn provider_accepts(&mut self, now: u64) -> bool {
        if now < self.setting.outage {
            return false;
        }
        let (room, since) = self.burst_left;
        let room = (room + (now - since) * CAPACITY).min(self.setting.burst * 1000);
        let accepts = room >= 1000;
        self.burst_left = (if accepts { room - 1000 } else { room }, now);
        accepts
    }

    fn latency(&mut self) -> u64 {
        self.chance = self
            .chance
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let (shortest, longest) = self.setting.latency;
        shortest + (self.chance >> 33) % (longest - shortest + 1)
    }

    fn numbers(&self) -> Measurements {
        let recovery = self.setting.outage;
        let after = self.sent.iter().filter(|sent| **sent >= recovery);
        let after: Vec<u64> = after.copied().collect();
        let second_from = |start: &u64| {
            let second = *start..start + 1000;
            after.iter().filter(|sent| second.contains(sent)).count()
        };
        Measurements {
            useless: self.sent.len() - after.len(),
            most_probes_in_flight: self.most_probes_in_flight,
            first_success: self.successes[0] - recovery,
            drained: self.successes[self.successes.len() - 1] - recovery,
            peak: after.iter().map(second_from).max().unwrap(),
            calls: after.len(),
        }
    }
}

/// Runs a scenario and checks it against the promises of the design.
fn run_and_check(setting: Scenario) -> Measurements {
    let numbers = Simulation::new(setting).run();
    let Scenario { agents, outage, .. } = setting;
    println!("{setting:?}: {numbers:?}");
    assert_eq!(numbers.most_probes_in_flight, 1);
    assert!(numbers.useless as u64 <= outage / 15_000 + 30);
    assert!(numbers.first_success <= 20_000);
    assert!(numbers.drained <= 1500 * agents / CAPACITY + 20_000);
    assert!(numbers.peak as u64 * 10 <= CAPACITY * 12);
    assert!(numbers.calls as u64 * 100 <= agents * 105);
    numbers
}

#[test]
fn five_hundred_agents_outlast_half_an_hour() {
    for setting in [QUICK, SLOW] {
        let useless = run_and_check(setting).useless;
        assert!((100..=130).contains(&useless), "{useless}");
    }
}

#[test]
fn the_number_of_probes_does_not_grow_with_the_number_of_agents() {
    for setting in [QUICK, SLOW] {
        let few = Scenario {
            agents: 50,
            ..setting
        };
        let few = Simulation::new(few).run().useless;
        let many = Simulation::new(setting).run().useless;
        println!("50 agents: {few} useless calls, 500 agents: {many}");
        assert!(many.abs_diff(few) <= 2);
    }
}

#[test]
fn the_promises_hold_wherever_between_two_probes_the_provider_recovers() {
    for after in (0..17_000).step_by(850) {
        for setting in [QUICK, SLOW] {
            run_and_check(Scenario {
                apart: 200,
                outage: 120_000 + after,
                ..setting
            });
        }
    }
}

#[test]
fn the_promises_hold_with_little_room_for_bursts_and_with_late_agents() {
    for (burst, late, reads_every) in [(5, 0, 0), (25, 20, 0), (5, 20, 0), (25, 0, 1000)] {
        for setting in [QUICK, SLOW] {
            run_and_check(Scenario {
                apart: 200,
                outage: 125_000,
                burst,
                late,
                reads_every,
                ..setting
            });
        }
    }
}

#[test]
fn a_line_that_is_long_enough_to_meet_refusals_keeps_near_the_providers_pace() {
    for burst in [5, 25] {
        for setting in [QUICK, SLOW] {
            let numbers = run_and_check(Scenario {
                agents: 1000,
                apart: 100,
                outage: 125_000,
                burst,
                ..setting
            });
            assert!(numbers.calls > 1000, "nothing was refused");
        }
    }
}

#[test]
fn a_crowd_counts_for_all_of_its_calls_and_is_probed_for_even_when_it_is_one() {
    let speaker = |crowd| Waiter {
        batch: Some(crowd),
        own_wake: at(9_000),
        ..waiter("speaker", 0)
    };
    let (mut gate, mut line) = (Gate::default(), Queue::default());
    gate.record_missed_failure(at(0));
    let held = line.request_pass(&mut gate, speaker(1), at(1));
    assert_eq!(held, GateReply::Hold(at(2)), "its own time does not count");
    line.join(waiter("other", 5));
    line.join(speaker(40));
    assert_eq!(line.len(), 41);
    assert!(matches!(
        line.request_pass(&mut gate, speaker(40), at(2)),
        GateReply::Probe(_)
    ));
    assert_eq!(line.len(), 40, "the rest of the crowd stays");
    line.leave(&speaker(39));
    assert_eq!(line.len(), 1);
}
