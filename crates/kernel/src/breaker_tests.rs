use super::*;
use proptest::prelude::*;

const HOUR: Duration = Duration::from_secs(3600);

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

fn failure(class: Class, message: &str) -> Fingerprint {
    Fingerprint::new("build", class, message)
}

fn broken() -> Fingerprint {
    failure(Class::TestFailure, "--- FAIL: TestA")
}

/// A breaker that has tripped at second 2.
fn tripped() -> Breaker {
    let mut breaker = Breaker::default();
    for second in 0..3 {
        breaker.record_failure(broken(), at(second));
    }
    breaker
}

#[test]
fn the_third_identical_failure_trips() {
    let mut breaker = Breaker::default();
    assert_eq!(breaker.record_failure(broken(), at(0)), None);
    assert_eq!(breaker.record_failure(broken(), at(1)), None);
    let trip = breaker.record_failure(broken(), at(2)).unwrap();
    assert_eq!((trip.count, trip.until), (3, at(2 + 1800)));
    assert_eq!(
        breaker.check("build", at(3)),
        BreakerDecision::Refused(trip)
    );
    assert_eq!(breaker.check("another step", at(3)), BreakerDecision::Run);
}

#[test]
fn only_identical_failures_count_together() {
    let mut breaker = Breaker::default();
    for message in ["a", "b", "c", "a", "b", "c"] {
        assert_eq!(
            breaker.record_failure(failure(Class::TestFailure, message), at(0)),
            None
        );
    }
    for class in [Class::Deterministic, Class::ContractFailure] {
        assert_eq!(breaker.record_failure(failure(class, "d"), at(0)), None);
    }
}

#[test]
fn default_tracked_classes_trip_and_others_do_not() {
    let table = [
        (Class::Deterministic, true),
        (Class::ContractFailure, true),
        (Class::TestFailure, true),
        (Class::Transient, false),
        (Class::BudgetExhausted, false),
        (Class::Canceled, false),
    ];
    for (class, tracked) in table {
        let mut breaker = Breaker::default();
        let trips = (0..10)
            .filter_map(|n| breaker.record_failure(failure(class, "same"), at(n)))
            .count();
        assert_eq!(trips > 0, tracked, "{class:?}");
    }
}

#[test]
fn sightings_older_than_the_window_are_forgotten() {
    let config = Config {
        window: Duration::from_secs(60),
        ..Config::default()
    };
    let mut breaker = Breaker::new(config);
    for second in [0, 40, 80, 120, 160] {
        assert_eq!(
            breaker.record_failure(broken(), at(second)),
            None,
            "at most two within any minute"
        );
    }
    assert!(breaker.record_failure(broken(), at(170)).is_some());
}

#[test]
fn success_resets_the_count() {
    let mut breaker = Breaker::default();
    for round in 0..5 {
        breaker.record_failure(broken(), at(round));
        breaker.record_failure(broken(), at(round));
        breaker.record_success("build");
    }
    assert_eq!(breaker.check("build", at(9)), BreakerDecision::Run);
}

#[test]
fn one_trial_runs_after_the_cooldown() {
    let mut breaker = tripped();
    assert!(matches!(
        breaker.check("build", at(1801)),
        BreakerDecision::Refused(_)
    ));
    assert_eq!(breaker.check("build", at(1802)), BreakerDecision::Trial);
    assert!(
        matches!(
            breaker.check("build", at(1803)),
            BreakerDecision::Refused(_)
        ),
        "one trial at a time"
    );
}

#[test]
fn trial_with_same_failure_trips_again_at_once() {
    let config = Config {
        window: Duration::from_secs(60),
        ..Config::default()
    };
    let mut breaker = Breaker::new(config.with_cooldown(HOUR));
    for second in 0..3 {
        breaker.record_failure(broken(), at(second));
    }
    assert_eq!(breaker.check("build", at(4000)), BreakerDecision::Trial);
    let trip = breaker.record_failure(broken(), at(4000)).unwrap();
    assert_eq!(
        (trip.count, trip.until),
        (1, at(7600)),
        "the old sightings have left the window"
    );
}

#[test]
fn trial_success_or_other_failure_closes_breaker() {
    let mut breaker = tripped();
    breaker.check("build", at(2000));
    breaker.record_success("build");
    assert_eq!(breaker.check("build", at(2000)), BreakerDecision::Run);

    let mut breaker = tripped();
    breaker.check("build", at(2000));
    assert_eq!(
        breaker.record_failure(failure(Class::TestFailure, "another"), at(2000)),
        None
    );
    assert_eq!(breaker.check("build", at(2000)), BreakerDecision::Run);
}

#[test]
fn failed_trial_allows_another_after_its_cooldown() {
    let mut breaker = tripped();
    assert_eq!(breaker.check("build", at(2000)), BreakerDecision::Trial);
    breaker.record_failure(broken(), at(2000));
    assert!(matches!(
        breaker.check("build", at(3799)),
        BreakerDecision::Refused(_)
    ));
    assert_eq!(breaker.check("build", at(3800)), BreakerDecision::Trial);
}

#[test]
fn late_other_failure_does_not_close_tripped_breaker() {
    let mut breaker = tripped();
    breaker.record_failure(failure(Class::TestFailure, "from an earlier visit"), at(3));
    assert!(matches!(
        breaker.check("build", at(4)),
        BreakerDecision::Refused(_)
    ));
}

#[test]
fn trial_with_untracked_failure_can_be_repeated() {
    let mut breaker = tripped();
    assert_eq!(breaker.check("build", at(2000)), BreakerDecision::Trial);
    assert_eq!(
        breaker.record_failure(failure(Class::Transient, "429"), at(2000)),
        None
    );
    assert_eq!(breaker.check("build", at(2001)), BreakerDecision::Trial);
}

#[test]
fn impossible_configurations_are_refused() {
    let limit = NonZeroU32::new(3).unwrap();
    assert_eq!(
        Config::new(limit, &[Class::Canceled]),
        Err(Error::CanceledTracked)
    );
    assert_eq!(
        Config::new(NonZeroU32::MAX, &[Class::Transient]),
        Err(Error::LimitTooHigh)
    );
    assert!(Config::new(limit, &[Class::Transient]).is_ok());
}

proptest! {
    #[test]
    fn breaker_trips_exactly_at_limit_within_window(
        limit in 1_u32..6,
        failures in proptest::collection::vec((0_usize..3, 0_u64..50), 1..40),
    ) {
        let window = 100;
        let config = Config::new(NonZeroU32::new(limit).unwrap(), &[Class::TestFailure]).unwrap();
        let mut breaker = Breaker::new(Config { window: Duration::from_secs(window), ..config });
        let (mut now, mut seen, mut tripped) = (0, Vec::new(), false);
        for (kind, gap) in failures {
            now += gap;
            seen.push((kind, now));
            let recent = seen.iter().filter(|(k, t)| *k == kind && now - t < window).count();
            let trip = breaker.record_failure(failure(Class::TestFailure, ["a", "b", "c"][kind]), at(now));
            tripped |= recent >= limit as usize;
            prop_assert_eq!(trip.is_some(), tripped);
        }
    }

    #[test]
    fn memory_stays_bounded(messages in proptest::collection::vec("[a-z]{1,4}", 0..300)) {
        let mut breaker = Breaker::default();
        for message in messages {
            breaker.record_failure(failure(Class::Deterministic, &message), at(0));
        }
        prop_assert!(breaker.steps.values().all(|step| step.sightings.len() <= MAX_FINGERPRINTS));
    }
}
