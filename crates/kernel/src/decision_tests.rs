use super::*;
use crate::budget::{Cost, Limits};
use crate::verdict::{Hint, Scope};
use proptest::prelude::*;

const NOW: Timestamp = Timestamp::from_millis(1_000_000_000);
const TWO_SECONDS: Duration = Duration::from_secs(2);

fn rules(policy: &str) -> RetryRules {
    RetryRules::from(&Policy::named(policy).unwrap())
}

fn verdict(cause: Cause, scope: Scope) -> Verdict {
    Verdict::new(cause, scope)
}

fn hinted(cause: Cause, wait: Duration, authority: Authority) -> Verdict {
    let hint = Hint {
        not_before: NOW + wait,
        source: "retry-after".to_owned(),
        authority,
    };
    Verdict {
        hint: Some(hint),
        ..verdict(cause, Scope::Credential)
    }
}

fn situation(verdict: &Verdict) -> Situation<'_> {
    Situation {
        verdict,
        retryable: None,
        committed: false,
        scheduled_delay: Some(TWO_SECONDS),
        remedies: Remedies::NONE,
        now: NOW,
    }
}

fn all_remedies() -> Remedies {
    Remedies {
        switch: Switches::ALL,
        compact: true,
        after_content: AfterContent::Retract,
        ..Remedies::NONE
    }
}

fn decide_fresh(rules: &RetryRules, situation: &Situation<'_>) -> Decision {
    decide(rules, &Chain::default(), &Prompt::default(), situation)
}

#[test]
fn class_decides_when_no_remedy_is_available() {
    for cause in Cause::ALL {
        let verdict = verdict(*cause, Scope::Request);
        let expected = match cause.class() {
            Class::Transient => Decision::RetryAt(NOW + TWO_SECONDS),
            Class::Canceled if *cause == Cause::DeadlinePassed => {
                Decision::GiveUp(GiveUp::DeadlineExceeded)
            }
            Class::Canceled => Decision::GiveUp(GiveUp::Canceled),
            Class::BudgetExhausted if *cause == Cause::ContextOverflow => {
                Decision::GiveUp(GiveUp::Overflow)
            }
            Class::BudgetExhausted => Decision::GiveUp(GiveUp::CostLimitReached),
            _ => Decision::GiveUp(GiveUp::NotRetryable),
        };
        assert_eq!(
            decide_fresh(&rules("session"), &situation(&verdict)),
            expected,
            "{cause}"
        );
    }
}

#[test]
fn each_cause_selects_its_remedy() {
    let switch = |target| Decision::Try(Remedy::Switch(target));
    let table = [
        (
            Cause::ContextOverflow,
            Scope::Request,
            Decision::Try(Remedy::Compact),
        ),
        (
            Cause::PayloadTooLarge,
            Scope::Request,
            Decision::Try(Remedy::Compact),
        ),
        (
            Cause::UsageLimit,
            Scope::Credential,
            switch(Target::Account),
        ),
        (Cause::Auth, Scope::Credential, switch(Target::Account)),
        (Cause::Billing, Scope::Credential, switch(Target::Account)),
        (Cause::ModelNotFound, Scope::Model, switch(Target::Model)),
        (
            Cause::InvalidRequest,
            Scope::Request,
            Decision::GiveUp(GiveUp::NotRetryable),
        ),
        (
            Cause::Overloaded,
            Scope::Model,
            Decision::RetryAt(NOW + TWO_SECONDS),
        ),
        (
            Cause::RateLimited,
            Scope::Credential,
            Decision::RetryAt(NOW + TWO_SECONDS),
        ),
    ];
    for (cause, scope, expected) in table {
        let verdict = verdict(cause, scope);
        let situation = Situation {
            remedies: all_remedies(),
            ..situation(&verdict)
        };
        assert_eq!(
            decide_fresh(&rules("session"), &situation),
            expected,
            "{cause}"
        );
    }
}

#[test]
fn policy_without_switching_retries_instead() {
    let verdict = verdict(Cause::UsageLimit, Scope::Credential);
    let situation = Situation {
        remedies: all_remedies(),
        ..situation(&verdict)
    };
    assert_eq!(
        decide_fresh(&rules("conservative"), &situation),
        Decision::RetryAt(NOW + TWO_SECONDS)
    );
}

#[test]
fn exhausted_retries_switch_model_if_possible() {
    let verdict = verdict(Cause::Overloaded, Scope::Model);
    let spent = Situation {
        scheduled_delay: None,
        ..situation(&verdict)
    };
    assert_eq!(
        decide_fresh(&rules("session"), &spent),
        Decision::GiveUp(GiveUp::RetriesExhausted { retries: 0 })
    );
    let with_model = Situation {
        remedies: all_remedies(),
        ..spent
    };
    assert_eq!(
        decide_fresh(&rules("session"), &with_model),
        Decision::Try(Remedy::Switch(Target::Model))
    );
}

#[test]
fn explicit_retryable_flag_overrides_class() {
    let overloaded = verdict(Cause::Overloaded, Scope::Model);
    let vetoed = Situation {
        retryable: Some(false),
        remedies: all_remedies(),
        ..situation(&overloaded)
    };
    assert_eq!(
        decide_fresh(&rules("session"), &vetoed),
        Decision::GiveUp(GiveUp::NotRetryable)
    );

    let unknown = verdict(Cause::Unknown, Scope::Request);
    let granted = Situation {
        retryable: Some(true),
        ..situation(&unknown)
    };
    assert_eq!(
        decide_fresh(&rules("session"), &granted),
        Decision::RetryAt(NOW + TWO_SECONDS)
    );
}

#[test]
fn overflow_is_not_retried_even_if_marked_retryable() {
    let overflow = verdict(Cause::ContextOverflow, Scope::Request);
    let granted = Situation {
        retryable: Some(true),
        ..situation(&overflow)
    };
    assert_eq!(
        decide_fresh(&rules("overnight"), &granted),
        Decision::GiveUp(GiveUp::Overflow)
    );
}

#[test]
fn stated_wait_is_honoured_up_to_policy_limit() {
    let seconds = Duration::from_secs;
    let refused = |asked, allowed| {
        Decision::GiveUp(GiveUp::StatedWaitTooLong {
            requested: seconds(asked),
            allowed: seconds(allowed),
        })
    };
    let waits = |secs| Decision::RetryAt(NOW + seconds(secs));
    let table = [
        ("session", 1, Authority::Stated, waits(2)),
        ("session", 7, Authority::Stated, waits(7)),
        ("session", 301, Authority::Stated, refused(301, 300)),
        ("standard", 30, Authority::Stated, waits(30)),
        ("standard", 31, Authority::Stated, refused(31, 30)),
        ("overnight", 28_800, Authority::Stated, waits(28_800)),
        (
            "overnight",
            28_801,
            Authority::Reported,
            refused(28_801, 28_800),
        ),
        ("standard", 9_999, Authority::Guessed, waits(30)),
    ];
    for (policy, asked, authority, expected) in table {
        let verdict = hinted(Cause::RateLimited, seconds(asked), authority);
        assert_eq!(
            decide_fresh(&rules(policy), &situation(&verdict)),
            expected,
            "{policy} {asked}"
        );
    }
}

#[test]
fn wait_for_reset_exceeds_policy_only_for_stated_times() {
    let day = Duration::from_secs(86_400);
    let patient = RetryRules {
        wait_for_reset: true,
        ..rules("session")
    };
    let stated = hinted(Cause::UsageLimit, day, Authority::Stated);
    assert_eq!(
        decide_fresh(&patient, &situation(&stated)),
        Decision::RetryAt(NOW + day)
    );
    let reported = hinted(Cause::UsageLimit, day, Authority::Reported);
    assert!(matches!(
        decide_fresh(&patient, &situation(&reported)),
        Decision::GiveUp(GiveUp::StatedWaitTooLong { .. })
    ));
}

/// A chain that has slept that long in so many waits.
fn used(waits: &[u64]) -> Chain {
    let mut chain = Chain::default();
    for seconds in waits {
        chain.start_wait(Duration::from_secs(*seconds), chain.schedule_index() + 1);
        chain.end_wait(Duration::from_secs(*seconds));
    }
    chain
}

#[test]
fn chain_sleep_counts_against_sleep_budget() {
    let hour = 3600;
    let overloaded = verdict(Cause::Overloaded, Scope::Model);
    let limited = |hours| {
        hinted(
            Cause::RateLimited,
            Duration::from_secs(hours * hour),
            Authority::Stated,
        )
    };
    let decided = |waits: &[u64], verdict: &Verdict| {
        decide(
            &rules("overnight"),
            &used(waits),
            &Prompt::default(),
            &situation(verdict),
        )
    };
    let refused = GiveUp::StatedWaitTooLong {
        requested: Duration::from_secs(4 * hour),
        allowed: Duration::from_secs(3 * hour),
    };
    assert_eq!(decided(&[5 * hour], &limited(4)), Decision::GiveUp(refused));
    assert_eq!(
        decided(&[5 * hour], &limited(3)),
        Decision::RetryAt(NOW + Duration::from_secs(3 * hour))
    );
    let spent = GiveUp::SleepBudgetExhausted {
        budget: Duration::from_secs(8 * hour),
    };
    assert_eq!(
        decided(&[8 * hour - 1], &overloaded),
        Decision::GiveUp(spent)
    );
    assert_eq!(
        decided(&[8 * hour - 2], &overloaded),
        Decision::RetryAt(NOW + TWO_SECONDS)
    );
}

#[test]
fn accounts_are_switched_only_while_retries_are_left() {
    let limit = verdict(Cause::UsageLimit, Scope::Credential);
    let siblings = Remedies {
        switch: Switches {
            account: true,
            ..Switches::NONE
        },
        ..Remedies::NONE
    };
    let situation = Situation {
        remedies: siblings,
        ..situation(&limit)
    };
    let decided = |waits: &[u64]| {
        decide(
            &rules("session"),
            &used(waits),
            &Prompt::default(),
            &situation,
        )
    };
    assert_eq!(
        decided(&[1, 1]),
        Decision::Try(Remedy::Switch(Target::Account))
    );
    assert_eq!(
        decided(&[1, 1, 1]),
        Decision::GiveUp(GiveUp::RetriesExhausted { retries: 3 })
    );
}

#[test]
fn rework_is_preferred_for_invalid_output() {
    for cause in [
        Cause::SchemaMismatch,
        Cause::TestsFailed,
        Cause::EmptyOutput,
    ] {
        let verdict = verdict(cause, Scope::Request);
        let situation = Situation {
            remedies: Remedies {
                rework: true,
                ..all_remedies()
            },
            ..situation(&verdict)
        };
        let decided = decide_fresh(&rules("session"), &situation);
        assert_eq!(decided, Decision::Try(Remedy::Rework), "{cause}");
    }
}

#[test]
fn model_first_switches_before_any_other_remedy() {
    for cause in [
        Cause::Overloaded,
        Cause::ContextOverflow,
        Cause::ContentFilter,
    ] {
        let verdict = verdict(cause, Scope::Request);
        let situation = Situation {
            remedies: Remedies {
                model_first: true,
                rework: true,
                ..all_remedies()
            },
            ..situation(&verdict)
        };
        let decided = |policy| decide_fresh(&rules(policy), &situation);
        let switch = Decision::Try(Remedy::Switch(Target::Model));
        assert_eq!(decided("session"), switch, "{cause}");
        assert_ne!(decided("none"), switch, "{cause}");
    }
}

#[test]
fn partial_completion_retries_with_retract_or_continue() {
    let decided = |verdict: &Verdict, after_content| {
        let situation = Situation {
            committed: true,
            remedies: Remedies {
                after_content,
                ..Remedies::NONE
            },
            ..situation(verdict)
        };
        decide_fresh(&rules("session"), &situation)
    };
    let network = verdict(Cause::Network, Scope::Provider);
    let refused = verdict(Cause::ContentFilter, Scope::Request);
    let limited = hinted(
        Cause::RateLimited,
        Duration::from_secs(60),
        Authority::Stated,
    );
    for after_content in [AfterContent::Retract, AfterContent::Continue] {
        let decided = |verdict| decided(verdict, after_content);
        assert_eq!(decided(&network), Decision::RetryAt(NOW + TWO_SECONDS));
        assert_eq!(decided(&refused), Decision::GiveUp(GiveUp::NotRetryable));
        let minute = NOW + Duration::from_secs(60);
        assert_eq!(decided(&limited), Decision::RetryAt(minute));
    }
    for verdict in [&network, &refused, &limited] {
        let ended = Decision::GiveUp(GiveUp::ContentSent);
        assert_eq!(decided(verdict, AfterContent::Fail), ended);
    }
}

#[test]
fn no_remedy_is_tried_past_cost_limit_or_deadline() {
    let mut broke = Prompt::new(Limits {
        cost: Some(Cost(1)),
        ..Limits::default()
    });
    broke.spend(Cost(1));
    let late = Prompt::new(Limits {
        deadline: Some(Timestamp::from_millis(1)),
        ..Limits::default()
    });
    for cause in Cause::ALL
        .iter()
        .filter(|cause| cause.class() != Class::Canceled)
    {
        for committed in [false, true] {
            let verdict = verdict(*cause, Scope::Credential);
            let situation = Situation {
                committed,
                remedies: all_remedies(),
                ..situation(&verdict)
            };
            let decided = |prompt| decide(&rules("session"), &Chain::default(), prompt, &situation);
            assert_eq!(
                decided(&broke),
                Decision::GiveUp(GiveUp::CostLimitReached),
                "{cause}"
            );
            assert_eq!(
                decided(&late),
                Decision::GiveUp(GiveUp::DeadlineExceeded),
                "{cause}"
            );
        }
    }
}

#[test]
fn no_ceiling_honours_stated_wait_but_not_guessed_one() {
    let long = Duration::from_secs(999_999);
    let stated = hinted(Cause::RateLimited, long, Authority::Stated);
    assert_eq!(
        decide_fresh(&RetryRules::BY_SCHEDULE, &situation(&stated)),
        Decision::RetryAt(NOW + long)
    );
    let guessed = hinted(Cause::RateLimited, long, Authority::Guessed);
    assert_eq!(
        decide_fresh(&RetryRules::BY_SCHEDULE, &situation(&guessed)),
        Decision::RetryAt(NOW + TWO_SECONDS)
    );
}

#[test]
fn refused_wait_message_names_both_durations() {
    let why = GiveUp::StatedWaitTooLong {
        requested: Duration::from_secs(18_000),
        allowed: Duration::from_secs(300),
    };
    assert_eq!(
        why.to_string(),
        "the provider asks to wait 5h, the policy accepts 5m"
    );
}

#[test]
fn prompt_limits_override_the_policy() {
    let overloaded = verdict(Cause::Overloaded, Scope::Model);
    let decided = |limits: Limits, spent: Cost| {
        let mut prompt = Prompt::new(limits);
        prompt.spend(spent);
        decide(
            &rules("overnight"),
            &Chain::default(),
            &prompt,
            &situation(&overloaded),
        )
    };
    let none = Limits::default();
    let second = Duration::from_secs(1);
    let table = [
        (
            Limits {
                deadline: Some(NOW + second),
                ..none
            },
            Cost(0),
            GiveUp::DeadlineExceeded,
        ),
        (
            Limits {
                sleep: Some(second),
                ..none
            },
            Cost(0),
            GiveUp::PromptSleepExhausted { left: second },
        ),
        (
            Limits {
                cost: Some(Cost(5)),
                ..none
            },
            Cost(5),
            GiveUp::CostLimitReached,
        ),
    ];
    for (limits, spent, why) in table {
        assert_eq!(decided(limits, spent), Decision::GiveUp(why));
    }
    let enough = Limits {
        deadline: Some(NOW + TWO_SECONDS),
        sleep: Some(TWO_SECONDS),
        cost: Some(Cost(5)),
    };
    assert_eq!(
        decided(enough, Cost(4)),
        Decision::RetryAt(NOW + TWO_SECONDS)
    );
}

prop_compose! {
    fn any_situation()(
        cause in prop::sample::select(Cause::ALL),
        scope in prop::sample::select(vec![Scope::Request, Scope::Credential, Scope::Model, Scope::Provider]),
        hint in prop::option::of((0_u64..100_000, prop::sample::select(vec![Authority::Guessed, Authority::Reported, Authority::Stated]))),
        retryable in any::<Option<bool>>(),
        own_delay in prop::option::of(0_u64..10_000),
        flags in any::<[bool; 6]>(),
        after_content in prop::sample::select(vec![AfterContent::Fail, AfterContent::Retract, AfterContent::Continue]),
    ) -> (Verdict, Option<bool>, Option<Duration>, Remedies) {
        let hint = hint.map(|(wait, authority)| Hint { not_before: NOW + Duration::from_secs(wait), source: String::new(), authority });
        let switch = Switches { account: flags[0], model: flags[1], provider: flags[2] };
        let remedies = Remedies { switch, model_first: flags[4], compact: flags[3], after_content, rework: flags[5] };
        (Verdict { hint, ..Verdict::new(cause, scope) }, retryable, own_delay.map(Duration::from_secs), remedies)
    }
}

proptest! {
    #[test]
    fn nothing_is_repeated_once_content_was_sent((verdict, retryable, scheduled_delay, remedies) in any_situation()) {
        let remedies = Remedies { after_content: AfterContent::Fail, ..remedies };
        let situation = Situation { verdict: &verdict, retryable, committed: true, scheduled_delay, remedies, now: NOW };
        let decision = decide_fresh(&rules("overnight"), &situation);
        prop_assert!(matches!(decision, Decision::GiveUp(_)), "{decision:?}");
    }

    #[test]
    fn wait_stays_within_budgets_and_after_stated_time(
        (verdict, retryable, scheduled_delay, remedies) in any_situation(),
        policy in prop::sample::select(&Policy::NAMES),
        deadline in prop::option::of(0_u64..50_000),
        sleep in prop::option::of(0_u64..50_000),
    ) {
        let limits = Limits { deadline: deadline.map(|s| NOW + Duration::from_secs(s)), sleep: sleep.map(Duration::from_secs), cost: None };
        let prompt = Prompt::new(limits);
        let rules = rules(policy);
        let situation = Situation { verdict: &verdict, retryable, committed: false, scheduled_delay, remedies, now: NOW };
        if let Decision::RetryAt(at) = decide(&rules, &Chain::default(), &prompt, &situation) {
            let wait = at.since(NOW);
            prop_assert!(rules.retries != Some(0));
            prop_assert!(retryable != Some(false));
            prop_assert!(limits.deadline.is_none_or(|deadline| at <= deadline));
            prop_assert!(limits.sleep.is_none_or(|most| wait <= most));
            prop_assert!(rules.sleep_budget.is_none_or(|budget| wait <= budget));
            prop_assert!(wait >= scheduled_delay.unwrap());
            match &verdict.hint {
                Some(hint) if hint.authority != Authority::Guessed => prop_assert!(at >= hint.not_before),
                _ => {}
            }
        }
    }
}
