//! The most recent requests with their attempts, for display: a timeline, and the changes since the last look.
//!
//! Invariants: the log is bounded in number and in bytes, however many requests there are and however long they are
//! held; it holds no body and no key, and texts from outside are cleaned as in the event log; recording costs next to
//! nothing, as it happens in the middle of a request. Finished requests are dropped first. Not here: all waiting
//! requests (see `holds`), and permanent records (see `log`).

mod view;

pub use view::{Attempt, Changes, Request};

use crate::observe::log::{self, EventKind, Outcome};
use outlast_dialect::Dialect;
use outlast_kernel::Timestamp;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};

/// Maximum number of requests.
const MAX_REQUESTS: usize = 500;
/// Maximum size of all requests together, in bytes.
const MAX_BYTES: usize = 2 << 20;
/// The number of first attempts that are kept of a request, and the number of last ones.
const FIRST_ATTEMPTS: usize = 8;
const LAST_ATTEMPTS: usize = 24;

/// The facts that are known of a request when it arrives.
#[derive(Clone, Copy, Debug)]
pub struct NewRequest<'a> {
    /// Its id.
    pub id: &'a str,
    /// The time of its arrival.
    pub received_at: Timestamp,
    /// The name of its client, from the table of clients.
    pub client: &'static str,
    /// Its dialect, if it is for a model.
    pub dialect: Option<Dialect>,
    /// The requested model; empty if none.
    pub model: &'a str,
    /// The path.
    pub path: &'a str,
}

/// The key of a request in [`RequestLog`] for as long as it is in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestKey(u64);

/// The most recent requests.
pub struct RequestLog(Mutex<Ring>);

struct Ring {
    seq: u64,
    last: RequestKey,
    requests: BTreeMap<RequestKey, Box<Request>>,
    /// The finished requests, in the order of their ends.
    finished: VecDeque<RequestKey>,
    bytes: usize,
}

impl RequestLog {
    /// Creates an empty log. Changes are counted from the given time on: a client that has watched an earlier process
    /// sees everything as new.
    pub fn new(now: Timestamp) -> Self {
        Self(Mutex::new(Ring {
            seq: now.as_millis(),
            last: RequestKey(0),
            requests: BTreeMap::new(),
            finished: VecDeque::new(),
            bytes: 0,
        }))
    }

    /// Records a request that has arrived.
    pub fn record_start(&self, begun: &NewRequest<'_>) -> RequestKey {
        let model = Some(begun.model).filter(|model| !model.is_empty());
        let request = Box::new(Request {
            seq: 0,
            id: cleaned_text(begun.id),
            client: begun.client,
            dialect: begun.dialect.map(Dialect::name),
            model: model.map(cleaned_text),
            account: None,
            path: log::cleaned_path(begun.path).into(),
            begun: begun.received_at,
            resent: None,
            since: None,
            attempts: Vec::new(),
            ended: None,
            outcome: None,
            status: None,
        });
        self.0.lock().add(request)
    }

    /// Records the start of an attempt.
    pub fn record_attempt(&self, ticket: RequestKey, attempt: u32, at: Timestamp) {
        self.0.lock().change(ticket, |request| {
            request.attempt_mut(attempt).began = Some(at);
        });
    }

    /// Records an event of a request, which the event log receives, too.
    pub fn record_event(&self, ticket: RequestKey, at: Timestamp, what: &EventKind<'_>) {
        match *what {
            EventKind::AttemptFailed {
                cause,
                attempt,
                status,
                account,
                message,
            } => {
                let (account, message) = (account.map(cleaned_text), cleaned_text(message));
                self.0.lock().change(ticket, |request| {
                    request.account = account.or(request.account.take());
                    let failed = request.attempt_mut(attempt);
                    failed.failed_at = Some(at);
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
            } => self.0.lock().change(ticket, |request| {
                let last = request.attempt_mut(attempt);
                last.cause.get_or_insert(cause);
                last.wake = wake;
            }),
            EventKind::Resumed { resent, since, .. } => self.0.lock().change(ticket, |request| {
                request.resent = Some(resent);
                request.since = Some(since);
            }),
            EventKind::Finished(record) => {
                let account = record.account.map(cleaned_text);
                let mut ring = self.0.lock();
                ring.change(ticket, |request| {
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
                ring.mark_finished(ticket);
            }
            _ => {}
        }
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

impl Ring {
    fn add(&mut self, mut request: Box<Request>) -> RequestKey {
        self.last.0 += 1;
        self.seq += 1;
        request.seq = self.seq;
        self.bytes += request.size();
        self.requests.insert(self.last, request);
        self.evict();
        self.last
    }

    /// Changes a request, if it is still in the log.
    fn change(&mut self, ticket: RequestKey, change: impl FnOnce(&mut Request)) {
        let Some(request) = self.requests.get_mut(&ticket) else {
            return;
        };
        self.seq += 1;
        request.seq = self.seq;
        self.bytes -= request.size();
        change(request);
        self.bytes += request.size();
        self.evict();
    }

    fn mark_finished(&mut self, ticket: RequestKey) {
        if self.requests.contains_key(&ticket) {
            self.finished.push_back(ticket);
        }
    }

    fn evict(&mut self) {
        while self.requests.len() > MAX_REQUESTS || self.bytes > MAX_BYTES {
            let gone = match self.finished.pop_front() {
                Some(ticket) => self.requests.remove(&ticket),
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
