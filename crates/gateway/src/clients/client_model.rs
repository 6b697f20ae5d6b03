//! A model of a client's timers in virtual time, so that hours of waiting take no time to test.
//!
//! The numbers are those of the clients themselves and are written down a second time on purpose: nothing here reads
//! the table that is tested with it.

mod rows;

use super::{HoldEnding, KeepAliveAction, KeepAliveSchedule, Profile, ResponseFormat};
use outlast_kernel::Timestamp;
use std::time::Duration;

pub(super) use rows::{ALL, CLAUDE_CODE, by_name};

/// The time limits of a client, and its reaction when they are exceeded.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientModel {
    pub(super) name: &'static str,
    /// The row of the table that is meant for it.
    pub(super) profile: &'static str,
    pub(super) form: ResponseFormat,
    /// The time that it waits for headers, in seconds.
    pub(super) before_headers: Option<u64>,
    /// Whether an interim response restarts that time; `Err` if the client takes one for the response.
    pub(super) interim: Result<bool, ()>,
    /// The time that it waits for headers regardless of interim responses, in seconds.
    pub(super) until_headers: Option<u64>,
    /// The silence that it tolerates after the headers, in seconds.
    pub(super) idle: Option<u64>,
    /// The unit of activity that ends a silence.
    pub(super) activity_unit: ActivityUnit,
    /// The number of keep-alive events in a row that count.
    pub(super) budget: Option<u32>,
    /// The time that one request may take, in seconds.
    pub(super) total: Option<u64>,
    /// The number of times that it sends the request again.
    pub(super) resends: u32,
    /// The wait before the n-th of these, in milliseconds.
    pub(super) backoff: fn(u32) -> u64,
    /// The longest `Retry-After` that it obeys, in seconds, and its reaction to a longer one.
    pub(super) max_retry_after: u64,
    pub(super) on_excess_retry_after: ExcessRetryAfter,
    /// Its reaction when a response breaks off after its headers.
    pub(super) on_disconnect: DisconnectReaction,
    /// Returns whether these bytes break the client.
    pub(super) rejects_bytes: fn(&[u8]) -> bool,
    /// The longest outage that it can be kept alive through, in seconds; `None`: any.
    pub(super) max_outage: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ActivityUnit {
    Bytes,
    Events,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExcessRetryAfter {
    Ignored,
    Fatal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DisconnectReaction {
    Resends,
    Fails,
    /// Claude Code: it sends the request again after a dropped connection, but after two silences it stops streaming,
    /// and tolerates 300 s.
    StopsStreaming,
}

/// The component between the client and its provider.
#[derive(Clone, Copy, Debug)]
pub(super) enum GatewayMode {
    /// The gateway under test, and whether it learns of failures.
    KeptAlive(&'static Profile, FailureVisibility),
    /// A gateway that sends nothing at all.
    NoResponse,
    /// A gateway that sends headers, and then nothing.
    HeadersOnly,
    /// A gateway that sends headers, and then this frame at an interval in seconds.
    Frames(&'static [u8], u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureVisibility {
    Failing,
    Unreported,
}

/// The time at which the provider answers.
#[derive(Clone, Copy, Debug)]
pub(super) enum ProviderResponse {
    /// From that second on.
    From(u64),
    /// Each request, that many seconds after it arrived.
    After(u64),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    /// The time at which it was answered, in seconds; `None`: it gave up.
    pub(super) served: Option<f64>,
    pub(super) gave_up: Option<f64>,
    pub(super) sends: u32,
    /// The number of writes that only kept it alive.
    pub(super) keepalive_writes: u32,
    /// The shortest time between two of these, in seconds.
    pub(super) pace: f64,
}

/// The end of one request.
enum RequestEnd {
    Served,
    /// The client's own timers ended the request, before or after the headers.
    ClientTimedOut {
        had_headers: bool,
    },
    Refused {
        retry_after: Duration,
        status: u16,
    },
    Disconnected,
    ErrorFrame(String),
    ProtocolError,
}

/// The delay of every action on a busy gateway.
const LATE: Duration = Duration::from_secs(5);

impl ClientModel {
    /// Sends the request, and resends it, until it is answered or the client gives up.
    pub(super) fn run(mut self, way: GatewayMode, answer: ProviderResponse) -> Outcome {
        let mut now = Timestamp::default();
        let mut outcome = Outcome {
            served: None,
            gave_up: None,
            sends: 0,
            keepalive_writes: 0,
            pace: f64::INFINITY,
        };
        let mut silences = 0;
        loop {
            outcome.sends += 1;
            let request = Request {
                answered: answer.to(now),
                gateway: Gateway::new(way, self.form, now),
                watch: ClientTimers::new(now),
            };
            let (end, at) = self.send(request, &mut outcome);
            let seconds = at.since(Timestamp::default()).as_secs_f64();
            if matches!(end, RequestEnd::Served) {
                outcome.served = Some(seconds);
                return outcome;
            }
            if matches!(end, RequestEnd::ClientTimedOut { had_headers: true }) {
                silences += 1;
            }
            let pause = self.pause(&end, outcome.sends);
            let (Some(pause), true) = (pause, outcome.sends <= self.resends) else {
                outcome.gave_up = Some(seconds);
                return outcome;
            };
            if self.on_disconnect == DisconnectReaction::StopsStreaming && silences == 2 {
                self.form = ResponseFormat::Whole;
                self.total = Some(300);
            }
            now = at + pause;
        }
    }

    /// Returns the wait after the given end; `None` if the client does not send the request again.
    fn pause(&self, end: &RequestEnd, sends: u32) -> Option<Duration> {
        let own = Duration::from_millis((self.backoff)(sends));
        match end {
            RequestEnd::Served | RequestEnd::ProtocolError => None,
            RequestEnd::ClientTimedOut { had_headers: false } => Some(own),
            RequestEnd::ClientTimedOut { had_headers: true } | RequestEnd::Disconnected => {
                (self.on_disconnect != DisconnectReaction::Fails).then_some(own)
            }
            RequestEnd::Refused { status: 529, .. } => None,
            RequestEnd::Refused { retry_after, .. } => {
                match (
                    retry_after.as_secs() <= self.max_retry_after,
                    self.on_excess_retry_after,
                ) {
                    (true, _) => Some(own.max(*retry_after)),
                    (false, ExcessRetryAfter::Ignored) => Some(own),
                    (false, ExcessRetryAfter::Fatal) => None,
                }
            }
            RequestEnd::ErrorFrame(frame) => frame.contains("Please try again in ").then_some(own),
        }
    }

    fn send(&self, request: Request, outcome: &mut Outcome) -> (RequestEnd, Timestamp) {
        let Request {
            answered,
            mut gateway,
            mut watch,
        } = request;
        let mut acted = None;
        loop {
            let next = gateway.next();
            let deadline = watch.deadline(self);
            let act_at = next.as_ref().map(|(at, _)| *at);
            let first = [Some(answered), deadline, act_at]
                .into_iter()
                .flatten()
                .min();
            if first == deadline {
                let had_headers = watch.headers;
                return (
                    RequestEnd::ClientTimedOut { had_headers },
                    first.unwrap_or(answered),
                );
            }
            let Some((at, act)) = next.filter(|(at, _)| *at < answered) else {
                return (RequestEnd::Served, answered);
            };
            let is_beat = matches!(
                act,
                KeepAliveAction::SendInterim | KeepAliveAction::SendHeartbeat(_)
            );
            if let (Some(last), true) = (acted.replace(at), is_beat) {
                outcome.pace = outcome.pace.min(at.since(last).as_secs_f64());
            }
            gateway.done(at);
            outcome.keepalive_writes += 1;
            if let Some(end) = watch.take(self, act, at) {
                return (end, at);
            }
        }
    }
}

impl ProviderResponse {
    fn to(self, asked: Timestamp) -> Timestamp {
        match self {
            Self::From(second) => asked.max(Timestamp::default() + Duration::from_secs(second)),
            Self::After(seconds) => asked + Duration::from_secs(seconds),
        }
    }
}

/// One request in progress.
struct Request {
    /// The time at which the provider answers it.
    answered: Timestamp,
    gateway: Gateway,
    watch: ClientTimers,
}

/// The timers of a client for one request.
struct ClientTimers {
    start: Timestamp,
    last: Timestamp,
    headers: bool,
    signs: u32,
}

impl ClientTimers {
    fn new(start: Timestamp) -> Self {
        Self {
            start,
            last: start,
            headers: false,
            signs: 0,
        }
    }

    fn deadline(&self, model: &ClientModel) -> Option<Timestamp> {
        let after = |from: Timestamp, limit: Option<u64>| Some(from + Duration::from_secs(limit?));
        let timers = if self.headers {
            [after(self.last, model.idle), None]
        } else {
            [
                after(self.last, model.before_headers),
                after(self.start, model.until_headers),
            ]
        };
        timers
            .into_iter()
            .chain([after(self.start, model.total)])
            .flatten()
            .min()
    }

    /// Processes an action of the gateway; returns the end of the request, if the action is one.
    fn take(
        &mut self,
        model: &ClientModel,
        act: KeepAliveAction,
        now: Timestamp,
    ) -> Option<RequestEnd> {
        match act {
            KeepAliveAction::SendInterim => match model.interim {
                Ok(counts) if counts => self.last = now,
                Ok(_) => {}
                Err(()) => return Some(RequestEnd::ProtocolError),
            },
            KeepAliveAction::SendHeaders => {
                assert!(!self.headers, "{}: headers twice", model.name);
                self.headers = true;
                self.last = now;
            }
            KeepAliveAction::SendHeartbeat(bytes) => return self.beat(model, bytes, now),
            KeepAliveAction::EndHold(ending) => return Some(self.end(model, ending)),
        }
        None
    }

    fn beat(&mut self, model: &ClientModel, bytes: &[u8], now: Timestamp) -> Option<RequestEnd> {
        assert!(self.headers, "{}: a beat before headers", model.name);
        if (model.rejects_bytes)(bytes) {
            return Some(RequestEnd::ProtocolError);
        }
        let is_event = bytes.starts_with(b"data:") || bytes.windows(6).any(|w| w == b"\ndata:");
        self.signs += 1;
        let counts = model.activity_unit == ActivityUnit::Bytes || is_event;
        if counts && model.budget.is_none_or(|budget| self.signs <= budget) {
            self.last = now;
        }
        None
    }

    fn end(&self, model: &ClientModel, ending: HoldEnding) -> RequestEnd {
        match ending {
            HoldEnding::Disconnect => RequestEnd::Disconnected,
            HoldEnding::ErrorFrame(frame) => RequestEnd::ErrorFrame(frame),
            HoldEnding::Status {
                status,
                retry_after,
            } => {
                assert!(!self.headers, "{}: a second status", model.name);
                RequestEnd::Refused {
                    retry_after,
                    status,
                }
            }
        }
    }
}

/// The gateway as the model sees it.
enum Gateway {
    KeptAlive(Box<KeepAliveSchedule>),
    Other {
        way: GatewayMode,
        last: Timestamp,
        headers: bool,
    },
}

impl Gateway {
    fn new(way: GatewayMode, form: ResponseFormat, start: Timestamp) -> Self {
        let GatewayMode::KeptAlive(profile, told) = way else {
            return Self::Other {
                way,
                last: start,
                headers: false,
            };
        };
        let mut keeping = KeepAliveSchedule::new(profile, form, start);
        if told == FailureVisibility::Failing {
            keeping.set_retry_at(Some(start + Duration::from_secs(1800)));
        }
        Self::KeptAlive(Box::new(keeping))
    }

    fn next(&self) -> Option<(Timestamp, KeepAliveAction)> {
        match self {
            Self::KeptAlive(keeping) => keeping.next_action().map(|(at, act)| (at + LATE, act)),
            Self::Other {
                way: GatewayMode::NoResponse,
                ..
            } => None,
            Self::Other {
                headers: false,
                last,
                ..
            } => Some((*last, KeepAliveAction::SendHeaders)),
            Self::Other {
                way: GatewayMode::Frames(frame, pace),
                last,
                ..
            } => Some((
                *last + Duration::from_secs(*pace),
                KeepAliveAction::SendHeartbeat(frame),
            )),
            Self::Other { .. } => None,
        }
    }

    fn done(&mut self, now: Timestamp) {
        match self {
            Self::KeptAlive(keeping) => keeping.mark_done(now),
            Self::Other { last, headers, .. } => {
                *last = now;
                *headers = true;
            }
        }
    }
}
