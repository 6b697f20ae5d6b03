//! The table of all faults: name, arguments, description and parser. The parser and the help text are generated from
//! it.

use super::arguments::Arguments;
use super::capacity::Capacity;
use super::{CallCounts, Fault, FaultSchedule};
use crate::error_response::{DEFAULT_RATE_LIMIT_WAIT, USAGE_WINDOW};
use crate::reply::{
    Action, AnswerKind, Disconnect, ERROR_FORM_KEYWORDS, HintForm, PageForm, ProviderError,
};
use std::time::Duration;

const PING_INTERVAL: Duration = Duration::from_secs(10);
const DEFAULT_BROWNOUT_HOLD: Duration = Duration::from_secs(10);
const DEFAULT_REDIRECT_URL: &str = "https://elsewhere.invalid/";

/// One row of the table.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) arguments: &'static str,
    pub(crate) help: &'static str,
    pub(super) read: fn(&mut Arguments<'_>) -> Result<Fault, String>,
}

impl Row {
    /// Returns the syntax of the fault.
    pub(crate) fn usage(&self) -> String {
        format!("{}{}", self.name, self.arguments)
    }
}

macro_rules! row {
    ($name:literal, $arguments:literal, $help:literal, $read:expr) => {
        Row {
            name: $name,
            arguments: $arguments,
            help: $help,
            read: $read,
        }
    };
}

pub(crate) const FAULTS: [Row; 38] = [
    row!("ok", "[:KIND][,times=N]", "answers", |a| {
        let of = a.keyword(&AnswerKind::KEYWORDS)?.unwrap_or_default();
        repeated_with_kind(a, Action::Answer, of)
    }),
    row!(
        "overloaded",
        "[:TIMES]",
        "529 or 503: too much to do",
        |a| {
            let times = a.positional("TIMES")?.unwrap_or(1);
            let act = Action::ProviderError(ProviderError::Overloaded);
            Ok(FaultSchedule::Strike { act, times }.into())
        }
    ),
    row!(
        "rate-limited",
        "[:retry-after=SECONDS][,as=HINT]",
        "429 until then",
        |a| {
            let wait = a.seconds("retry-after")?.unwrap_or(DEFAULT_RATE_LIMIT_WAIT);
            let form = a
                .named_keyword("as", &HintForm::KEYWORDS)?
                .unwrap_or_default();
            Ok(FaultSchedule::RateLimit { wait, form }.into())
        }
    ),
    row!(
        "usage-limit",
        "[:reset=SECONDS]",
        "429 until the plan's window ends",
        |a| {
            let wait = a.seconds("reset")?.unwrap_or(USAGE_WINDOW);
            Ok(FaultSchedule::UsageLimit { wait }.into())
        }
    ),
    row!("overflow", "", "400 until the request is smaller", |_| Ok(
        FaultSchedule::Overflow.into()
    )),
    row!(
        "window",
        ":TOKENS[,of=KIND]",
        "400 for every request of more tokens",
        |a| {
            let limit = a.positional("TOKENS")?.ok_or("it needs TOKENS")?;
            permanent(a, Action::Window { limit })
        }
    ),
    row!(
        "too-large",
        ":BYTES[,of=KIND]",
        "413 for every request of more bytes",
        |a| {
            let limit = a.positional("BYTES")?.ok_or("it needs BYTES")?;
            permanent(a, Action::TooLarge { limit })
        }
    ),
    row!(
        "body-timeout",
        "[:times=N]",
        "408: the request took too long to come",
        |a| { repeated(a, Action::BodyTimeout) }
    ),
    row!(
        "no-prefill",
        "[:of=KIND]",
        "400 when the last words are the assistant's",
        |a| { permanent(a, Action::NoPrefill) }
    ),
    row!(
        "error",
        ":STATUS[,code=CODE][,times=N]",
        "any error status",
        |a| {
            let status = a.status()?.ok_or("it needs a STATUS")?;
            let code = a.take_named("code").map(str::to_owned);
            repeated(a, Action::Error { status, code })
        }
    ),
    row!(
        "slow-error",
        "[:STATUS][,times=N]",
        "an error whose body never ends",
        |a| {
            let status = a.status()?.unwrap_or(503);
            repeated(a, Action::SlowError { status })
        }
    ),
    row!(
        "endless-error",
        "[:STATUS][,times=N]",
        "an error with an endless body",
        |a| {
            let status = a.status()?.unwrap_or(503);
            repeated(a, Action::EndlessError { status })
        }
    ),
    row!("echo-key", "[:times=N]", "401 that repeats the key", |a| {
        repeated(a, Action::EchoKey)
    }),
    row!(
        "redirect",
        "[:to=URL][,times=N]",
        "307 to another address",
        |a| {
            let to = a
                .take_named("to")
                .unwrap_or(DEFAULT_REDIRECT_URL)
                .to_owned();
            repeated(a, Action::Redirect { to })
        }
    ),
    row!(
        "reset",
        "[:times=N]",
        "the connection is reset before any response",
        |a| { repeated(a, Action::Disconnect(Disconnect::Reset)) }
    ),
    row!(
        "close",
        "[:times=N]",
        "the connection is closed before any response",
        |a| { repeated(a, Action::Disconnect(Disconnect::Closed)) }
    ),
    row!(
        "cut",
        ":BYTES[,clean][,of=KIND][,times=N]",
        "the body ends after that many bytes",
        |a| {
            let clean = a.flag("clean");
            let bytes = a.positional("BYTES")?.ok_or("it needs BYTES")?;
            damaging(a, Action::Cut { bytes, clean })
        }
    ),
    row!(
        "drop-after",
        ":PIECES[,of=KIND][,times=N]",
        "the connection is reset after those",
        |a| {
            let pieces = a.positional("PIECES")?.ok_or("it needs PIECES")?;
            damaging(a, Action::DropAfter { pieces })
        }
    ),
    row!(
        "stall",
        "[:PIECES][,of=KIND][,times=N]",
        "silence after those",
        |a| {
            let pieces = a.positional("PIECES")?.unwrap_or(0);
            damaging(a, Action::Stall { pieces })
        }
    ),
    row!(
        "pings",
        "[:PIECES][,every=SECONDS][,of=KIND][,times=N]",
        "only pings after those",
        |a| {
            let pieces = a.positional("PIECES")?.unwrap_or(0);
            let every = a.seconds("every")?.unwrap_or(PING_INTERVAL);
            damaging(a, Action::Pings { pieces, every })
        }
    ),
    row!(
        "drip",
        ":MILLISECONDS[,of=KIND][,times=N]",
        "a wait before each piece",
        |a| {
            let millis: u32 = a
                .positional("MILLISECONDS")?
                .ok_or("it needs MILLISECONDS")?;
            let delay = Duration::from_millis(millis.into());
            damaging(a, Action::Drip { delay })
        }
    ),
    row!(
        "hold",
        ":SECONDS[,of=KIND][,times=N]",
        "a wait before the headers",
        |a| {
            let delay = a.positional_seconds("SECONDS")?.ok_or("it needs SECONDS")?;
            damaging(a, Action::Hold { delay })
        }
    ),
    row!(
        "malformed",
        "[:PIECES][,of=KIND][,times=N]",
        "a broken frame after those",
        |a| {
            let pieces = a.positional("PIECES")?.unwrap_or(0);
            damaging(a, Action::Malformed { pieces })
        }
    ),
    row!("garbage", "[:times=N]", "bytes that mean nothing", |a| {
        repeated(a, Action::Garbage)
    }),
    row!(
        "page",
        ":STATUS[,as=stream|html|status][,times=N]",
        "a web page that names it",
        |a| {
            let status = a.status()?.ok_or("it needs a STATUS")?;
            let form = a
                .named_keyword("as", &PageForm::KEYWORDS)?
                .unwrap_or_default();
            repeated(a, Action::Page { status, form })
        }
    ),
    row!(
        "in-band",
        ":TROUBLE[,after=PIECES][,as=usual|event|end][,of=KIND][,times=N]",
        "an error inside a 200",
        |a| {
            let trouble = a
                .keyword(&ProviderError::KEYWORDS)?
                .ok_or("it needs a TROUBLE")?;
            let after = a.named("after")?;
            let form = a
                .named_keyword("as", &ERROR_FORM_KEYWORDS)?
                .unwrap_or_default();
            let act = Action::StreamError {
                trouble,
                after,
                form,
            };
            damaging(a, act)
        }
    ),
    row!(
        "json-error",
        "[:TROUBLE][,times=N]",
        "an error as the body of a 200",
        |a| {
            let trouble = a
                .keyword(&ProviderError::KEYWORDS)?
                .unwrap_or(ProviderError::Overloaded);
            repeated(a, Action::JsonError(trouble))
        }
    ),
    row!(
        "no-finish",
        "[:of=KIND][,times=N]",
        "the end of the answer is missing",
        |a| { damaging(a, Action::NoFinish) }
    ),
    row!(
        "linger",
        "[:of=KIND][,times=N]",
        "answers, and the connection stays open",
        |a| { damaging(a, Action::Linger) }
    ),
    row!(
        "gzip",
        "[:always][,of=KIND][,times=N]",
        "answers compressed",
        |a| {
            let always = a.flag("always");
            damaging(a, Action::Gzip { always })
        }
    ),
    row!(
        "bomb",
        "[:times=N]",
        "4 MiB that become one frame of 4 GiB",
        |a| repeated(a, Action::Bomb)
    ),
    row!(
        "flaky",
        ":SHARE[,retry-after=SECONDS][,seed=NUMBER][,of=KIND]",
        "that share fails, or is refused with a wait",
        |a| {
            let share = a.positional_share()?.ok_or("it needs a SHARE")?;
            let refusal = a.seconds("retry-after")?;
            let rng = fastrand::Rng::with_seed(a.named("seed")?.unwrap_or(0));
            let schedule = FaultSchedule::Flaky {
                share,
                refusal,
                rng,
            };
            with_answer_kind(a, schedule)
        }
    ),
    row!(
        "capacity",
        ":requests=N[,tokens=N][,of=KIND]",
        "429 beyond that much a second",
        |a| {
            let requests = a.named("requests")?.ok_or("it needs requests=N")?;
            let capacity = Capacity::new(requests, a.named("tokens")?);
            let form = HintForm::default();
            with_answer_kind(a, FaultSchedule::Capacity { capacity, form })
        }
    ),
    row!(
        "bucket",
        ":N/s[,as=HINT][,of=KIND]",
        "429 beyond N requests a second",
        |a| {
            let requests = a.rate()?.ok_or("it needs N/s")?;
            let capacity = Capacity::new(requests, None);
            let form = a
                .named_keyword("as", &HintForm::KEYWORDS)?
                .unwrap_or(HintForm::Nowhere);
            with_answer_kind(a, FaultSchedule::Capacity { capacity, form })
        }
    ),
    row!(
        "fails-each",
        ":TIMES[,of=KIND]",
        "529 or 503 for the first TIMES calls of each request",
        |a| {
            let times = a.positional("TIMES")?.ok_or("it needs TIMES")?;
            let calls = CallCounts::default();
            with_answer_kind(a, FaultSchedule::FailsEach { times, calls })
        }
    ),
    row!(
        "brownout",
        ":SECONDS[,share=SHARE][,hold=SECONDS][,seed=NUMBER]",
        "for that long, half of all calls fail, others wait",
        |a| {
            let wait = a.positional_seconds("SECONDS")?.ok_or("it needs SECONDS")?;
            let schedule = FaultSchedule::Brownout {
                wait,
                share: a.share("share")?.unwrap_or(0.5),
                hold: a.seconds("hold")?.unwrap_or(DEFAULT_BROWNOUT_HOLD),
                rng: fastrand::Rng::with_seed(a.named("seed")?.unwrap_or(0)),
            };
            Ok(schedule.into())
        }
    ),
    row!(
        "flap",
        ":UP/DOWN[,of=KIND]",
        "answers for UP seconds, fails for DOWN, and so on",
        |a| {
            let (up, down) = a.phases()?.ok_or("it needs UP/DOWN")?;
            with_answer_kind(a, FaultSchedule::Flap { up, down })
        }
    ),
    row!(
        "outage",
        ":SECONDS",
        "529 or 503 for that long, from the first call on",
        |a| {
            let wait = a.positional_seconds("SECONDS")?.ok_or("it needs SECONDS")?;
            Ok(FaultSchedule::Outage { wait }.into())
        }
    ),
];

/// Returns a fault that applies a number of times.
fn repeated(arguments: &mut Arguments<'_>, act: Action) -> Result<Fault, String> {
    repeated_with_kind(arguments, act, AnswerKind::default())
}

/// Returns a fault that damages a number of completions of the given kind.
fn damaging(arguments: &mut Arguments<'_>, act: Action) -> Result<Fault, String> {
    let of = answer_kind(arguments)?;
    repeated_with_kind(arguments, act, of)
}

/// Returns a fault that applies to every call.
fn permanent(arguments: &mut Arguments<'_>, act: Action) -> Result<Fault, String> {
    let times = u32::MAX;
    with_answer_kind(arguments, FaultSchedule::Strike { act, times })
}

/// Returns a fault without end. It takes the kind of its completions itself, as no other fault follows it.
fn with_answer_kind(
    arguments: &mut Arguments<'_>,
    schedule: FaultSchedule,
) -> Result<Fault, String> {
    let answer_kind = answer_kind(arguments)?;
    Ok(Fault {
        schedule,
        answer_kind,
    })
}

fn answer_kind(arguments: &mut Arguments<'_>) -> Result<AnswerKind, String> {
    Ok(arguments
        .named_keyword("of", &AnswerKind::KEYWORDS)?
        .unwrap_or_default())
}

fn repeated_with_kind(
    arguments: &mut Arguments<'_>,
    act: Action,
    answer_kind: AnswerKind,
) -> Result<Fault, String> {
    let times = arguments.times()?;
    let schedule = FaultSchedule::Strike { act, times };
    Ok(Fault {
        schedule,
        answer_kind,
    })
}
