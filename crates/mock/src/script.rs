//! What goes wrong, in which order.
//!
//! A script is a list of faults joined by `+`; when all are over, every call is answered. It is a pure state machine:
//! the time and the size of a request come in, the reply comes out.

use outlast_kernel::{Timestamp, text};
use std::str::FromStr;
use std::time::Duration;

const FAULTS: &str = "ok, overloaded[:TIMES], rate-limited[:retry-after=SECONDS], usage-limit[:reset=SECONDS], overflow, \
     drop-after:PIECES, stall, flaky:SHARE[,seed=NUMBER]";
const RATE_LIMIT_SECONDS: u64 = 2;
const USAGE_WINDOW_SECONDS: u64 = 5 * 3600;

/// A script that cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("script `{script}`, at `{fault}`: {problem}; faults are joined by `+`: {FAULTS}")]
pub struct Error {
    script: String,
    fault: String,
    problem: String,
}

/// What one call gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The answer.
    Answer,
    /// 529, and a message that says so.
    Overloaded,
    /// 429 with `retry-after`.
    RateLimited {
        /// What is left of the wait.
        wait: Duration,
    },
    /// 429 with the headers of a plan's window.
    UsageLimit {
        /// When the window ends.
        reset: Timestamp,
        /// What is left of it.
        wait: Duration,
    },
    /// 400: the prompt is too long.
    Overflow,
    /// 500.
    ServerError,
    /// The connection is reset before an answer.
    Reset,
    /// The answer's beginning, then the connection is gone.
    DropAfter {
        /// How many pieces come through.
        pieces: u32,
    },
    /// The response begins and falls silent.
    Stall,
}

/// A script and how far it has been played.
#[derive(Clone, Debug)]
pub struct Script {
    faults: Vec<Fault>,
    next: usize,
    memory: Memory,
}

/// What the fault that is being played has done so far.
#[derive(Clone, Debug, Default)]
struct Memory {
    struck: u32,
    /// Until when its limit holds.
    until: Option<Timestamp>,
    /// The size of the request that overflowed.
    overflowed: Option<usize>,
}

#[derive(Clone, Debug)]
enum Fault {
    Ok,
    Overloaded { times: u32 },
    RateLimited { seconds: u64 },
    UsageLimit { seconds: u64 },
    Overflow,
    DropAfter { pieces: u32 },
    Stall,
    Flaky { share: f64, rng: fastrand::Rng },
}

// --- playing ---

impl Script {
    /// What the next call gets. `size` is the length of its body.
    pub fn reply(&mut self, now: Timestamp, size: usize) -> Reply {
        while let Some(fault) = self.faults.get_mut(self.next) {
            if let Some(reply) = fault.strike(&mut self.memory, now, size) {
                self.memory.struck = self.memory.struck.saturating_add(1);
                return reply;
            }
            self.next += 1;
            self.memory = Memory::default();
        }
        Reply::Answer
    }
}

impl Fault {
    /// Its reply, or `None` when it is over.
    fn strike(&mut self, memory: &mut Memory, now: Timestamp, size: usize) -> Option<Reply> {
        let once = |reply| (memory.struck == 0).then_some(reply);
        match self {
            Self::Ok => once(Reply::Answer),
            Self::Overloaded { times } => (memory.struck < *times).then_some(Reply::Overloaded),
            Self::RateLimited { seconds } => {
                let wait = memory
                    .until
                    .get_or_insert(now + Duration::from_secs(*seconds))
                    .since(now);
                (!wait.is_zero()).then_some(Reply::RateLimited { wait })
            }
            Self::UsageLimit { seconds } => {
                let reset = *memory
                    .until
                    .get_or_insert(now + Duration::from_secs(*seconds));
                let wait = reset.since(now);
                (!wait.is_zero()).then_some(Reply::UsageLimit { reset, wait })
            }
            // A smaller request gets through, as it would with a real window.
            Self::Overflow => {
                (size >= *memory.overflowed.get_or_insert(size)).then_some(Reply::Overflow)
            }
            Self::DropAfter { pieces } => once(Reply::DropAfter { pieces: *pieces }),
            Self::Stall => once(Reply::Stall),
            Self::Flaky { share, rng } => Some(flaky(*share, rng)),
        }
    }
}

fn flaky(share: f64, rng: &mut fastrand::Rng) -> Reply {
    if rng.f64() >= share {
        return Reply::Answer;
    }
    [Reply::Overloaded, Reply::ServerError, Reply::Reset][rng.usize(..3)]
}

// --- reading ---

impl FromStr for Script {
    type Err = Error;

    fn from_str(script: &str) -> Result<Self, Error> {
        let read = |fault: &str| {
            parse_fault(fault).map_err(|problem| Error {
                script: text::bounded(script, 120).into_owned(),
                fault: text::bounded(fault, 60).into_owned(),
                problem,
            })
        };
        let faults = script
            .split('+')
            .map(|fault| read(fault.trim()))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            faults,
            next: 0,
            memory: Memory::default(),
        })
    }
}

fn parse_fault(fault: &str) -> Result<Fault, String> {
    let (name, rest) = fault.split_once(':').unwrap_or((fault, ""));
    let mut arguments = Arguments::read(rest);
    let fault = match name {
        "ok" => Fault::Ok,
        "overloaded" => Fault::Overloaded {
            times: arguments.positional("TIMES")?.unwrap_or(1),
        },
        "rate-limited" => Fault::RateLimited {
            seconds: arguments
                .named("retry-after")?
                .unwrap_or(RATE_LIMIT_SECONDS),
        },
        "usage-limit" => Fault::UsageLimit {
            seconds: arguments.named("reset")?.unwrap_or(USAGE_WINDOW_SECONDS),
        },
        "overflow" => Fault::Overflow,
        "drop-after" => Fault::DropAfter {
            pieces: arguments.positional("PIECES")?.ok_or("it needs PIECES")?,
        },
        "stall" => Fault::Stall,
        "flaky" => Fault::Flaky {
            share: share(arguments.positional("SHARE")?.ok_or("it needs a SHARE")?)?,
            rng: fastrand::Rng::with_seed(arguments.named("seed")?.unwrap_or(0)),
        },
        "" => return Err("a fault is missing".to_owned()),
        _ => return Err("there is no such fault".to_owned()),
    };
    arguments.finish()?;
    Ok(fault)
}

fn share(share: f64) -> Result<f64, String> {
    if (0.0..=1.0).contains(&share) {
        Ok(share)
    } else {
        Err("SHARE lies between 0 and 1".to_owned())
    }
}

/// The arguments of one fault; each is taken once, and what is left over is an error.
struct Arguments<'a>(Vec<&'a str>);

impl<'a> Arguments<'a> {
    fn read(text: &'a str) -> Self {
        Self(
            text.split(',')
                .map(str::trim)
                .filter(|argument| !argument.is_empty())
                .collect(),
        )
    }

    fn positional<T: FromStr>(&mut self, name: &str) -> Result<Option<T>, String> {
        match self.0.iter().position(|argument| !argument.contains('=')) {
            Some(place) => number(name, self.0.remove(place)).map(Some),
            None => Ok(None),
        }
    }

    fn named<T: FromStr>(&mut self, name: &str) -> Result<Option<T>, String> {
        let value = |argument: &'a str| {
            argument
                .split_once('=')
                .filter(|(key, _)| *key == name)
                .map(|(_, value)| value)
        };
        match self.0.iter().position(|argument| value(argument).is_some()) {
            Some(place) => number(name, value(self.0.remove(place)).unwrap_or_default()).map(Some),
            None => Ok(None),
        }
    }

    fn finish(self) -> Result<(), String> {
        self.0.first().map_or(Ok(()), |extra| {
            Err(format!("`{extra}` has no meaning here"))
        })
    }
}

fn number<T: FromStr>(name: &str, value: &str) -> Result<T, String> {
    value
        .parse()
        .map_err(|_| format!("{name} is a number, not `{value}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn script(text: &str) -> Script {
        text.parse().unwrap()
    }

    fn play(text: &str, calls: usize) -> Vec<Reply> {
        let mut script = script(text);
        (0..calls).map(|_| script.reply(at(0), 100)).collect()
    }

    #[test]
    fn faults_strike_as_often_as_they_say() {
        use Reply::{Answer, DropAfter, Overloaded, Stall};
        assert_eq!(play("ok", 2), [Answer, Answer]);
        assert_eq!(
            play("overloaded:3", 4),
            [Overloaded, Overloaded, Overloaded, Answer]
        );
        assert_eq!(play("overloaded", 2), [Overloaded, Answer]);
        assert_eq!(play("drop-after:5", 2), [DropAfter { pieces: 5 }, Answer]);
        assert_eq!(
            play("ok+overloaded + stall", 4),
            [Answer, Overloaded, Stall, Answer]
        );
    }

    #[test]
    fn a_limit_holds_until_its_time_and_counts_down() {
        let mut limited = script("rate-limited:retry-after=2");
        let wait = |seconds| Reply::RateLimited {
            wait: Duration::from_secs(seconds),
        };
        assert_eq!(limited.reply(at(10), 0), wait(2));
        assert_eq!(limited.reply(at(11), 0), wait(1));
        assert_eq!(limited.reply(at(12), 0), Reply::Answer);
        let mut window = script("usage-limit");
        assert_eq!(
            window.reply(at(0), 0),
            Reply::UsageLimit {
                reset: at(18_000),
                wait: Duration::from_secs(18_000)
            }
        );
        assert_eq!(window.reply(at(18_000), 0), Reply::Answer);
    }

    #[test]
    fn an_overflow_stays_until_the_request_shrinks() {
        let mut overflow = script("overflow");
        assert_eq!(overflow.reply(at(0), 100), Reply::Overflow);
        assert_eq!(overflow.reply(at(0), 100), Reply::Overflow);
        assert_eq!(overflow.reply(at(0), 60), Reply::Answer);
    }

    #[test]
    fn the_same_seed_fails_the_same_way() {
        assert_eq!(play("flaky:0.3,seed=7", 200), play("flaky:0.3,seed=7", 200));
        assert_ne!(play("flaky:0.3,seed=7", 200), play("flaky:0.3,seed=8", 200));
        let failed = play("flaky:0.3,seed=7", 1000)
            .iter()
            .filter(|reply| **reply != Reply::Answer)
            .count();
        assert!((250..350).contains(&failed), "{failed} of 1000");
    }

    #[test]
    fn a_bad_script_names_the_place_and_the_remedy() {
        let table = [
            ("overlaoded:3", "`overlaoded:3`: there is no such fault"),
            ("ok+", "at ``: a fault is missing"),
            ("overloaded:many", "TIMES is a number, not `many`"),
            ("rate-limited:retry=2", "`retry=2` has no meaning here"),
            ("drop-after", "it needs PIECES"),
            ("flaky:1.5", "SHARE lies between 0 and 1"),
            ("flaky:nan", "SHARE lies between 0 and 1"),
            ("overloaded:-1", "TIMES is a number"),
        ];
        for (text, part) in table {
            let error = text.parse::<Script>().unwrap_err().to_string();
            assert!(
                error.contains(part) && error.contains("faults are joined by"),
                "{error}"
            );
        }
    }
}
