use super::*;
use proptest::prelude::*;

fn named(name: &str) -> Policy {
    Policy::named(name).unwrap()
}

fn millis(policy: &Policy) -> Vec<u128> {
    policy.delays(100).iter().map(Duration::as_millis).collect()
}

#[test]
fn overnight_retries_21_times_over_27105_seconds() {
    let delays = named("overnight").delays(1000);
    assert_eq!(delays.len(), 21);
    assert_eq!(delays.iter().sum::<Duration>(), Duration::from_secs(27_105));
    let head: Vec<u64> = delays[..9].iter().map(Duration::as_secs).collect();
    assert_eq!(head, [5, 10, 30, 60, 300, 600, 900, 1800, 1800]);
    assert_eq!(named("overnight").retries(), Some(21));
}

#[test]
fn named_policies_have_their_documented_delays() {
    assert_eq!(millis(&named("none")), [0; 0]);
    assert_eq!(millis(&named("standard")), [1_000, 2_000]);
    assert_eq!(millis(&named("aggressive")), [200, 400, 800, 1_600]);
    assert_eq!(millis(&named("patient")), [5_000, 15_000]);
    assert_eq!(millis(&named("conservative")), [500]);
    assert_eq!(millis(&named("session")), [2_000, 4_000, 8_000]);
}

#[test]
fn caps_hold_when_a_policy_is_given_more_attempts() {
    let many = |name| {
        let policy = named(name).with_overrides(Overrides {
            max_attempts: NonZeroU32::new(12),
            ..Overrides::default()
        });
        *millis(&policy.unwrap()).last().unwrap()
    };
    assert_eq!(many("standard"), 30_000);
    assert_eq!(many("aggressive"), 30_000);
    assert_eq!(many("patient"), 90_000);
    assert_eq!(many("conservative"), 4_000);
    assert_eq!(
        many("session"),
        2_048_000,
        "the session's doubling has no cap"
    );
}

#[test]
fn delay_of_ten_thousandth_retry_is_bounded() {
    for name in Policy::NAMES {
        let policy = named(name);
        for retry in [10_000, u32::MAX] {
            assert!(policy.backoff.delay(retry) <= MAX_DELAY, "{name}");
            assert_eq!(policy.delay_for(retry), None, "{name}");
        }
        let endless = Policy {
            max_attempts: None,
            sleep_budget: None,
            ..policy
        };
        assert!(endless.delay_for(10_000).unwrap() <= MAX_DELAY, "{name}");
    }
}

#[test]
fn unknown_policy_error_lists_known_names() {
    let error = Policy::named("overnite").unwrap_err().to_string();
    assert!(
        error.contains("`overnite`") && error.contains("overnight") && error.contains("session"),
        "{error}"
    );
}

#[test]
fn overrides_replace_one_field_and_leave_the_rest() {
    let linear = Overrides {
        backoff: Some(BackoffKind::Linear),
        ..Overrides::default()
    };
    let policy = named("aggressive").with_overrides(linear).unwrap();
    assert_eq!(millis(&policy), [200, 400, 600, 800]);
    assert_eq!(policy.max_delay, Some(Duration::from_secs(30)));

    let slower = Overrides {
        base_delay: Some(Duration::from_secs(7)),
        ..Overrides::default()
    };
    assert_eq!(
        millis(&named("patient").with_overrides(slower).unwrap()),
        [7_000, 21_000]
    );

    let steps = Overrides {
        backoff: Some(BackoffKind::Stepped),
        steps: Some(vec![Duration::from_secs(1), Duration::from_secs(9)]),
        ..Overrides::default()
    };
    assert_eq!(
        millis(&named("session").with_overrides(steps).unwrap()),
        [1_000, 9_000, 9_000]
    );

    let fixed = Overrides {
        backoff: Some(BackoffKind::Fixed),
        ..Overrides::default()
    };
    assert_eq!(
        named("overnight").with_overrides(fixed).unwrap().retries(),
        Some(5760),
        "8 h in steps of 5 s"
    );
}

#[test]
fn a_maximum_delay_of_zero_means_no_ceiling() {
    let none = Overrides {
        max_delay: Some(Duration::ZERO),
        ..Overrides::default()
    };
    let policy = named("standard").with_overrides(none).unwrap();
    assert_eq!((policy.max_delay, policy.max_stated_wait), (None, None));
}

#[test]
fn invalid_overrides_are_errors_with_a_reason() {
    let table = [
        (
            "standard",
            Overrides {
                backoff: Some(BackoffKind::Stepped),
                ..Overrides::default()
            },
            "steps",
        ),
        (
            "overnight",
            Overrides {
                steps: Some(vec![]),
                ..Overrides::default()
            },
            "at least one delay",
        ),
        (
            "overnight",
            Overrides {
                base_delay: Some(Duration::from_secs(1)),
                ..Overrides::default()
            },
            "`base_delay`",
        ),
        (
            "standard",
            Overrides {
                steps: Some(vec![Duration::ZERO]),
                ..Overrides::default()
            },
            "`steps`",
        ),
        (
            "overnight",
            Overrides {
                steps: Some(vec![Duration::ZERO]),
                ..Overrides::default()
            },
            "to end",
        ),
    ];
    for (name, overrides, part) in table {
        let error = named(name)
            .with_overrides(overrides)
            .unwrap_err()
            .to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn jitter_stays_within_its_bounds() {
    let delay = Duration::from_secs(4);
    let table = [
        (Jitter::None, 4_000, 4_000, 4_000),
        (Jitter::Full, 0, 2_000, 4_000),
        (Jitter::Equal, 2_000, 3_000, 4_000),
    ];
    for (jitter, low, middle, high) in table {
        let at = |entropy| jitter.apply(delay, entropy).as_millis();
        assert_eq!(
            (at(0), at(u64::MAX / 2), at(u64::MAX)),
            (low, middle, high),
            "{jitter:?}"
        );
    }
}

fn any_backoff() -> impl Strategy<Value = Backoff> {
    let duration = || (0_u64..100_000_000_000).prop_map(Duration::from_millis);
    prop_oneof![
        duration().prop_map(|delay| Backoff::Fixed { delay }),
        duration().prop_map(|base| Backoff::Linear { base }),
        (duration(), 1_u32..1000).prop_map(|(base, factor)| Backoff::Exponential { base, factor }),
        proptest::collection::vec(duration(), 1..12).prop_map(|steps| Backoff::Stepped { steps }),
    ]
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let limits = (
        any::<Option<NonZeroU32>>(),
        any::<Option<u32>>(),
        any::<Option<u32>>(),
    );
    (any_backoff(), limits).prop_map(|(backoff, (attempts, cap, budget))| Policy {
        backoff,
        max_attempts: attempts,
        max_delay: cap.map(|ms| Duration::from_millis(u64::from(ms))),
        sleep_budget: budget.map(|s| Duration::from_secs(u64::from(s))),
        ..Policy::none()
    })
}

proptest! {
    #[test]
    fn delays_never_overflow_and_never_pass_the_cap(policy in any_policy(), retry in any::<u32>()) {
        let delay = policy.backoff.delay(retry);
        prop_assert!(delay <= MAX_DELAY);
        if let Some(delay) = policy.delay_for(retry) {
            prop_assert!(delay <= policy.max_delay.unwrap_or(MAX_DELAY));
        }
    }

    #[test]
    fn closed_form_total_equals_sum_of_delays(policy in any_policy(), retries in 0_u32..200) {
        let policy = Policy { max_attempts: None, sleep_budget: None, ..policy };
        let one_by_one: Duration = (0..=retries).map(|retry| policy.delay_for(retry).unwrap()).sum();
        prop_assert_eq!(policy.total_nanos(retries), one_by_one.as_nanos());
    }

    #[test]
    fn the_sleep_budget_is_never_exceeded(policy in any_policy()) {
        let slept: Duration = policy.delays(5_000).iter().sum();
        if let Some(budget) = policy.sleep_budget {
            prop_assert!(slept <= budget);
        }
    }

    #[test]
    fn announced_retries_equal_number_of_delays(policy in any_policy()) {
        match policy.retries() {
            Some(0) => prop_assert_eq!(policy.delay_for(0), None),
            Some(retries) => {
                prop_assert!(policy.delay_for(retries - 1).is_some());
                prop_assert_eq!(policy.delay_for(retries), None);
            }
            None => prop_assert!(policy.delay_for(u32::MAX).is_some()),
        }
    }

    #[test]
    fn jitter_only_shortens(delay in 0_u64..10_000_000_000, entropy in any::<u64>()) {
        let delay = Duration::from_millis(delay);
        for jitter in [Jitter::None, Jitter::Full, Jitter::Equal] {
            prop_assert!(jitter.apply(delay, entropy) <= delay);
        }
        prop_assert!(Jitter::Equal.apply(delay, entropy) >= delay / 2);
    }
}
