//! The most recent requests with their attempts, for display: a timeline, and the changes since the last look.
//!
//! Invariants: the log is bounded in number and in bytes, however many requests there are and however long they are
//! held; it holds no body and no key, and texts from outside are cleaned as in the event log; recording costs next to
//! nothing, as it happens in the middle of a request. Finished requests are dropped first. Not here: all waiting
//! requests (see `holds`), and permanent records (see `log`).

use crate::observe::log::{self, Event, EventKind, Outcome, Record, RequestRef, Sink};
use outlast_dialect::Dialect;
use outlast_kernel::Timestamp;
use outlast_kernel::verdict::Cause;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

/// Maximum number of requests.
const MAX_REQUESTS: usize = 500;
/// Maximum size of all requests together, in bytes.
const MAX_BYTES: usize = 2 << 20;
/// The number of first attempts that are kept of a request, and the number of last ones.
const FIRST_ATTEMPTS: usize = 8;
const LAST_ATTEMPTS: usize = 24;

/// The requests that changed, and the sequence number of the last change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Traffic")]
pub struct Changes {
    /// The sequence number of the last change; later changes have higher numbers.
    pub seq: u64,
    /// The gateway's current time.
    pub now: Timestamp,
    /// The requests that changed, in the order of their last changes.
    pub requests: Vec<Request>,
}

/// A request and its progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "TrafficRequest")]
pub struct Request {
    /// The sequence number of the request's last change.
    pub seq: u64,
    /// The id of the request, by which it can be retried or cancelled while it waits.
    pub id: Box<str>,
    /// The name of the client.
    pub client: &'static str,
    /// The name of the dialect, if the request is for a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dialect: Option<&'static str>,
    /// The requested model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Box<str>>,
    /// The stored account that the request was last sent with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<Box<str>>,
    /// The path of the request, without its query.
    pub path: Box<str>,
    /// The time at which the request arrived.
    pub begun: Timestamp,
    /// How many times the client has sent the request again, if it resumes an earlier request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resent: Option<u32>,
    /// The time of the first failure of the earlier request that this one resumes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The attempts in order. If there are many, those in the middle are left out.
    pub attempts: Vec<Attempt>,
    /// The time at which the request ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// The outcome of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// The HTTP status that the client received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
}

/// An attempt and the wait after it. The request waits while its last attempt has failed or was not made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "TrafficAttempt")]
pub struct Attempt {
    /// The number of the attempt, from 1; 0 stands for a wait before the first attempt.
    pub attempt: u32,
    /// The time at which the attempt was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub began: Option<Timestamp>,
    /// The time at which the attempt failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_at: Option<Timestamp>,
    /// The cause of the failure, or of the wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// The HTTP status of the provider's response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The provider's error message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Box<str>>,
    /// The time of the next attempt, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake: Option<Timestamp>,
}

/// The most recent requests.
pub struct RequestLog(Mutex<Ring>);

struct Ring {
    seq: u64,
    /// The requests by the keys of their events.
    requests: BTreeMap<u64, Box<Request>>,
    /// The finished requests, in the order of their ends.
    finished: VecDeque<u64>,
    bytes: usize,
}

impl RequestLog {
    /// Creates an empty log. Changes are counted from the given time on: a client that has watched an earlier process
    /// sees everything as new.
    pub fn new(now: Timestamp) -> Self {
        Self(Mutex::new(Ring {
            seq: now.as_millis(),
            requests: BTreeMap::new(),
            finished: VecDeque::new(),
            bytes: 0,
        }))
    }

    /// Records the end of a request.
    fn record_end(&self, key: u64, at: Timestamp, record: &Record<'_>) {
        let account = record.account.map(cleaned_text);
        let mut ring = self.0.lock();
        ring.change(key, |request| {
            request.account = account.or(request.account.take());
            request.ended = Some(at);
            request.outcome = Some(record.outcome);
            request.status = record.status;
            // A failure after content is reported by the end alone.
            let last = request.attempts.last_mut();
            if let (Some(last), Outcome::Broken) = (last, record.outcome) {
                last.failed_at = Some(at);
                last.cause = record.cause;
            }
        });
        ring.mark_finished(key);
    }

    /// Returns the changes after that number. A number that was not reached yet comes from an earlier process: then all
    /// are returned.
    pub fn changes_since(&self, after: u64, now: Timestamp) -> Changes {
        let ring = self.0.lock();
        let after = if after > ring.seq { 0 } else { after };
        let changed = ring.requests.values().filter(|one| one.seq > after);
        let mut requests: Vec<Request> = changed.map(|one| Request::clone(one)).collect();
        let seq = ring.seq;
        drop(ring);
        requests.sort_by_key(|request| request.seq);
        Changes { seq, now, requests }
    }
}

impl Sink for RequestLog {
    fn emit(&self, event: &Event<'_>) {
        let Some(request) = event.request else {
            return;
        };
        match event.kind {
            EventKind::Received { model, path, .. } => {
                let received = Request::new(request, event.at, model, path);
                self.0.lock().add(request.key, received);
            }
            EventKind::AttemptStarted { attempt, .. } => {
                self.0.lock().change(request.key, |request| {
                    request.attempt_mut(attempt).began = Some(event.at);
                });
            }
            EventKind::AttemptFailed {
                cause,
                attempt,
                status,
                account,
                message,
            } => {
                let (account, message) = (account.map(cleaned_text), cleaned_text(message));
                self.0.lock().change(request.key, |request| {
                    request.account = account.or(request.account.take());
                    let failed = request.attempt_mut(attempt);
                    failed.failed_at = Some(event.at);
                    failed.cause = Some(cause);
                    failed.status = status;
                    failed.message = Some(message);
                });
            }
            EventKind::Waiting {
                cause,
                attempt,
                wake,
                ..
            }
            | EventKind::WaitMoved {
                cause,
                attempt,
                wake,
            } => self.0.lock().change(request.key, |request| {
                let last = request.attempt_mut(attempt);
                last.cause.get_or_insert(cause);
                last.wake = wake;
            }),
            EventKind::Resumed { resent, since, .. } => {
                self.0.lock().change(request.key, |request| {
                    request.resent = Some(resent);
                    request.since = Some(since);
                })
            }
            EventKind::Finished(record) => self.record_end(request.key, event.at, record),
            _ => {}
        }
    }
}

impl Ring {
    fn add(&mut self, key: u64, mut request: Box<Request>) {
        self.seq += 1;
        request.seq = self.seq;
        self.bytes += request.size();
        self.requests.insert(key, request);
        self.evict();
    }

    /// Changes a request, if it is still in the log.
    fn change(&mut self, key: u64, change: impl FnOnce(&mut Request)) {
        let Some(request) = self.requests.get_mut(&key) else {
            return;
        };
        self.seq += 1;
        request.seq = self.seq;
        self.bytes -= request.size();
        change(request);
        self.bytes += request.size();
        self.evict();
    }

    fn mark_finished(&mut self, key: u64) {
        if self.requests.contains_key(&key) {
            self.finished.push_back(key);
        }
    }

    fn evict(&mut self) {
        while self.requests.len() > MAX_REQUESTS || self.bytes > MAX_BYTES {
            let gone = match self.finished.pop_front() {
                Some(key) => self.requests.remove(&key),
                None => self.requests.pop_first().map(|(_, request)| request),
            };
            match gone {
                Some(request) => self.bytes -= request.size(),
                None => return,
            }
        }
    }
}

impl Request {
    fn new(request: RequestRef<'_>, received_at: Timestamp, model: &str, path: &str) -> Box<Self> {
        Box::new(Self {
            seq: 0,
            id: cleaned_text(request.id),
            client: request.client,
            dialect: request.dialect.map(Dialect::name),
            model: (!model.is_empty()).then(|| cleaned_text(model)),
            account: None,
            path: log::cleaned_path(path).into(),
            begun: received_at,
            resent: None,
            since: None,
            attempts: Vec::new(),
            ended: None,
            outcome: None,
            status: None,
        })
    }

    /// Returns the attempt of that number, which is the last one, or is added after it.
    fn attempt_mut(&mut self, attempt: u32) -> &mut Attempt {
        let is_known = self
            .attempts
            .last()
            .is_some_and(|last| last.attempt == attempt);
        if !is_known {
            if self.attempts.len() == FIRST_ATTEMPTS + LAST_ATTEMPTS {
                self.attempts.remove(FIRST_ATTEMPTS);
            }
            // Most have one only.
            self.attempts.reserve_exact(1);
            self.attempts.push(Attempt {
                attempt,
                ..Attempt::default()
            });
        }
        let last = self.attempts.len() - 1;
        &mut self.attempts[last]
    }

    /// Returns its size in bytes.
    fn size(&self) -> usize {
        let texts = [
            Some(&self.id),
            self.model.as_ref(),
            self.account.as_ref(),
            Some(&self.path),
        ];
        let texts = texts.into_iter().flatten();
        let messages = self.attempts.iter().filter_map(|one| one.message.as_ref());
        let texts: usize = texts.chain(messages).map(|text| text.len()).sum();
        size_of::<Self>() + texts + self.attempts.capacity() * size_of::<Attempt>()
    }
}

/// Cleans a text from outside, so that it may be kept.
fn cleaned_text(text: &str) -> Box<str> {
    log::cleaned(text).into()
}

#[cfg(test)]
#[path = "request_log_tests.rs"]
mod tests;
