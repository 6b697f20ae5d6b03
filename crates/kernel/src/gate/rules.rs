//! The constants of the gate, and the two formulas over them.
//!
//! A name in brackets is the test of `outlast_mock::simulation` that fails without the rule.

use std::time::Duration;

/// The probability with which chance alone explains a streak that takes the gate down.
const FALSE_ALARM: f64 = 1e-6;
/// The limits of a streak, in failures.
const MIN_STREAK: f64 = 5.0;
pub(super) const MAX_STREAK: f64 = 150.0;
/// One request contributes at most this part of a streak [`request_that_always_fails_delays_nobody_after_health`].
pub(super) const MAX_SHARE_OF_REQUEST: f64 = 1.0 / 3.0;
/// A false alarm doubles the limit of a streak for this long, up to this factor
/// [`fleet_has_the_goodput_of_ideal_under_partial_failure`, `brown_out_has_the_goodput_of_ideal_in_a_fleet`].
pub(super) const CAUTION_PERIOD: Duration = Duration::from_secs(600);
pub(super) const MAX_CAUTION: u32 = 32;
/// After an outage of at most this, the requests go on as before it.
pub(super) const SHORT_OUTAGE: Duration = Duration::from_secs(3);

/// A refusal that states a longer wait than this counts as a failure.
pub(super) const LONG_WAIT: Duration = Duration::from_secs(10);

/// The success share that is assumed before anything is known.
pub(super) const INITIAL_SUCCESS_SHARE: f64 = 0.45;
/// The weight of one completion in the success share.
pub(super) const SHARE_WEIGHT: f64 = 1.0 / 64.0;
/// At most so many failures of one request enter the success share.
pub(super) const MAX_FAILURES_IN_SHARE: u32 = 20;

/// A call in flight holds up the count of failures for this many usual latencies of a success, within the bounds.
pub(super) const PATIENCE: f64 = 4.0;
pub(super) const MIN_USUAL_LATENCY: f64 = 0.5;
pub(super) const MAX_USUAL_LATENCY: f64 = 10.0;

/// A request that failed before a call of another one began, which succeeded, sleeps for at most this long, so many times:
/// without it, sessions that are too few to take a gate down sleep for minutes after a recovery
/// (`fleets::few_sessions_follow_the_first_success`).
pub(super) const MAX_SLEEP_WHILE_OTHERS_SUCCEED: Duration = Duration::from_secs(8);
pub(super) const MAX_SHORTENED_SLEEPS: u32 = 5;

const FIRST_PROBE_GAP: f64 = 0.5;
const PROBE_GAP_GROWTH: f64 = 1.25;
const MAX_PROBE_GAP: f64 = 18.0;
/// Below this success share the gap between probes grows no slower
/// [`growing_and_fading_failures_have_the_goodput_of_ideal`].
const MIN_SHARE_OF_PROBES: f64 = 0.1;
/// The stated time of one failed probe binds the others for at most this long.
pub(super) const MAX_WAIT_FOR_PROBE: Duration = Duration::from_secs(600);
/// The time after which a probe without a result no longer keeps others from probing
/// [`dead_probe_holder_costs_others_at_most_twenty_seconds`, `hanging_calls_do_not_hide_the_failing_ones`].
pub(super) const PROBE_LEASE: Duration = Duration::from_secs(20);
/// So many probes go to the oldest request, then every second one [`requests_that_fail_several_times_succeed_soon`,
/// `oldest_request_that_always_fails_does_not_hide_the_recovery`].
pub(super) const PROBES_OF_OLDEST: u32 = 3;

/// Bounds of a rate, and the rate with which a provider of unknown pace is met, in calls per second.
pub(super) const MIN_RATE: f64 = 0.5;
pub(super) const MAX_RATE: f64 = 5000.0;
pub(super) const INITIAL_RATE: f64 = 5.0;
/// The part of the known pace with which a ramp begins after an outage
/// [`provider_that_comes_back_with_less_is_not_overrun`].
pub(super) const INITIAL_SHARE_OF_KNOWN: f64 = 0.5;
/// A queue of at most this many seconds of the known pace needs no ramp.
pub(super) const BURST: f64 = 1.0;
/// Calls per second that one success adds below the known pace, and at it right after a refusal.
pub(super) const FAST_GROWTH: f64 = 0.3;
pub(super) const CAREFUL_GROWTH: f64 = 0.02;
/// Where few calls succeed, each success adds more, as if at least this share did. Towards an unknown pace it adds little more
/// (`fleets::fleet_meets_a_small_unknown_pace_gently`).
pub(super) const MIN_SHARE_IN_GROWTH: f64 = 0.1;
pub(super) const MIN_SHARE_IN_UNKNOWN_GROWTH: f64 = 0.7;
/// Careful growth quadruples in this time without refusals and failures, in seconds.
pub(super) const QUIET: f64 = 15.0;
/// Growth is fast below this part of the known pace.
pub(super) const BELOW_KNOWN: f64 = 0.9;
/// One success adds at most this part of the rate.
pub(super) const MAX_GROWTH: f64 = 1.0 / 8.0;
/// Calls per second that one refusal takes.
pub(super) const FINE_CUT: f64 = 0.4;
/// The part of the rate that frequent refusals take [`held_requests_drain_at_an_unknown_pace`].
pub(super) const CUT: f64 = 1.0 / 8.0;
/// The refused share that is tolerated, and the score of refusals above it that starts pacing
/// [`random_refusals_bind_only_the_refused`, `burst_with_random_refusals_is_not_paced`].
pub(super) const TOLERATED_REFUSALS: f64 = 0.08;
pub(super) const MAX_REFUSAL_SCORE: f64 = 5.0;
/// A pace ends when nobody waited longer than this, in seconds, for this long
/// [`rate_limit_at_twice_its_capacity_is_used_up_with_few_refusals`; any time from 1 to 10 s does].
pub(super) const SHORT_WAIT: f64 = 0.5;
pub(super) const CALM: Duration = Duration::from_secs(10);
/// The pace grows only within this time after somebody waited.
pub(super) const GROWTH_AFTER_QUEUE: Duration = Duration::from_secs(1);
/// The window over which the pace is measured.
pub(super) const PACE_WINDOW: Duration = Duration::from_secs(10);
/// The part of the known pace that is forgotten per window.
pub(super) const PACE_FORGOTTEN: f64 = 1.0 / 64.0;

/// Seconds of slots that a process gets at once, and how far ahead the process with the oldest request may book.
pub(super) const SLOT_HORIZON: f64 = 0.25;
pub(super) const SLOT_HORIZON_OF_OLDEST: f64 = 1.0;
/// A process whose oldest request is younger than the oldest of all by more than this gets no slots.
pub(super) const MAX_OVERTAKING: Duration = Duration::from_secs(2);

/// A load trial begins after failures prevailed for this long with at least this score.
pub(super) const TRIAL_AFTER: Duration = Duration::from_secs(30);
pub(super) const TRIAL_SCORE: f64 = 20.0;
/// Results of a trial, its shortest duration, and its duration in usual latencies.
pub(super) const TRIAL_RESULTS: u32 = 40;
pub(super) const MIN_TRIAL: f64 = 5.0;
pub(super) const TRIAL_LATENCIES: f64 = 1.5;
/// No trial is made if a success shows only after this many seconds.
pub(super) const MAX_TRIAL_LATENCY: f64 = 3.0;
/// A window of results below this success share says that the load is not the cause; so many of them in a row decide.
pub(super) const LOAD_REFUTED_BELOW: f64 = 0.85;
pub(super) const MAX_REFUTATIONS: u32 = 3;

/// Returns the length of a streak of failures that chance explains with [`FALSE_ALARM`] at the given success share.
pub(super) fn streak_limit(success_share: f64) -> f64 {
    if success_share >= 0.999 {
        return MIN_STREAK;
    }
    if success_share <= 0.001 {
        return MAX_STREAK;
    }
    let limit = (FALSE_ALARM.ln() / (1.0 - success_share).ln()).ceil();
    limit.clamp(MIN_STREAK, MAX_STREAK)
}

/// Returns the time from one failed probe to the next, after that many of them. The rarer successes were before, the less
/// does a failed probe say, and the slower grows the gap.
pub(super) fn probe_gap(failed_probes: u32, success_share: f64) -> Duration {
    let share = success_share.clamp(MIN_SHARE_OF_PROBES, INITIAL_SUCCESS_SHARE);
    let evidence = (1.0 - share).ln() / (1.0 - INITIAL_SUCCESS_SHARE).ln();
    let steps = (f64::from(failed_probes) * evidence).min(40.0);
    let gap = FIRST_PROBE_GAP * PROBE_GAP_GROWTH.powf(steps);
    Duration::from_secs_f64(gap.min(MAX_PROBE_GAP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streak_limit_grows_as_successes_get_rare() {
        let limits = [0.999, 0.94, 0.5, 0.45, 0.1, 0.0].map(streak_limit);
        assert_eq!(limits, [5.0, 5.0, 20.0, 24.0, 132.0, 150.0]);
    }

    #[test]
    fn probe_gap_grows_to_its_maximum() {
        let gaps = [0, 1, 17, u32::MAX].map(|probes| probe_gap(probes, 1.0));
        assert_eq!(gaps, [500, 625, 18_000, 18_000].map(Duration::from_millis));
        // Where a tenth of all calls succeeded, six failed probes say as much as one does otherwise.
        let seconds = |probes| probe_gap(probes, 0.1).as_secs_f64();
        assert!(seconds(5) < 0.625 && seconds(6) > 0.625, "{}", seconds(6));
        assert_eq!(probe_gap(u32::MAX, 0.0), Duration::from_secs(18));
    }
}
