use super::*;
use crate::budget::Limits;
use crate::decision::Target;
use crate::failure::Failure;
use crate::policy::{Policy, Switches};
use crate::verdict::{Cause, Scope, Verdict};

const NOW: Timestamp = Timestamp::from_millis(1_000_000_000);

fn judged(cause: Cause, scope: Scope) -> Arc<ClassifiedFailure> {
    let failure =
        Failure::emitted("mock", "it failed", NOW).with_verdict(Verdict::new(cause, scope));
    ClassifiedFailure::new(failure)
}

fn overloaded() -> Arc<ClassifiedFailure> {
    judged(Cause::Overloaded, Scope::Model)
}

/// A driver that keeps time and feeds a policy's own delays, as the engine does.
#[derive(Clone)]
struct Run {
    policy: Arc<Policy>,
    state: State,
    now: Timestamp,
}

impl Run {
    fn new(policy: &str) -> Self {
        let policy = Policy::named(policy).unwrap();
        let state = State::new(RetryRules::from(&policy), Prompt::default());
        let mut run = Self {
            policy: Arc::new(policy),
            state,
            now: NOW,
        };
        assert_eq!(run.step(Event::Started)[..], [Effect::Call]);
        run
    }

    fn step(&mut self, event: Event) -> Effects {
        step(&mut self.state, event)
    }

    fn fail(&mut self, failure: Arc<ClassifiedFailure>, remedies: Remedies) -> Effects {
        let scheduled_delay = self.policy.delay_for(self.state.chain().schedule_index());
        let now = self.now;
        self.step(Event::Failed {
            failure,
            scheduled_delay,
            is_quick: false,
            remedies,
            now,
        })
    }

    /// Fails, sleeps the whole wait and returns the announced retry.
    fn fail_and_sleep(&mut self) -> Option<RetryScheduled> {
        let effects = self.fail(overloaded(), Remedies::NONE);
        match &effects[..] {
            [Effect::AnnounceRetry(retry), Effect::SleepUntil(at)] => {
                self.now = *at;
                assert_eq!(self.step(Event::Woke { now: self.now })[..], [Effect::Call]);
                Some(retry.clone())
            }
            _ => None,
        }
    }
}

#[test]
fn retries_count_from_one_and_exhaustion_reports_the_last() {
    let mut run = Run::new("session");
    for (attempt, delay) in [(1, 2), (2, 4), (3, 8)] {
        let retry = run.fail_and_sleep().unwrap();
        assert_eq!(
            (retry.attempt, retry.max_attempts, retry.delay),
            (attempt, Some(3), Duration::from_secs(delay))
        );
        assert_eq!(retry.at, run.now);
    }
    let why = GiveUp::RetriesExhausted { retries: 3 };
    let end = RetryEnded {
        success: false,
        attempt: 3,
        error: Some("it failed".to_owned()),
    };
    assert_eq!(
        run.fail(overloaded(), Remedies::NONE)[..],
        [
            Effect::AnnounceEnd(end),
            Effect::ReportError(overloaded(), why),
            Effect::Settle(Outcome::Failed(why))
        ]
    );
}

#[test]
fn success_closes_chain_and_next_one_starts_at_one() {
    let mut run = Run::new("session");
    run.fail_and_sleep();
    run.fail_and_sleep();
    let end = RetryEnded {
        success: true,
        attempt: 2,
        error: None,
    };
    assert_eq!(
        run.step(Event::Succeeded)[..],
        [Effect::AnnounceEnd(end), Effect::Settle(Outcome::Completed)]
    );
    assert!(!run.state.is_retrying());

    run.step(Event::Started);
    assert_eq!(run.fail_and_sleep().unwrap().attempt, 1);
}

#[test]
fn non_retryable_first_failure_opens_no_chain() {
    let mut run = Run::new("session");
    let auth = judged(Cause::Auth, Scope::Credential);
    let why = GiveUp::NotRetryable;
    assert_eq!(
        run.fail(Arc::clone(&auth), Remedies::NONE)[..],
        [
            Effect::ReportError(auth, why),
            Effect::Settle(Outcome::Failed(why))
        ]
    );
}

#[test]
fn abort_during_wait_cancels_retry_without_error() {
    let mut run = Run::new("session");
    run.fail(overloaded(), Remedies::NONE);
    let end = RetryEnded {
        success: false,
        attempt: 1,
        error: Some("Retry cancelled".to_owned()),
    };
    assert_eq!(
        run.step(Event::Aborted { now: NOW })[..],
        [
            Effect::CancelSleep,
            Effect::AnnounceEnd(end),
            Effect::Settle(Outcome::Aborted)
        ]
    );
    assert!(!run.state.is_retrying() && run.state.is_idle());
}

#[test]
fn aborted_retry_reports_cancellation_then_error() {
    let mut run = Run::new("session");
    run.fail(overloaded(), Remedies::NONE);
    let end = RetryEnded {
        success: false,
        attempt: 1,
        error: Some("Retry cancelled".to_owned()),
    };
    let why = GiveUp::Canceled;
    assert_eq!(
        run.step(Event::RetryAborted { now: NOW })[..],
        [
            Effect::CancelSleep,
            Effect::AnnounceEnd(end),
            Effect::ReportError(overloaded(), why),
            Effect::Settle(Outcome::Failed(why)),
        ]
    );
}

#[test]
fn retry_abort_without_wait_changes_nothing() {
    let mut run = Run::new("session");
    run.fail_and_sleep();
    assert!(run.step(Event::RetryAborted { now: NOW }).is_empty());
    assert!(!run.state.is_idle());
}

#[test]
fn shortened_wait_costs_only_time_slept() {
    let policy = Policy::named("overnight").unwrap();
    let prompt = Prompt::new(Limits {
        sleep: Some(Duration::from_secs(3600)),
        ..Limits::default()
    });
    let mut run = Run::new("overnight");
    run.state = State::new(RetryRules::from(&policy), prompt);
    run.step(Event::Started);
    run.fail(overloaded(), Remedies::NONE);
    assert_eq!(run.state.chain().scheduled_sleep(), Duration::from_secs(5));
    run.step(Event::Woke {
        now: NOW + Duration::from_secs(1),
    });
    assert_eq!(run.state.chain().scheduled_sleep(), Duration::from_secs(1));
    assert_eq!(
        run.state.prompt().sleep_left(),
        Some(Duration::from_secs(3599))
    );
}

#[test]
fn account_switch_is_announced_without_delay() {
    let mut run = Run::new("session");
    let limit = judged(Cause::UsageLimit, Scope::Credential);
    let siblings = Remedies {
        switch: Switches {
            account: true,
            ..Switches::NONE
        },
        ..Remedies::NONE
    };
    let effects = run.fail(limit, siblings);
    let [
        Effect::AnnounceRetry(retry),
        Effect::Apply(Remedy::Switch(Target::Account)),
    ] = &effects[..]
    else {
        panic!("{effects:?}");
    };
    assert_eq!(
        (retry.attempt, retry.delay, retry.at),
        (1, Duration::ZERO, NOW)
    );
    assert_eq!(run.step(Event::RemedyDone)[..], [Effect::Call]);
    assert_eq!(
        run.fail_and_sleep().unwrap().delay,
        Duration::from_secs(2),
        "the schedule was not used"
    );
}

#[test]
fn overflow_compacts_without_retry_event() {
    let mut run = Run::new("session");
    let can_compact = Remedies {
        compact: true,
        ..Remedies::NONE
    };
    let overflow = judged(Cause::ContextOverflow, Scope::Request);
    assert_eq!(
        run.fail(overflow, can_compact)[..],
        [Effect::Apply(Remedy::Compact)]
    );
    assert_eq!(run.step(Event::RemedyDone)[..], [Effect::Call]);
    assert_eq!(
        run.step(Event::Succeeded)[..],
        [Effect::Settle(Outcome::Completed)]
    );
}

fn fail_probe(run: &mut Run, failure: Arc<ClassifiedFailure>, remedies: Remedies) -> Effects {
    let now = run.now;
    run.step(Event::ProbeFailed {
        failure,
        remedies,
        now,
    })
}

#[test]
fn failed_probe_costs_no_retry_and_call_is_queued_again() {
    let mut run = Run::new("session");
    run.fail(overloaded(), Remedies::NONE);
    run.now = NOW + Duration::from_millis(500);
    let now = run.now;
    assert_eq!(run.step(Event::Woke { now })[..], [Effect::Call]);
    let slept = run.state.chain().scheduled_sleep();
    for _ in 0..5 {
        let effects = fail_probe(&mut run, overloaded(), Remedies::NONE);
        assert_eq!(effects[..], [Effect::Call]);
        assert_eq!(run.state.chain().retries(), 1);
        assert_eq!(run.state.chain().schedule_index(), 1);
        assert_eq!(run.state.chain().scheduled_sleep(), slept);
    }
    let ended = run.step(Event::Succeeded);
    assert!(
        matches!(&ended[0], Effect::AnnounceEnd(end) if end.success && end.attempt == 1),
        "{ended:?}"
    );
}

#[test]
fn failed_probe_of_permanent_failure_gives_up() {
    let mut run = Run::new("session");
    let effects = fail_probe(
        &mut run,
        judged(Cause::Auth, Scope::Credential),
        Remedies::NONE,
    );
    let settled = Effect::Settle(Outcome::Failed(GiveUp::NotRetryable));
    assert_eq!(effects.last(), Some(&settled));
}

#[test]
fn failed_probe_with_usage_limit_switches_account() {
    let mut run = Run::new("session");
    let free = Remedies {
        switch: Switches::ALL,
        ..Remedies::NONE
    };
    let effects = fail_probe(&mut run, judged(Cause::UsageLimit, Scope::Credential), free);
    let switch = Effect::Apply(Remedy::Switch(Target::Account));
    assert_eq!(effects.last(), Some(&switch), "{effects:?}");
}

#[test]
fn rejected_hold_ends_chain_with_its_failure() {
    let mut run = Run::new("session");
    run.fail_and_sleep();
    let why = GiveUp::SleepBudgetExhausted {
        budget: Duration::from_secs(300),
    };
    let effects = run.step(Event::HoldRejected {
        failure: overloaded(),
        why,
    });
    let settled = Effect::Settle(Outcome::Failed(why));
    assert!(matches!(effects[0], Effect::AnnounceEnd(_)), "{effects:?}");
    assert_eq!(effects.last(), Some(&settled));
}

#[test]
fn quick_retries_leave_schedule_index_and_outlast_schedule() {
    let mut run = Run::new("gateway");
    for retry in 1..=40 {
        let (failure, remedies, now) = (overloaded(), Remedies::NONE, run.now);
        let effects = run.step(Event::Failed {
            failure,
            scheduled_delay: Some(Duration::from_secs(8)),
            is_quick: true,
            remedies,
            now,
        });
        let (attempt, _, at) = announced_retry(&effects);
        assert_eq!((attempt, run.state.chain().schedule_index()), (retry, 0));
        run.now = at;
        run.step(Event::Woke { now: at });
    }
    let first = run.fail_and_sleep().unwrap();
    assert_eq!(first.delay, Duration::from_millis(500));
}

#[test]
fn answer_or_other_cause_begins_gateway_schedule_anew() {
    let mut run = Run::new("gateway");
    let mut delays = Vec::new();
    let mut fail = |run: &mut Run, cause| {
        let index = run.state.schedule_index_for(cause);
        let (scheduled_delay, now) = (run.policy.delay_for(index), run.now);
        let effects = run.step(Event::Failed {
            failure: judged(cause, Scope::Provider),
            scheduled_delay,
            is_quick: false,
            remedies: Remedies::NONE,
            now,
        });
        let (_, delay, at) = announced_retry(&effects);
        delays.push(delay.as_millis());
        run.now = at;
        run.step(Event::Woke { now: at });
    };
    for _ in 0..4 {
        fail(&mut run, Cause::Overloaded);
    }
    fail(&mut run, Cause::ServerError);
    fail(&mut run, Cause::ServerError);
    run.step(Event::Accepted);
    fail(&mut run, Cause::ServerError);
    assert_eq!(delays, [500, 1000, 2000, 5000, 500, 1000, 500]);
}

#[test]
fn held_retry_can_be_cancelled_before_it_starts() {
    let mut run = Run::new("session");
    run.step(Event::Started);
    assert!(
        run.step(Event::HeldRetryAborted).is_empty(),
        "there is no retry yet"
    );
    run.fail_and_sleep();
    let effects = run.step(Event::HeldRetryAborted);
    let [
        Effect::CancelCall,
        Effect::AnnounceEnd(end),
        Effect::ReportError(..),
        Effect::Settle(outcome),
    ] = &effects[..]
    else {
        panic!("{effects:?}");
    };
    assert_eq!(
        (end.success, end.error.as_deref()),
        (false, Some(RETRY_CANCELLED))
    );
    assert_eq!(*outcome, Outcome::Failed(GiveUp::Canceled));
}

// --- resumed from an earlier process ---

/// A state that an earlier process left in its second wait, four seconds long, and that wait.
fn state_in_second_wait() -> (State, Wait) {
    let policy = Policy::named("session").unwrap();
    let hour = Prompt::new(Limits {
        sleep: Some(Duration::from_secs(3600)),
        ..Limits::default()
    });
    let mut before = Run::new("session");
    before.state = State::new(RetryRules::from(&policy), hour);
    before.step(Event::Started);
    before.fail_and_sleep();
    before.fail(overloaded(), Remedies::NONE);
    let wait = Wait {
        since: before.now,
        until: before.now + Duration::from_secs(4),
        failure: overloaded(),
    };
    let (chain, prompt) = (*before.state.chain(), before.state.prompt().clone());
    let state = State::new(RetryRules::from(&policy), prompt).with_chain(chain);
    (state, wait)
}

/// Returns the announced retry and the end of the sleep.
fn announced_retry(effects: &Effects) -> (u32, Duration, Timestamp) {
    let [Effect::AnnounceRetry(retry), Effect::SleepUntil(at)] = &effects[..] else {
        panic!("{effects:?}");
    };
    assert_eq!(retry.at, *at);
    (retry.attempt, retry.delay, *at)
}

#[test]
fn resumed_wait_ends_at_its_original_time() {
    let (mut state, wait) = state_in_second_wait();
    let effects = state.resume(wait.clone(), wait.since + Duration::from_secs(3));
    let expected = (2, Duration::from_secs(1), wait.until);
    assert_eq!(announced_retry(&effects), expected);
    assert_eq!(state.chain().scheduled_sleep(), Duration::from_secs(6));
}

#[test]
fn an_overdue_wait_is_announced_without_delay() {
    let (mut state, wait) = state_in_second_wait();
    let effects = state.resume(wait.clone(), wait.until + Duration::from_secs(9 * 3600));
    assert_eq!(announced_retry(&effects), (2, Duration::ZERO, wait.until));
}

#[test]
fn clock_set_back_does_not_lengthen_resumed_wait() {
    let (fresh, wait) = state_in_second_wait();
    for seconds_back in [0, 1, 60, 3600, 86_400] {
        let mut state = fresh.clone();
        let now = Timestamp::from_millis(wait.since.as_millis() - seconds_back * 1000);
        let (_, delay, at) = announced_retry(&state.resume(wait.clone(), now));
        let four = Duration::from_secs(4);
        assert_eq!((delay, at), (four, now + four), "{seconds_back} s back");
    }
}

#[test]
fn resumed_wait_settles_sleep_before_and_after_restart() {
    let left = |state: &State| state.prompt().sleep_left();
    for (taken_up_after, woken_after, slept) in [(1, 4, 4), (1, 2, 2), (3600, 3600, 4)] {
        let (mut state, wait) = state_in_second_wait();
        let seconds = |seconds| wait.since + Duration::from_secs(seconds);
        assert_eq!(left(&state), Some(Duration::from_secs(3600 - 2 - 4)));
        state.resume(wait.clone(), seconds(taken_up_after));
        let now = seconds(woken_after);
        assert_eq!(step(&mut state, Event::Woke { now })[..], [Effect::Call]);
        let spent = Duration::from_secs(2 + slept);
        assert_eq!(state.chain().scheduled_sleep(), spent);
        assert_eq!(left(&state), Some(Duration::from_secs(3600) - spent));
    }
}

#[test]
fn resumed_wait_is_charged_despite_clock_set_back() {
    let (mut state, wait) = state_in_second_wait();
    let now = Timestamp::from_millis(wait.since.as_millis() - 60_000);
    let (_, _, at) = announced_retry(&state.resume(wait, now));
    step(&mut state, Event::Woke { now: at });
    assert_eq!(state.chain().scheduled_sleep(), Duration::from_secs(6));
}

#[test]
fn resumed_chain_continues_counting() {
    let (mut state, wait) = state_in_second_wait();
    let now = wait.until;
    state.resume(wait, now);
    step(&mut state, Event::Woke { now });
    let policy = Policy::named("session").unwrap();
    let mut fail = |scheduled_delay| {
        let (failure, remedies) = (overloaded(), Remedies::NONE);
        let failed = Event::Failed {
            failure,
            scheduled_delay,
            is_quick: false,
            remedies,
            now,
        };
        step(&mut state, failed)
    };
    let eight = Duration::from_secs(8);
    let (attempt, delay, _) = announced_retry(&fail(policy.delay_for(2)));
    assert_eq!((attempt, delay), (3, eight));
    step(&mut state, Event::Woke { now });
    let ended = step(&mut state, Event::Succeeded);
    let end = RetryEnded {
        success: true,
        attempt: 3,
        error: None,
    };
    assert_eq!(
        ended[..],
        [Effect::AnnounceEnd(end), Effect::Settle(Outcome::Completed)]
    );
}

#[test]
fn exhausted_chain_stays_exhausted_after_restart() {
    let mut before = Run::new("session");
    for _ in 0..3 {
        before.fail_and_sleep();
    }
    let policy = Policy::named("session").unwrap();
    let mut after = before.clone();
    after.state =
        State::new(RetryRules::from(&policy), Prompt::default()).with_chain(*before.state.chain());
    after.step(Event::Started);
    let effects = after.fail(overloaded(), Remedies::NONE);
    let why = GiveUp::RetriesExhausted { retries: 3 };
    let settled = Effect::Settle(Outcome::Failed(why));
    assert_eq!(effects.last(), Some(&settled), "{effects:?}");
}

// --- all sequences ---

const EVENT_KINDS: usize = 22;

fn event_at(index: usize, run: &Run) -> Event {
    let everything = Remedies {
        switch: Switches::ALL,
        compact: true,
        after_content: AfterContent::Retract,
        ..Remedies::NONE
    };
    let scheduled_delay = run.policy.delay_for(run.state.chain().schedule_index());
    let now = run.now;
    let failed = |cause, scope, remedies| Event::Failed {
        failure: judged(cause, scope),
        scheduled_delay,
        is_quick: false,
        remedies,
        now,
    };
    match index {
        0 => Event::Started,
        1 => Event::ContentSent,
        2 => Event::Succeeded,
        3 => failed(Cause::Overloaded, Scope::Model, Remedies::NONE),
        4 => failed(Cause::UsageLimit, Scope::Credential, everything),
        5 => failed(Cause::ContextOverflow, Scope::Request, everything),
        6 => failed(Cause::Auth, Scope::Credential, Remedies::NONE),
        7 => failed(Cause::Network, Scope::Provider, everything),
        8 => Event::Woke { now },
        9 => Event::RemedyDone,
        10 => Event::RemedyFailed,
        11 => Event::RetryAborted { now },
        12 => Event::Aborted { now },
        13 => Event::Woke { now: NOW },
        14 => Event::Failed {
            failure: broken_off(),
            scheduled_delay,
            is_quick: true,
            remedies: Remedies {
                after_content: AfterContent::Continue,
                ..everything
            },
            now,
        },
        15 => Event::ProbeFailed {
            failure: overloaded(),
            remedies: everything,
            now,
        },
        16 => Event::HeldRetryAborted,
        17 => Event::ModelChanged {
            was_used_before: false,
        },
        18 => Event::PromptBudgetUpdated(run.state.prompt().clone()),
        19 => Event::Accepted,
        20 => Event::HoldRejected {
            failure: overloaded(),
            why: GiveUp::DeadlineExceeded,
        },
        _ => Event::CostIncurred(Cost(1)),
    }
}

/// A failure after content.
fn broken_off() -> Arc<ClassifiedFailure> {
    let ClassifiedFailure { failure, verdict } = &*overloaded();
    Arc::new(ClassifiedFailure {
        failure: Failure {
            phase: Phase::AfterContent,
            ..failure.clone()
        },
        verdict: verdict.clone(),
    })
}

/// The view of an observer of the effects; every invariant is judged from outside.
#[derive(Clone, Default)]
struct Observer {
    scheduled: u32,
    calling: bool,
    content: bool,
    sleeping: bool,
    running: bool,
}

impl Observer {
    fn check(&mut self, event: &Event, effects: &Effects, before: &State, after: &State) {
        if matches!(event, Event::ContentSent) && self.calling {
            self.content = true;
        }
        if matches!(event, Event::Started) && !self.running {
            self.running = true;
            self.content = false;
        }
        if let Event::Failed { failure, .. } = event
            && self.calling
            && failure.failure.phase == Phase::AfterContent
        {
            self.content = true;
        }
        let ends_call = matches!(
            event,
            Event::Succeeded | Event::Failed { .. } | Event::ProbeFailed { .. }
        );
        let is_rejected = matches!(event, Event::HoldRejected { .. }) && !self.content;
        if ends_call || is_rejected {
            self.calling = false;
        }
        if matches!(event, Event::Woke { .. }) {
            self.sleeping = false;
        }
        for effect in effects {
            self.effect(effect);
        }
        if matches!(event, Event::Aborted { .. }) {
            assert!(
                after.is_idle() && !self.running && !self.sleeping && !self.calling,
                "an abort reaches idle"
            );
        }
        assert_eq!(
            self.scheduled > 0,
            after.is_retrying(),
            "the chain is open exactly while a retry is announced"
        );
        let closed = effects
            .iter()
            .any(|effect| matches!(effect, Effect::AnnounceEnd(_)));
        if !closed {
            let (old, new) = (before.chain(), after.chain());
            let restarts = matches!(event, Event::ModelChanged { .. });
            assert!(new.retries() >= old.retries());
            assert!(restarts || new.schedule_index() >= old.schedule_index());
            assert!(new.scheduled_sleep() >= old.scheduled_sleep() || !self.sleeping);
        }
        assert!(after.prompt().cost() >= before.prompt().cost());
    }

    fn effect(&mut self, effect: &Effect) {
        match effect {
            Effect::Call => {
                assert!(
                    self.running && !self.calling && !self.sleeping,
                    "one call at a time"
                );
                assert!(!self.content, "a call behind the commit watermark");
                self.calling = true;
            }
            Effect::CancelCall => self.calling = false,
            Effect::Retract | Effect::KeepPartial => {
                assert!(self.running && !self.calling && !self.sleeping);
                self.content = false;
            }
            Effect::AnnounceRetry(retry) => {
                assert!(!self.content, "a retry behind the commit watermark");
                assert_eq!(
                    retry.attempt,
                    self.scheduled + 1,
                    "retries are numbered without gaps"
                );
                self.scheduled += 1;
            }
            Effect::SleepUntil(_) => self.sleeping = true,
            Effect::CancelSleep => self.sleeping = false,
            Effect::Apply(_) => assert!(!self.sleeping && !self.calling),
            Effect::AnnounceEnd(end) => {
                assert!(self.scheduled > 0, "an end without a start");
                assert_eq!(end.attempt, self.scheduled);
                assert_eq!(end.success, end.error.is_none());
                self.scheduled = 0;
            }
            Effect::ReportError(..) => assert!(
                self.running && self.scheduled == 0,
                "the error comes after the end"
            ),
            Effect::Settle(_) => {
                assert!(
                    self.running && self.scheduled == 0 && !self.calling && !self.sleeping,
                    "settled exactly once"
                );
                self.running = false;
            }
        }
    }
}

fn explore(run: &Run, observer: &Observer, depth: usize) -> u64 {
    if depth == 0 {
        return 1;
    }
    let mut checked = 1;
    for index in 0..EVENT_KINDS {
        let mut run = run.clone();
        let mut observer = observer.clone();
        let event = event_at(index, &run);
        let before = run.state.clone();
        let effects = step(&mut run.state, event.clone());
        if let Some(Effect::SleepUntil(at)) = effects.last() {
            run.now = *at;
        }
        observer.check(&event, &effects, &before, &run.state);
        // An event that changed nothing leads only to sequences that are checked without it.
        if effects.is_empty() && !matches!(event, Event::ContentSent | Event::CostIncurred(_)) {
            checked += 1;
            continue;
        }
        checked += explore(&run, &observer, depth - 1);
    }
    checked
}

#[test]
fn the_invariants_hold_over_all_event_sequences() {
    let mut checked = 0;
    for policy in ["none", "standard", "session"] {
        let mut fresh = Run::new(policy);
        let two = Prompt::new(Limits {
            cost: Some(Cost(2)),
            ..Limits::default()
        });
        fresh.state = State::new(RetryRules::from(&*fresh.policy), two);
        checked += explore(&fresh, &Observer::default(), 8);
    }
    println!("recovery: {checked} event sequences checked");
    assert!(checked > 300_000, "only {checked}");
}
