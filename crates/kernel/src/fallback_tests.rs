use super::*;
use crate::verdict::{Hint, Scope};

const NOW: Timestamp = Timestamp::from_millis(1_000_000_000);
const MINUTE: Duration = Duration::from_secs(60);

fn verdict(cause: Cause) -> Verdict {
    Verdict::new(cause, Scope::Model)
}

fn hinted(cause: Cause, wait: Duration, authority: Authority) -> Verdict {
    let hint = Hint {
        not_before: NOW + wait,
        source: "retry-after".to_owned(),
        authority,
    };
    Verdict {
        hint: Some(hint),
        ..verdict(cause)
    }
}

#[test]
fn causes_map_to_fallback_conditions() {
    for cause in Cause::ALL {
        let expected = match cause.class() {
            Class::Transient if *cause == Cause::UsageLimit => Some(Condition::UsageLimit),
            Class::Transient if !matches!(cause, Cause::EmptyOutput | Cause::CommandFailed) => {
                Some(Condition::Overload)
            }
            _ => match cause {
                Cause::Auth
                | Cause::Permission
                | Cause::Billing
                | Cause::InvalidRequest
                | Cause::ModelNotFound
                | Cause::Misconfigured
                | Cause::Unknown => Some(Condition::HardError),
                Cause::ContentFilter => Some(Condition::Refusal),
                Cause::ContextOverflow => Some(Condition::Overflow),
                _ => None,
            },
        };
        assert_eq!(
            Condition::from_verdict(&verdict(*cause)),
            expected,
            "{cause}"
        );
    }
}

#[test]
fn unlisted_condition_is_ignored() {
    let rules = Rules {
        conditions: vec![Condition::Refusal],
        ..Rules::default()
    };
    assert_eq!(rules.condition(&verdict(Cause::Overloaded)), None);
    let refused = rules.condition(&verdict(Cause::ContentFilter));
    assert_eq!(refused, Some(Condition::Refusal));
}

#[test]
fn overload_switches_after_retries_and_count_resets() {
    let rules = Rules::default();
    let overloaded = verdict(Cause::Overloaded);
    let mut chain = Chain::default();
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(rules.should_switch_immediately(&overloaded, &chain, NOW));
        chain.start_wait(MINUTE, 1);
    }
    assert_eq!(seen, [false, false, true]);
    chain.start_model();
    assert!(!rules.should_switch_immediately(&overloaded, &chain, NOW));
    assert_eq!((chain.retries(), chain.retries_on_current_model()), (3, 0));
}

#[test]
fn usage_limit_ending_soon_is_waited_for() {
    let rules = Rules::default();
    let at_once =
        |verdict: &Verdict| rules.should_switch_immediately(verdict, &Chain::default(), NOW);
    let ends_in = |wait| hinted(Cause::UsageLimit, wait, Authority::Stated);
    assert!(!at_once(&ends_in(5 * MINUTE)));
    assert!(at_once(&ends_in(6 * MINUTE)));
    assert!(at_once(&verdict(Cause::UsageLimit)), "nobody knows when");
}

#[test]
fn exclusion_duration_depends_on_failure() {
    let rules = Rules::default();
    let until = |wait| Exclusion::Until { until: NOW + wait };
    let table = [
        (verdict(Cause::Overloaded), until(5 * MINUTE)),
        (verdict(Cause::Auth), until(5 * MINUTE)),
        (
            hinted(Cause::UsageLimit, 60 * MINUTE, Authority::Stated),
            until(60 * MINUTE),
        ),
        (
            hinted(Cause::Overloaded, MINUTE, Authority::Stated),
            until(5 * MINUTE),
        ),
        (
            hinted(Cause::Overloaded, 60 * MINUTE, Authority::Guessed),
            until(5 * MINUTE),
        ),
        (verdict(Cause::InvalidRequest), Exclusion::Turn),
        (verdict(Cause::ContentFilter), Exclusion::Session),
        (
            verdict(Cause::ContextOverflow),
            Exclusion::Above { tokens: 70 },
        ),
    ];
    for (verdict, expected) in table {
        assert_eq!(
            rules.exclusion(&verdict, 70, NOW),
            expected,
            "{}",
            verdict.cause
        );
    }
}

fn chain() -> [Candidate<'static>; 3] {
    let candidate = |key, window| Candidate {
        key,
        window,
        output_tokens: 0,
    };
    [
        candidate("large", Some(1000)),
        candidate("small", Some(100)),
        candidate("unknown", None),
    ]
}

/// Requirements for a request of that size.
fn requirements_for(tokens: u64) -> ModelRequirements {
    ModelRequirements {
        tokens,
        known_tokens: tokens,
        ..ModelRequirements::default()
    }
}

#[test]
fn switch_goes_to_earlier_model_or_away_from_excluded_one() {
    let mut standing = Exclusions::default();
    let better = |standing: &Exclusions, in_use| {
        standing.switch_target(&chain(), in_use, &requirements_for(50), NOW)
    };
    assert_eq!(
        [0, 1, 2].map(|at| better(&standing, at)),
        [None, Some(0), Some(0)]
    );
    standing.exclude("large", Exclusion::Session);
    assert_eq!(
        [0, 1, 2].map(|at| better(&standing, at)),
        [Some(1), None, Some(1)]
    );
    standing.exclude("small", Exclusion::Session);
    standing.exclude("unknown", Exclusion::Session);
    assert_eq!([0, 1, 2].map(|at| better(&standing, at)), [None; 3]);
}

#[test]
fn candidate_must_fit_output_and_exceed_outgrown_windows() {
    let mut standing = Exclusions::default();
    let talkative = [Candidate {
        output_tokens: 51,
        ..chain()[1]
    }];
    assert_eq!(
        standing.first_free(&talkative, &requirements_for(50), NOW),
        None
    );
    assert_eq!(
        standing.first_free(&talkative, &requirements_for(49), NOW),
        Some(0)
    );
    standing.exclude("small", Exclusion::Above { tokens: 50 });
    let [large, small, unknown] = chain();
    let first = |all: &[Candidate<'_>], wanted| standing.first_free(all, &wanted, NOW);
    assert_eq!(
        first(&[small, unknown, large], requirements_for(50)),
        Some(2)
    );
    assert_eq!(
        first(&[small, unknown, large], requirements_for(49)),
        Some(0)
    );
    let larger_than = Some(Some(100));
    let more = ModelRequirements {
        larger_than,
        ..requirements_for(49)
    };
    assert_eq!(first(&[small, unknown, large], more), Some(2));
    let except = Some(2);
    assert_eq!(
        first(
            &[small, unknown, large],
            ModelRequirements { except, ..more }
        ),
        None
    );
}

#[test]
fn first_free_model_with_enough_window_is_chosen() {
    let first = |standing: &Exclusions, tokens, now| {
        standing.first_free(&chain(), &requirements_for(tokens), now)
    };
    let mut standing = Exclusions::default();
    assert_eq!(first(&standing, 50, NOW), Some(0));
    let until = NOW + MINUTE;
    standing.exclude("large", Exclusion::Until { until });
    assert_eq!(first(&standing, 50, NOW), Some(1));
    assert_eq!(first(&standing, 500, NOW), Some(2), "`small` is too small");
    assert_eq!(standing.excluded_until("large", NOW), Some(until));
    assert_eq!(first(&standing, 50, until), Some(0), "its time is over");
    standing.exclude("small", Exclusion::Session);
    standing.exclude("unknown", Exclusion::Turn);
    assert_eq!(first(&standing, 50, NOW), None);
    standing.end_turn();
    assert_eq!(first(&standing, 50, NOW), Some(2));
    standing.clear();
    assert_eq!(first(&standing, 50, NOW), Some(0));
}

#[test]
fn model_is_free_again_once_conversation_is_smaller() {
    let mut standing = Exclusions::default();
    standing.exclude("unknown", Exclusion::Above { tokens: 70 });
    let is_free = |tokens| standing.is_free("unknown", tokens, NOW);
    assert_eq!(
        [is_free(69), is_free(70), is_free(71)],
        [true, false, false]
    );
}

#[test]
fn later_exclusion_replaces_earlier_one() {
    let mut standing = Exclusions::default();
    standing.exclude(
        "large",
        Exclusion::Until {
            until: NOW + 9 * MINUTE,
        },
    );
    standing.exclude(
        "large",
        Exclusion::Until {
            until: NOW + MINUTE,
        },
    );
    assert_eq!(standing.excluded_until("large", NOW), Some(NOW + MINUTE));
}
