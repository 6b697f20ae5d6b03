//! Tables of exceeded limits and their times, and a property test against a model that counts milliseconds.

use super::*;
use proptest::prelude::{Strategy, prop_assert_eq, prop_oneof, proptest};

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(1_794_780_000_000 + seconds * 1000)
}

fn watch(stall: Option<u64>, timeout: Option<u64>) -> WatchState {
    let limits = Limits {
        stall: stall.map(Duration::from_secs),
        timeout: timeout.map(Duration::from_secs),
    };
    WatchState::new(limits, at(0))
}

fn activity() -> WatchEvent {
    WatchEvent::Activity("read".to_owned())
}

fn progress() -> WatchEvent {
    WatchEvent::Progress("text".to_owned())
}

/// Looks every second, and sends each observation at its second: returns the first exceeded limit, and its time.
fn first(mut watch: WatchState, signs: &[(u64, WatchEvent)]) -> (u64, Cause, String) {
    for second in 0.. {
        for (_, sign) in signs.iter().filter(|(at, _)| *at == second) {
            watch.record(at(second), sign.clone());
        }
        watch.advance(at(second));
        if let Some(problem) = watch.expired() {
            return (second, problem.cause, problem.message);
        }
    }
    unreachable!("it is watched for ever");
}

const SILENCE: (Cause, &str) = (Cause::Stalled, "no activity for 30s");
const NO_PROGRESS: (Cause, &str) = (Cause::Stalled, "activity, but no progress for 30s");
const TIMED_OUT: (Cause, &str) = (
    Cause::Timeout,
    "it has worked for longer than its timeout of 1m",
);

#[test]
fn each_limit_expires_on_time_with_its_own_message() {
    let every_5 = |sign: fn() -> WatchEvent| (0..200).step_by(5).map(|at| (at, sign())).collect();
    type Row = (
        WatchState,
        Vec<(u64, WatchEvent)>,
        u64,
        (Cause, &'static str),
    );
    let stall = || watch(Some(30), None);
    let both = || watch(Some(30), Some(60));
    let reads_last = vec![(10, progress()), (20, activity())];
    let table: [Row; 7] = [
        (stall(), vec![], 30, SILENCE),
        (stall(), vec![(10, progress())], 40, SILENCE),
        (stall(), every_5(activity), 30, NO_PROGRESS),
        (stall(), reads_last, 40, NO_PROGRESS),
        (both(), every_5(progress), 60, TIMED_OUT),
        (watch(None, Some(60)), vec![], 60, TIMED_OUT),
        (watch(Some(60), Some(60)), vec![], 60, TIMED_OUT),
    ];
    for (row, (watch, signs, second, (cause, message))) in table.into_iter().enumerate() {
        let expected = (second, cause, message.to_owned());
        assert_eq!(first(watch, &signs), expected, "row {row}");
    }
}

#[test]
fn pauses_do_not_nest_and_progress_does_not_end_them() {
    let twice = [
        (20, WatchEvent::Paused),
        (30, WatchEvent::Paused),
        (120, WatchEvent::Resumed),
        (121, WatchEvent::Resumed),
    ];
    let heard = [
        (20, WatchEvent::Paused),
        (90, progress()),
        (120, WatchEvent::Resumed),
    ];
    let (cause, message) = SILENCE;
    let found = first(watch(Some(30), Some(60)), &twice);
    assert_eq!(found, (130, cause, message.to_owned()));
    let found = first(watch(Some(30), None), &heard);
    assert_eq!(found, (150, cause, message.to_owned()));
}

#[test]
fn machine_sleep_is_not_a_stall() {
    let mut watch = watch(Some(1800), Some(7200));
    for minute in 1..10 {
        watch.advance(at(60 * minute));
    }
    let lid_opens = 540 + 8 * 3600;
    watch.advance(at(lid_opens));
    assert_eq!(watch.expired().map(|problem| problem.message), None);
    let (mut now, mut problem) = (lid_opens, None);
    while problem.is_none() {
        now += 60;
        watch.advance(at(now));
        problem = watch.expired();
    }
    // At most two look intervals of the sleep count.
    assert_eq!(now - lid_opens, 1800 - 540 - 120);
    assert_eq!(problem.unwrap().cause, Cause::Stalled);
}

#[test]
fn clock_set_back_neither_ends_nor_extends_limits() {
    let mut watch = watch(Some(30), None);
    watch.advance(at(7));
    watch.advance(at(14));
    let back = |second: u64| Timestamp::from_millis(second * 1000);
    watch.advance(back(100));
    assert_eq!(watch.worked, Duration::from_secs(14));
    watch.advance(back(107));
    watch.advance(back(114));
    assert!(watch.expired().is_none());
    watch.advance(back(116));
    assert!(watch.expired().is_some());
}

#[test]
fn last_ten_events_are_kept_and_repeats_merged() {
    let mut watch = watch(None, None);
    for second in 0..20 {
        let name = format!("tool {second}");
        watch.record(at(second), WatchEvent::Activity(name));
    }
    for second in 20..520 {
        watch.record(at(second), progress());
    }
    watch.record(at(600), WatchEvent::Paused);
    let events = watch.last_events();
    assert_eq!(events.len(), 10);
    let last: Vec<_> = events.iter().map(|event| &event[25..]).collect();
    assert_eq!(
        last[7..],
        ["tool 19", "text (500 times)", "waits for the provider"]
    );
    assert_eq!(last[0], "tool 12");
}

#[test]
fn recorded_events_are_bounded_and_redacted() {
    let mut watch = watch(None, None);
    let secret = format!("sk-{}", "a1B2".repeat(10));
    watch.record(at(0), WatchEvent::Activity("x".repeat(100_000)));
    watch.record(
        at(1),
        WatchEvent::Activity(format!("\u{1b}[31mcurl {secret}")),
    );
    let events = watch.last_events();
    assert!(events[0].len() < 300);
    assert_eq!(&events[1][25..], "curl [secret]");
}

#[test]
fn zero_and_maximum_limits_work() {
    for limit in [Duration::ZERO, Duration::from_nanos(1)] {
        let limits = Limits {
            stall: Some(limit),
            timeout: None,
        };
        let mut watch = WatchState::new(limits, at(0));
        assert!(
            watch
                .next_check_in()
                .is_some_and(|look| look >= Duration::from_nanos(999_999))
        );
        watch.advance(at(1));
        assert!(watch.expired().is_some());
    }
    let limits = Limits {
        stall: Some(Duration::MAX),
        timeout: Some(Duration::MAX),
    };
    let mut watch = WatchState::new(limits, at(0));
    watch.record(at(10), progress());
    watch.advance(Timestamp::LATEST);
    assert!(watch.expired().is_none());
    assert_eq!(watch.next_check_in(), Some(MAX_CHECK_INTERVAL));
}

/// A reference model that counts millisecond by millisecond.
#[derive(Default)]
struct ReferenceModel {
    worked: u64,
    silent: u64,
    idle: u64,
    is_paused: bool,
}

impl ReferenceModel {
    fn pass(&mut self, millis: u64) {
        if !self.is_paused {
            self.worked += millis;
            self.silent += millis;
            self.idle += millis;
        }
    }

    fn sign(&mut self, sign: &WatchEvent) {
        match sign {
            WatchEvent::Activity(_) => self.silent = 0,
            WatchEvent::Progress(_) => (self.silent, self.idle) = (0, 0),
            WatchEvent::Paused => self.is_paused = true,
            WatchEvent::Resumed => self.is_paused = false,
        }
    }
}

fn any_sign() -> impl Strategy<Value = Option<WatchEvent>> {
    prop_oneof![
        proptest::strategy::Just(None),
        proptest::strategy::Just(Some(activity())),
        proptest::strategy::Just(Some(progress())),
        proptest::strategy::Just(Some(WatchEvent::Paused)),
        proptest::strategy::Just(Some(WatchEvent::Resumed)),
    ]
}

proptest! {
    #[test]
    fn random_events_match_reference_model(
        happenings in proptest::collection::vec((0u64..15_000, any_sign()), 0..60),
    ) {
        let (stall, timeout) = (30_000, 100_000);
        let mut watch = watch(Some(30), Some(100));
        let (mut counted, mut now) = (ReferenceModel::default(), at(0));
        for (wait, sign) in happenings {
            now = now + Duration::from_millis(wait);
            counted.pass(wait);
            match sign {
                Some(sign) => {
                    counted.sign(&sign);
                    watch.record(now, sign);
                }
                None => watch.advance(now),
            }
            let is_over = counted.worked >= timeout || counted.silent >= stall || counted.idle >= stall;
            prop_assert_eq!(watch.expired().is_some(), is_over);
            prop_assert_eq!(watch.next_check_in().is_none(), counted.is_paused);
            if !is_over && let Some(look) = watch.next_check_in() {
                let left = (timeout - counted.worked).min(stall - counted.silent.max(counted.idle));
                prop_assert_eq!(look.as_millis(), u128::from(left.min(7_500)));
            }
        }
    }
}
