//! The script of the mock provider: the faults and their order.
//!
//! A script is a list of faults joined by `+`; when all are over, every call succeeds. It is a pure state machine: the
//! time and the body of a request come in, the reply comes out.
//! Not here: the bytes of a reply (see `plan`).

mod arguments;
mod capacity;
mod fault_table;
mod help;

use crate::reply::{Action, AnswerKind, Disconnect, HintForm, ProviderError, Reply};
use arguments::Arguments;
use capacity::Capacity;
pub(crate) use fault_table::FAULTS;
pub use help::help;
use outlast_kernel::{Timestamp, text};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::str::FromStr;
use std::time::Duration;

/// The approximate number of bytes of a request per token.
pub(crate) const BYTES_PER_TOKEN: usize = 4;
const MAX_SCRIPT_BYTES: usize = 4096;

/// A syntax error in a script.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("script `{script}`, at `{fault}`: {problem}; faults are joined by `+`{remedy}")]
pub struct Error {
    script: String,
    fault: String,
    problem: String,
    remedy: String,
}

/// A script and its state.
#[derive(Clone, Debug)]
pub struct Script {
    text: String,
    faults: Vec<(String, Fault)>,
    next: usize,
    state: FaultState,
}

/// The state of the current fault.
#[derive(Clone, Debug, Default)]
struct FaultState {
    strikes: u32,
    /// The time until which the fault holds, or from which its phases are counted.
    until: Option<Timestamp>,
    /// The size of the request that overflowed.
    overflow_bytes: Option<usize>,
}

/// A fault and the kind of completion that it damages.
#[derive(Clone, Debug)]
struct Fault {
    schedule: FaultSchedule,
    answer_kind: AnswerKind,
}

impl From<FaultSchedule> for Fault {
    fn from(schedule: FaultSchedule) -> Self {
        let answer_kind = AnswerKind::default();
        Self {
            schedule,
            answer_kind,
        }
    }
}

/// The condition under which a fault applies, and its end.
#[derive(Clone, Debug)]
enum FaultSchedule {
    /// Applies a number of times.
    Strike { act: Action, times: u32 },
    /// Applies until its time has passed.
    RateLimit { wait: Duration, form: HintForm },
    /// Applies until its time has passed.
    UsageLimit { wait: Duration },
    /// Applies until its time has passed.
    Outage { wait: Duration },
    /// Applies until the request is smaller.
    Overflow,
    /// Applies forever, at random.
    Flaky {
        share: f64,
        /// Failed calls are refused with this wait, instead of failing in different ways.
        refusal: Option<Duration>,
        rng: fastrand::Rng,
    },
    /// Applies to the first calls of each request.
    FailsEach { times: u32, calls: CallCounts },
    /// Applies until its time has passed: a share of calls fails, and all others are held.
    Brownout {
        wait: Duration,
        share: f64,
        hold: Duration,
        rng: fastrand::Rng,
    },
    /// Applies forever, for a while at a time.
    Flap { up: Duration, down: Duration },
    /// Applies forever, to the calls beyond the capacity.
    Capacity { capacity: Capacity, form: HintForm },
}

/// The calls of each request so far; bounded, so that an old request may begin anew.
#[derive(Clone, Debug, Default)]
struct CallCounts(BTreeMap<u64, u32>);

impl CallCounts {
    const MAX_REQUESTS: usize = 100_000;

    /// Counts a call, and returns the number of earlier ones.
    fn count(&mut self, request: u64) -> u32 {
        if self.0.len() >= Self::MAX_REQUESTS && !self.0.contains_key(&request) {
            self.0.pop_first();
        }
        let calls = self.0.entry(request).or_default();
        *calls = calls.saturating_add(1);
        *calls - 1
    }
}

// --- execution ---

impl Script {
    /// Returns the script as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the reply to the next call. `body` is that of its request, by which calls of one request are recognised.
    pub fn next_reply(&mut self, now: Timestamp, body: &[u8]) -> Reply {
        while let Some((written, fault)) = self.faults.get_mut(self.next) {
            if let Some(action) = fault.schedule.next_action(&mut self.state, now, body) {
                self.state.strikes = self.state.strikes.saturating_add(1);
                return Reply {
                    fault: written.clone(),
                    action,
                    answer_kind: fault.answer_kind,
                };
            }
            self.next += 1;
            self.state = FaultState::default();
        }
        Reply {
            fault: "ok".to_owned(),
            action: Action::Answer,
            answer_kind: AnswerKind::default(),
        }
    }
}

impl FaultSchedule {
    /// Returns the fault's action, or `None` when the fault is over.
    fn next_action(
        &mut self,
        memory: &mut FaultState,
        now: Timestamp,
        body: &[u8],
    ) -> Option<Action> {
        let size = body.len();
        let mut hold = |wait: Duration| {
            let until = *memory.until.get_or_insert(now + wait);
            let left = until.since(now);
            (!left.is_zero()).then_some((left, until))
        };
        match self {
            Self::Strike { act, times } => (memory.strikes < *times).then(|| act.clone()),
            Self::RateLimit { wait, form } => {
                let (form, (wait, until)) = (*form, hold(*wait)?);
                Some(Action::RateLimit { wait, until, form })
            }
            Self::UsageLimit { wait } => {
                let (wait, until) = hold(*wait)?;
                Some(Action::UsageLimit { wait, until })
            }
            Self::Outage { wait } => {
                hold(*wait).map(|_| Action::ProviderError(ProviderError::Overloaded))
            }
            // A smaller request succeeds, as it would with a real context window.
            Self::Overflow => {
                let overflowed = *memory.overflow_bytes.get_or_insert(size);
                (size >= overflowed).then_some(Action::ProviderError(ProviderError::Overflow))
            }
            Self::Flaky {
                share,
                refusal,
                rng,
            } => Some(flaky_action(*share, *refusal, now, rng)),
            Self::FailsEach { times, calls } => Some(fail_if(calls.count(hash(body)) < *times)),
            Self::Brownout {
                wait,
                share,
                hold: delay,
                rng,
            } => hold(*wait).map(|_| match rng.f64() < *share {
                true => Action::ProviderError(ProviderError::Overloaded),
                false => Action::Hold { delay: *delay },
            }),
            Self::Flap { up, down } => {
                let since = now.since(*memory.until.get_or_insert(now)).as_millis();
                let phase = since.checked_rem((*up + *down).as_millis());
                Some(fail_if(phase.unwrap_or_default() >= up.as_millis()))
            }
            Self::Capacity { capacity, form } => Some(capacity_action(capacity, *form, now, size)),
        }
    }
}

fn flaky_action(
    share: f64,
    refusal: Option<Duration>,
    now: Timestamp,
    rng: &mut fastrand::Rng,
) -> Action {
    if rng.f64() >= share {
        return Action::Answer;
    }
    if let Some(wait) = refusal {
        return Action::RateLimit {
            wait,
            until: now + wait,
            form: HintForm::default(),
        };
    }
    match rng.u8(..3) {
        0 => Action::ProviderError(ProviderError::Overloaded),
        1 => Action::ProviderError(ProviderError::ServerError),
        _ => Action::Disconnect(Disconnect::Reset),
    }
}

fn fail_if(fails: bool) -> Action {
    match fails {
        true => Action::ProviderError(ProviderError::Overloaded),
        false => Action::Answer,
    }
}

fn hash(body: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    hasher.finish()
}

fn capacity_action(capacity: &mut Capacity, form: HintForm, now: Timestamp, size: usize) -> Action {
    let tokens = u64::try_from(size / BYTES_PER_TOKEN).unwrap_or(u64::MAX);
    match capacity.take(now, tokens) {
        Ok(()) => Action::Answer,
        Err(wait) => Action::RateLimit {
            wait,
            until: now + wait,
            form,
        },
    }
}

/// Returns whether a text is meant as a script: its first word is the name of a fault.
pub(crate) fn starts_with_fault_name(text: &str) -> bool {
    let first = text.split([':', '+']).next().unwrap_or_default().trim();
    fault_table::FAULTS.iter().any(|row| row.name == first)
}

// --- parsing ---

impl FromStr for Script {
    type Err = Error;

    fn from_str(script: &str) -> Result<Self, Error> {
        let error = |fault: &str, (problem, remedy): (String, String)| Error {
            script: text::bounded(script, 120).into_owned(),
            fault: text::bounded(fault, 60).into_owned(),
            problem,
            remedy,
        };
        if script.len() > MAX_SCRIPT_BYTES {
            let problem = format!("a script has at most {MAX_SCRIPT_BYTES} bytes");
            return Err(error(script, (problem, String::new())));
        }
        let read = |written: &str| match parse_fault(written) {
            Ok(fault) => Ok((written.to_owned(), fault)),
            Err(why) => Err(error(written, why)),
        };
        let faults = script.split('+').map(|one| read(one.trim()));
        Ok(Self {
            text: script.to_owned(),
            faults: faults.collect::<Result<_, _>>()?,
            next: 0,
            state: FaultState::default(),
        })
    }
}

/// Parses one fault; the error is the problem and the correct usage.
fn parse_fault(written: &str) -> Result<Fault, (String, String)> {
    let (name, rest) = written.split_once(':').unwrap_or((written, ""));
    let Some(row) = FAULTS.iter().find(|row| row.name == name) else {
        let problem = match name {
            "" => "a fault is missing",
            _ => "there is no such fault",
        };
        let names: Vec<&str> = FAULTS.iter().map(|row| row.name).collect();
        return Err((problem.to_owned(), format!(": {}", names.join(", "))));
    };
    let mut arguments = Arguments::parse(rest);
    let fault = (row.read)(&mut arguments).and_then(|fault| {
        arguments.finish()?;
        Ok(fault)
    });
    fault.map_err(|problem| (problem, format!(", this one is written {}", row.usage())))
}

#[cfg(test)]
#[path = "script_tests.rs"]
mod tests;
