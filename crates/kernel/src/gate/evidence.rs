//! The evidence of one process: its calls in flight, its latest failures, and the report that is due.
//!
//! Invariants: failures count in the order in which their calls began, not in the order in which they failed; a call that
//! began before the streak says nothing about it; one request cannot fill a streak. Not here: the shared state (see
//! [`Gate`](super::Gate)).

use super::rules;
use super::{Gate, Mode};
use crate::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A request, numbered by its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// The permission with which a call is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pass {
    /// Nothing restricts calls.
    Open,
    /// The call took a slot at this rate, in calls per second.
    Paced(f64),
    /// The call probes for all, under a lease.
    Probe {
        /// The number of the lease.
        lease: u64,
        /// Whether nobody else waits: the call is a retry of its own schedule then, and costs what a retry costs.
        is_lone: bool,
    },
}

/// A call that is under way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Call {
    /// The request that it belongs to.
    pub request: RequestId,
    /// The time at which it began.
    pub began: Timestamp,
    /// Its permission.
    pub pass: Pass,
}

/// A failure, as far as it concerns the gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateFailure {
    /// Whether the provider refused the request because of its rate (429).
    pub is_refusal: bool,
    /// The time before which the provider wants no call.
    pub stated: Option<Timestamp>,
    /// Whether the stated time binds everybody who shares the account and the model.
    pub binds_account: bool,
}

/// The part of a request's history that the gate's rules need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRecord {
    /// The time at which the request arrived, for all of its attempts.
    pub arrived: Timestamp,
    /// The number of its failed calls.
    pub failures: u32,
    /// The number of its quick retries.
    pub quick_retries: u32,
    /// The number of its failed probes.
    pub failed_probes: u32,
    /// The streak that it contributed to last, and the number of failures that it contributed.
    streak: u64,
    counted: u32,
}

impl RequestRecord {
    /// Returns the record of a request that has just arrived.
    pub const fn new(arrived: Timestamp) -> Self {
        Self {
            arrived,
            failures: 0,
            quick_retries: 0,
            failed_probes: 0,
            streak: 0,
            counted: 0,
        }
    }
}

/// The time by which a report is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// With the next summary.
    Low,
    /// Within the interval of failures.
    Soon,
    /// At once.
    Now,
}

/// A streak of failures, as a process reports it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreakReport {
    /// Its failures that were not reported before.
    pub failures: f64,
    /// The time at which its first call began.
    pub began: Timestamp,
    /// The latest time that its failures stated.
    pub stated: Option<Timestamp>,
}

/// The result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProbeOutcome {
    /// The call succeeded.
    Succeeded,
    /// The call failed, with the time that its failure stated.
    Failed(Option<Timestamp>),
    /// The call was given up, or no request wanted to probe.
    Abandoned,
}

/// Everything that happened in a process since its last report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub(super) successes: u32,
    /// Failures that a success settled, so that they say something about the success share.
    pub(super) settled_failures: u32,
    /// Completions that were not refusals: the provider carried them.
    pub(super) completions: u32,
    pub(super) refusals: u32,
    /// Refusals beyond those that the calls in flight make up for if they succeed.
    pub(super) excess_refusals: f64,
    pub(super) is_refused_often: bool,
    pub(super) streak: Option<StreakReport>,
    pub(super) last_success_began: Option<Timestamp>,
    pub(super) account_reset: Option<Timestamp>,
    /// Completions per second, of the last seconds.
    pub(super) recent_rate: f64,
    pub(super) paced_successes: u32,
    /// The rates at which paced calls went out that failed, and that were refused.
    pub(super) overloaded_at: Vec<f64>,
    pub(super) refused_at: Vec<f64>,
    pub(super) probe: Option<(u64, ProbeOutcome)>,
    /// Whether a call succeeded that began since the streak, although the gate is down.
    pub(super) is_refuted: bool,
    /// The mean latency of successes, in seconds.
    pub(super) usual_latency: f64,
    /// The time that the oldest queued request has been ready for, in seconds.
    pub(super) waited: f64,
}

/// A counter of completions per second.
#[derive(Clone, Copy, Debug, Default)]
struct Meter {
    window_began: Timestamp,
    count: u32,
    last_rate: f64,
}

impl Meter {
    const WINDOW: f64 = 2.0;

    fn count(&mut self, now: Timestamp) {
        let elapsed = now.since(self.window_began).as_secs_f64();
        if elapsed > Self::WINDOW {
            self.last_rate = f64::from(self.count) / elapsed;
            (self.window_began, self.count) = (now, 0);
        }
        self.count += 1;
    }

    fn rate(&self, now: Timestamp) -> f64 {
        let elapsed = now.since(self.window_began).as_secs_f64();
        let current = f64::from(self.count) / elapsed.max(1.0);
        match elapsed < 2.0 * Self::WINDOW {
            true => current.max(self.last_rate),
            false => current,
        }
    }
}

/// The streak of failures with no success of a call that began since its first call.
#[derive(Clone, Copy, Debug)]
struct Streak {
    began: Timestamp,
    stated: Option<Timestamp>,
    failures: f64,
    unreported: f64,
}

/// The evidence of one process about one gate. It never leaves memory.
#[derive(Clone, Debug)]
pub struct Evidence {
    in_flight: BTreeMap<(Timestamp, RequestId), ()>,
    streak: Option<Streak>,
    /// The number of streaks so far: a request contributes to each of them anew.
    streaks: u64,
    /// Failures that do not count yet, because an older call is still in flight.
    young: BTreeSet<(Timestamp, RequestId)>,
    /// Failures since the last success.
    unsettled: u32,
    refusal_score: f64,
    /// Refusals that were not reported as excessive.
    held_refusals: f64,
    last_success_began: Option<Timestamp>,
    last_success: Option<Timestamp>,
    /// In seconds.
    usual_latency: f64,
    meter: Meter,
    report: Report,
}

impl Default for Evidence {
    fn default() -> Self {
        Self {
            in_flight: BTreeMap::new(),
            streak: None,
            streaks: 0,
            young: BTreeSet::new(),
            unsettled: 0,
            refusal_score: 0.0,
            held_refusals: 0.0,
            last_success_began: None,
            last_success: None,
            usual_latency: 5.0,
            meter: Meter::default(),
            report: Report::default(),
        }
    }
}

impl Evidence {
    /// Records that a call began.
    pub fn started(&mut self, call: &Call) {
        self.in_flight.insert((call.began, call.request), ());
    }

    /// Records that a call succeeded: the first byte of a good response arrived.
    pub fn succeeded(&mut self, call: &Call, view: &Gate, now: Timestamp) -> Urgency {
        self.in_flight.remove(&(call.began, call.request));
        let latency = now.since(call.began).as_secs_f64();
        self.usual_latency += (latency - self.usual_latency) / 16.0;
        self.report.successes += 1;
        self.report.settled_failures += std::mem::take(&mut self.unsettled);
        self.completed(now);
        self.report.last_success_began = self.report.last_success_began.max(Some(call.began));
        self.last_success_began = self.last_success_began.max(Some(call.began));
        self.last_success = self.last_success.max(Some(now));
        self.refusal_score = (self.refusal_score - rules::TOLERATED_REFUSALS).max(0.0);
        if self.streak.is_some_and(|streak| call.began >= streak.began) {
            self.end_streak();
        }
        let mut urgency = Urgency::Low;
        match call.pass {
            Pass::Open => {}
            Pass::Paced(_) => {
                self.report.paced_successes += 1;
                if view.mode() == Mode::Paced {
                    urgency = Urgency::Soon;
                }
            }
            Pass::Probe { lease, .. } => {
                self.report.probe = Some((lease, ProbeOutcome::Succeeded));
                urgency = Urgency::Now;
            }
        }
        // A stated time can take the gate down without a streak.
        let failing_since = view.outage().map(|(since, _)| since);
        let failing_since = failing_since.map(|since| view.streak_began().unwrap_or(since));
        if failing_since.is_some_and(|since| call.began >= since) {
            self.report.is_refuted = true;
            urgency = Urgency::Now;
        }
        urgency
    }

    /// Records that a call failed.
    pub fn failed(
        &mut self,
        call: &Call,
        record: &mut RequestRecord,
        failure: &GateFailure,
        view: &Gate,
        now: Timestamp,
    ) -> Urgency {
        self.in_flight.remove(&(call.began, call.request));
        record.failures = record.failures.saturating_add(1);
        let mut urgency = Urgency::Soon;
        if failure.binds_account {
            self.report.account_reset = self.report.account_reset.max(failure.stated);
            urgency = Urgency::Now;
        }
        if let Pass::Probe { lease, .. } = call.pass {
            self.report.probe = Some((lease, ProbeOutcome::Failed(failure.stated)));
            record.failed_probes = record.failed_probes.saturating_add(1);
            return Urgency::Now;
        }
        if record.failures <= rules::MAX_FAILURES_IN_SHARE {
            self.unsettled += 1;
        }
        if failure.is_refusal {
            self.refusal_score += 1.0;
            self.held_refusals += 1.0;
            self.report.refusals += 1;
        } else {
            self.completed(now);
        }
        if let Pass::Paced(rate) = call.pass {
            match failure.is_refusal {
                true => self.report.refused_at.push(rate),
                false => self.report.overloaded_at.push(rate),
            }
        }
        self.count_in_streak(call, record, failure, view, now);
        let is_refused_often = self.is_refused_often();
        let is_streak_full =
            self.streak.is_some() && self.counted_failures(now) >= view.streak_limit(now);
        if view.mode() == Mode::Flowing && is_refused_often
            || view.mode() != Mode::Down && is_streak_full
        {
            urgency = Urgency::Now;
        }
        urgency
    }

    /// Records that a call was given up, or that its result says nothing about the provider.
    pub fn abandoned(&mut self, call: &Call) -> Urgency {
        self.in_flight.remove(&(call.began, call.request));
        match call.pass {
            Pass::Open | Pass::Paced(_) => Urgency::Low,
            Pass::Probe { lease, .. } => {
                self.probe_abandoned(lease);
                Urgency::Now
            }
        }
    }

    /// Records that nobody makes the probe of that lease.
    pub(super) fn probe_abandoned(&mut self, lease: u64) {
        self.report.probe = Some((lease, ProbeOutcome::Abandoned));
    }

    /// Returns the time of the last success that this process knows of.
    pub const fn last_success(&self) -> Option<Timestamp> {
        self.last_success
    }

    /// Returns the refusals that the calls in flight make up for if they succeed. Refusals are faster than successes, so a
    /// burst of calls has refusals before it can have a success.
    fn refusals_of_calls_in_flight(&self) -> f64 {
        let calls = u32::try_from(self.in_flight.len()).unwrap_or(u32::MAX);
        rules::TOLERATED_REFUSALS * f64::from(calls)
    }

    fn is_refused_often(&self) -> bool {
        self.refusal_score - self.refusals_of_calls_in_flight() >= rules::MAX_REFUSAL_SCORE
    }

    fn completed(&mut self, now: Timestamp) {
        self.report.completions += 1;
        self.meter.count(now);
    }

    fn count_in_streak(
        &mut self,
        call: &Call,
        record: &mut RequestRecord,
        failure: &GateFailure,
        view: &Gate,
        now: Timestamp,
    ) {
        let is_old = Some(call.began) < self.last_success_began
            || self.streak.is_some_and(|streak| call.began < streak.began);
        let is_long = failure
            .stated
            .is_some_and(|stated| stated > now + rules::LONG_WAIT);
        let is_unpaced_refusal =
            failure.is_refusal && !is_long && !matches!(call.pass, Pass::Paced(_));
        if is_old || is_unpaced_refusal {
            return;
        }
        let streak = self.streak.get_or_insert_with(|| {
            self.streaks += 1;
            Streak {
                began: call.began,
                stated: None,
                failures: 0.0,
                unreported: 0.0,
            }
        });
        if record.streak != self.streaks {
            (record.streak, record.counted) = (self.streaks, 0);
        }
        let limit = rules::streak_limit(view.success_share());
        if f64::from(record.counted) >= (limit * rules::MAX_SHARE_OF_REQUEST).ceil() {
            return;
        }
        record.counted += 1;
        streak.stated = streak.stated.max(failure.stated);
        self.young.insert((call.began, call.request));
    }

    /// Returns the failures of the streak up to the oldest call that is still in flight. A call that is in flight for long
    /// holds up nothing any more.
    fn counted_failures(&mut self, now: Timestamp) -> f64 {
        let Some(streak) = &mut self.streak else {
            return 0.0;
        };
        let usual = self
            .usual_latency
            .clamp(rules::MIN_USUAL_LATENCY, rules::MAX_USUAL_LATENCY);
        let patience = Duration::from_secs_f64(rules::PATIENCE * usual);
        let earliest = now.since(Timestamp::default()).saturating_sub(patience);
        let earliest = streak.began.max(Timestamp::default() + earliest);
        let oldest = self.in_flight.range((earliest, RequestId(0))..).next();
        let young = match oldest {
            Some((oldest, ())) => {
                let still_young = self.young.split_off(&(oldest.0, RequestId(0)));
                std::mem::replace(&mut self.young, still_young)
            }
            None => std::mem::take(&mut self.young),
        };
        let counted = f64::from(u32::try_from(young.len()).unwrap_or(u32::MAX));
        streak.failures += counted;
        streak.unreported += counted;
        streak.failures
    }

    fn end_streak(&mut self) {
        self.streak = None;
        self.young.clear();
        self.streaks += 1;
    }

    /// Takes the report that is due.
    pub(super) fn take_report(&mut self, now: Timestamp) -> Report {
        self.counted_failures(now);
        let mut report = std::mem::take(&mut self.report);
        report.streak = self.streak.as_mut().and_then(|streak| {
            let failures = std::mem::take(&mut streak.unreported);
            (failures > 0.0).then_some(StreakReport {
                failures,
                began: streak.began,
                stated: streak.stated,
            })
        });
        let excess = self.held_refusals - self.refusals_of_calls_in_flight();
        report.excess_refusals = excess.max(0.0);
        self.held_refusals -= report.excess_refusals;
        report.is_refused_often = self.is_refused_often();
        if report.is_refused_often {
            self.refusal_score = 0.0;
        }
        report.recent_rate = self.meter.rate(now);
        report.usual_latency = self.usual_latency;
        report
    }

    pub(super) fn has_paced_results(&self) -> bool {
        let report = &self.report;
        report.paced_successes > 0
            || !report.refused_at.is_empty()
            || !report.overloaded_at.is_empty()
    }

    pub(super) const fn has_successes(&self) -> bool {
        self.report.successes > 0
    }

    /// Takes over what the shared state knows of the last success, and begins anew when the gate is no longer down.
    pub(super) fn observe(&mut self, view: &Gate, has_left_down: bool) {
        let began = view.last_success_began();
        if began > self.last_success_began {
            self.last_success_began = began;
            self.last_success = self.last_success.max(began);
            if self
                .streak
                .is_some_and(|streak| began >= Some(streak.began))
            {
                self.end_streak();
            }
        }
        if has_left_down {
            self.end_streak();
        }
    }
}
