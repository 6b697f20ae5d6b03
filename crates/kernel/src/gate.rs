//! Admission: decides who may call a provider while it fails, is limited, or recovers.
//!
//! The [`Gate`] is what all processes know together about one (provider, account, model). A failure concerns its own request
//! until a streak of failures proves that nothing works. Then one request at a time probes, and after the recovery the
//! queue follows at a pace that the provider accepts. A [`ProcessQueue`] holds the requests of one process.
//!
//! Invariants: no clock, no randomness, no I/O; at most one probe holds a valid lease; nobody calls before a stated time
//! that binds the account; two requests never take a gate down. Not here: a request's own schedule (see `policy`).

mod evidence;
mod grant;
mod key;
mod outcome;
mod pace;
mod process;
mod rules;
mod summary;
mod trial;
mod view;

#[cfg(test)]
mod tests;

pub use evidence::{
    Call, Evidence, GateFailure, Pass, ProbeOutcome, Report, RequestId, RequestRecord,
    StreakReport, Urgency,
};
pub use grant::{Candidate, Grant, QueueSummary};
pub use key::{KeyMark, gate_key, gate_key_account, key_account};
pub use outcome::{CallOutcome, concerns_others};
pub use pace::Slots;
pub use process::{Action, ProcessQueue, Sync, SyncReply, has_moved};
pub use view::ProcessView;

use crate::Timestamp;
use pace::{KnownPace, Pace, PaceContext};
use serde::{Deserialize, Serialize};
use trial::LoadTrial;

/// The kind of a gate's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "GateMode")
)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Calls succeed, perhaps not all: everybody may call.
    Flowing,
    /// Nothing works, or a stated time binds all: one request at a time probes.
    Down,
    /// Calls work, but in order of arrival and at a rate.
    Paced,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
enum State {
    Flowing {
        refusal_score: f64,
        /// The score of failures that are not refusals, and the time since which it is high.
        overload_score: f64,
        overloaded_since: Timestamp,
    },
    Down(Down),
    Paced(Pace),
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Down {
    since: Timestamp,
    probe_at: Timestamp,
    failed_probes: u32,
    /// The end of the lease of the running probe.
    leased_until: Option<Timestamp>,
    /// The rate of the pace that the outage ended.
    previous_rate: Option<f64>,
}

/// Failures with no success of a call that began since the first of them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Streak {
    began: Timestamp,
    failures: f64,
    stated: Option<Timestamp>,
}

/// A false alarm, which makes the gate more careful for some time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Caution {
    factor: u32,
    since: Timestamp,
}

/// The shared state of one gate: some thirty numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gate {
    state: State,
    /// Rises with every change of the state and with every probe.
    version: u64,
    success_share: f64,
    streak: Option<Streak>,
    last_success_began: Option<Timestamp>,
    /// The latest stated time that binds everybody.
    not_before: Timestamp,
    known: KnownPace,
    trial: LoadTrial,
    caution: Option<Caution>,
    /// The number of times that the gate went down.
    downs: u32,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            state: State::flowing(Timestamp::default()),
            version: 0,
            success_share: rules::INITIAL_SUCCESS_SHARE,
            streak: None,
            last_success_began: None,
            not_before: Timestamp::default(),
            known: KnownPace::default(),
            trial: LoadTrial::default(),
            caution: None,
            downs: 0,
        }
    }
}

impl State {
    const fn flowing(now: Timestamp) -> Self {
        Self::Flowing {
            refusal_score: 0.0,
            overload_score: 0.0,
            overloaded_since: now,
        }
    }
}

// --- What the gate knows ---

impl Gate {
    /// Returns the kind of its state.
    pub const fn mode(&self) -> Mode {
        match self.state {
            State::Flowing { .. } => Mode::Flowing,
            State::Down(_) => Mode::Down,
            State::Paced(_) => Mode::Paced,
        }
    }

    /// Returns a number that rises with every change of the state.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Returns the share of calls that succeed, between 0 and 1.
    pub const fn success_share(&self) -> f64 {
        self.success_share
    }

    /// Returns the latest stated time that binds everybody.
    pub const fn not_before(&self) -> Timestamp {
        self.not_before
    }

    /// Returns the time since which the gate is down, and that of the next probe.
    pub const fn outage(&self) -> Option<(Timestamp, Timestamp)> {
        match &self.state {
            State::Down(down) => Some((down.since, down.probe_at)),
            State::Flowing { .. } | State::Paced(_) => None,
        }
    }

    /// Returns the rate of a paced queue, in calls per second.
    pub const fn rate(&self) -> Option<f64> {
        match &self.state {
            State::Paced(pace) => Some(pace.rate),
            State::Flowing { .. } | State::Down(_) => None,
        }
    }

    /// Returns how often the gate went down.
    pub const fn downs(&self) -> u32 {
        self.downs
    }

    /// Returns whether everybody may call now.
    pub fn is_open(&self, now: Timestamp) -> bool {
        self.mode() == Mode::Flowing && self.not_before <= now
    }

    pub(crate) fn streak_began(&self) -> Option<Timestamp> {
        self.streak.map(|streak| streak.began)
    }

    pub(crate) const fn last_success_began(&self) -> Option<Timestamp> {
        self.last_success_began
    }

    /// Returns the length of a streak that takes the gate down.
    pub(crate) fn streak_limit(&self, now: Timestamp) -> f64 {
        let factor = f64::from(self.caution_factor(now));
        (rules::streak_limit(self.success_share) * factor).min(rules::MAX_STREAK)
    }

    fn caution_factor(&self, now: Timestamp) -> u32 {
        match self.caution {
            Some(caution) if now.since(caution.since) <= rules::CAUTION_PERIOD => caution.factor,
            _ => 1,
        }
    }

    /// Returns the gate with times that a clock which was set back has left in the future moved to what the rules allow.
    #[must_use]
    pub fn with_times_clamped(mut self, now: Timestamp) -> Self {
        match &mut self.state {
            State::Flowing {
                overloaded_since, ..
            } => {
                *overloaded_since = (*overloaded_since).min(now);
            }
            State::Down(down) => {
                down.since = down.since.min(now);
                let latest = now + rules::probe_gap(u32::MAX, 1.0);
                down.probe_at = down.probe_at.min(latest.max(self.not_before));
                let lease = now + rules::PROBE_LEASE;
                down.leased_until = down.leased_until.map(|until| until.min(lease));
            }
            State::Paced(pace) => pace.clamp_times(now),
        }
        if let Some(streak) = &mut self.streak {
            streak.began = streak.began.min(now);
        }
        if let Some(caution) = &mut self.caution {
            caution.since = caution.since.min(now);
        }
        self.last_success_began = self.last_success_began.map(|began| began.min(now));
        self.known.clamp_times(now);
        self.trial.clamp_times(now);
        self
    }

    /// Takes over what a process has learned without the store, if it knows of a failure and this gate knows of no later
    /// success.
    pub fn rejoin(&mut self, own: &Self) {
        let knows_later = self.last_success_began > own.last_success_began;
        if self.mode() == Mode::Flowing && own.mode() != Mode::Flowing && !knows_later {
            let version = self.version.max(own.version) + 1;
            *self = Self {
                version,
                ..own.clone()
            };
        }
    }

    /// Returns a gate that knows nothing, as the successor of this one.
    #[must_use]
    pub fn forgotten(&self) -> Self {
        Self {
            version: self.version + 1,
            ..Self::default()
        }
    }

    /// Returns whether its numbers are within the bounds of the rules, so that a gate from a damaged file is not used.
    pub fn is_valid(&self) -> bool {
        let is_rate = |rate: f64| (rules::MIN_RATE..=rules::MAX_RATE).contains(&rate);
        let is_state_valid = match &self.state {
            State::Flowing { .. } => true,
            State::Down(down) => down.previous_rate.is_none_or(is_rate),
            State::Paced(pace) => is_rate(pace.rate),
        };
        is_state_valid && (0.0..=1.0).contains(&self.success_share) && self.known.rate >= 0.0
    }

    /// Lets nobody call before that time.
    pub(crate) fn bind(&mut self, stated: Timestamp) {
        self.not_before = self.not_before.max(stated);
    }

    /// Makes the gate one of a single process that has lost the others: it gets its part of the known pace, and nobody else's
    /// probe is waited for.
    pub fn detach(&mut self, processes: u32) {
        self.known.rate /= f64::from(processes.max(1));
        if let State::Down(down) = &mut self.state {
            down.leased_until = None;
        }
    }
}

// --- Evidence ---

impl Gate {
    /// Merges the report of a process and returns the permission for its queue, if it has one.
    pub fn sync(&mut self, report: &Report, queue: &QueueSummary, now: Timestamp) -> Option<Grant> {
        self.merge(report, queue.fleet_waiting, now);
        (queue.wanted > 0).then(|| self.grant(queue, now))
    }

    /// Takes the news of a process, and replies.
    pub fn exchange(&mut self, news: &Sync, now: Timestamp) -> SyncReply {
        let grant = self.sync(&news.report, &news.queue, now);
        SyncReply {
            gate: self.clone(),
            grant,
            fleet_oldest: news.queue.fleet_oldest,
        }
    }

    fn merge(&mut self, report: &Report, waiting: u32, now: Timestamp) {
        if let Some(reset) = report.account_reset.filter(|reset| *reset > now) {
            self.not_before = self.not_before.max(reset);
            if self.mode() != Mode::Down {
                self.go_down(now);
            }
            // The failures before it say nothing about the limit: only a call that begins from now on can refute it.
            self.streak = None;
            if let State::Down(down) = &mut self.state {
                down.probe_at = down.probe_at.max(self.not_before);
            }
        }
        self.learn_share(report);
        let had_streak = self.streak.is_some();
        self.learn_streak(report);
        // Its process may not have known that the gate was down.
        let is_refuted = report.is_refuted || had_streak && self.streak.is_none();
        match self.state {
            State::Down(_) => self.known.restart(now),
            State::Flowing { .. } | State::Paced(_) => self.known.count(report.completions, now),
        }
        let is_streak_full = self
            .streak
            .is_some_and(|streak| streak.failures >= self.streak_limit(now));
        match self.state {
            State::Down(down) if is_refuted => {
                // A call that began before the gate went down succeeded: the alarm was false.
                if (self.last_success_began).is_some_and(|began| began < down.since) {
                    self.be_cautious(now);
                }
                self.recover(down, waiting, now);
            }
            State::Down(down) => self.merge_down(down, report, waiting, now),
            _ if is_streak_full => self.go_down(now),
            State::Flowing { .. } => self.merge_flowing(report, now),
            State::Paced(pace) => self.merge_paced(pace, report, waiting, now),
        }
    }

    /// Failures enter the success share only when a success settles them, so an outage does not teach that failing is normal.
    fn learn_share(&mut self, report: &Report) {
        let results = report.successes.saturating_add(report.settled_failures);
        if results == 0 || self.trial.is_running() {
            return;
        }
        let share = f64::from(report.successes) / f64::from(results);
        let kept = (1.0 - rules::SHARE_WEIGHT).powf(f64::from(results));
        self.success_share += (share - self.success_share) * (1.0 - kept);
    }

    fn learn_streak(&mut self, report: &Report) {
        self.last_success_began = self.last_success_began.max(report.last_success_began);
        if self
            .streak
            .is_some_and(|streak| self.last_success_began >= Some(streak.began))
        {
            self.streak = None;
        }
        if let Some(new) = report.streak
            && Some(new.began) >= self.last_success_began
        {
            let streak = self.streak.get_or_insert(Streak {
                began: new.began,
                failures: 0.0,
                stated: None,
            });
            streak.failures += new.failures;
            streak.stated = streak.stated.max(new.stated);
        }
    }

    fn merge_flowing(&mut self, report: &Report, now: Timestamp) {
        let State::Flowing {
            refusal_score,
            overload_score,
            overloaded_since,
        } = &mut self.state
        else {
            return;
        };
        let successes = f64::from(report.successes);
        let tolerated = rules::TOLERATED_REFUSALS * successes;
        *refusal_score = (*refusal_score + report.excess_refusals - tolerated).max(0.0);
        let is_refused_often =
            report.is_refused_often || *refusal_score >= rules::MAX_REFUSAL_SCORE;
        // Before the pace is measured, a burst may have met refusals alone so far; a process that was only refused has not.
        let is_only_refused = report.is_refused_often && self.last_success_began.is_none();
        let is_known = self.known.is_measured() || is_only_refused;
        if is_refused_often && is_known {
            let rate = report.recent_rate.max(self.known.at_least_current(now));
            return self.go_paced(rate, true, now);
        }
        let failures = report.settled_failures.saturating_sub(report.refusals);
        *overload_score = (*overload_score + f64::from(failures) - successes / 3.0).max(0.0);
        if *overload_score < rules::TRIAL_SCORE {
            *overloaded_since = now;
        }
        let accepted = self.known.latest() * self.success_share;
        if now.since(*overloaded_since) >= rules::TRIAL_AFTER
            && self.trial.may_start(now)
            && accepted >= rules::INITIAL_RATE
            && report.usual_latency <= rules::MAX_TRIAL_LATENCY
        {
            self.go_paced(accepted, true, now);
            self.trial.start(self.success_share);
        }
    }

    fn merge_down(&mut self, mut down: Down, report: &Report, waiting: u32, now: Timestamp) {
        let Some((lease, outcome)) = report.probe else {
            return;
        };
        if lease != self.version {
            return;
        }
        down.leased_until = None;
        match outcome {
            ProbeOutcome::Succeeded => return self.recover(down, waiting, now),
            ProbeOutcome::Abandoned => down.probe_at = now,
            ProbeOutcome::Failed(stated) => {
                down.failed_probes = down.failed_probes.saturating_add(1);
                // It may be meant for this request alone, which waits for all of it.
                let stated = stated.map(|stated| stated.min(now + rules::MAX_WAIT_FOR_PROBE));
                self.not_before = self.not_before.max(stated.unwrap_or_default());
                let next = now + rules::probe_gap(down.failed_probes, self.success_share);
                down.probe_at = next.max(self.not_before);
            }
        }
        self.enter(State::Down(down));
    }

    fn merge_paced(&mut self, mut pace: Pace, report: &Report, waiting: u32, now: Timestamp) {
        if self.trial.judge(report, pace.began, now) {
            return self.enter(State::flowing(now));
        }
        let context = PaceContext {
            success_share: self.success_share,
            waiting,
            now,
        };
        let is_calm = pace.merge(report, &self.trial, &mut self.known, &context);
        self.state = State::Paced(pace);
        if is_calm {
            self.trial.reset();
            self.streak = None;
            self.enter(State::flowing(now));
        }
    }
}

// --- Changes of the state ---

impl Gate {
    fn enter(&mut self, state: State) {
        self.state = state;
        self.version += 1;
    }

    fn go_down(&mut self, now: Timestamp) {
        self.trial.reset();
        let stated = self.streak.and_then(|streak| streak.stated);
        self.not_before = self.not_before.max(stated.unwrap_or_default());
        let probe_at = now + rules::probe_gap(0, 1.0);
        let down = Down {
            since: now,
            probe_at: probe_at.max(self.not_before),
            failed_probes: 0,
            leased_until: None,
            previous_rate: self.rate(),
        };
        self.downs = self.downs.saturating_add(1);
        self.enter(State::Down(down));
    }

    fn go_paced(&mut self, rate: f64, is_refused: bool, now: Timestamp) {
        self.trial.reset();
        self.enter(State::Paced(Pace::new(rate, is_refused, now)));
    }

    fn be_cautious(&mut self, now: Timestamp) {
        let factor = (self.caution_factor(now) * 2).min(rules::MAX_CAUTION);
        self.caution = Some(Caution { factor, since: now });
    }

    fn recover(&mut self, down: Down, waiting: u32, now: Timestamp) {
        self.streak = None;
        self.not_before = Timestamp::default();
        let was_short = now.since(down.since) <= rules::SHORT_OUTAGE;
        match down.previous_rate {
            Some(rate) if was_short => return self.go_paced(rate, true, now),
            _ => {}
        }
        let burst = rules::INITIAL_RATE.max(self.known.rate * rules::BURST);
        if was_short || f64::from(waiting) <= burst {
            self.enter(State::flowing(now));
        } else {
            self.go_paced(self.known.initial_rate(), false, now);
        }
    }
}
