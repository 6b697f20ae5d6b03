//! The last requests with their attempts, for whoever watches: a timeline, and what changed in it since the last look.
//!
//! Invariants: what is kept is bounded in number and in bytes, however many requests there are and however long they are
//! held; no body, no key, and texts from outside are cleaned as in the log; taking note of something costs next to
//! nothing, as it happens in the middle of a request. Those that are over make room first.
//! Not here: all requests that wait (see `holds`), and what is written down for good (see `log`).

mod view;

pub use view::{Attempt, Changes, Request};

use crate::observe::log::{self, EventKind, Outcome};
use outlast_dialect::Dialect;
use outlast_kernel::Timestamp;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most requests that are kept.
const MAX_REQUESTS: usize = 500;
/// The most that they take together, in bytes.
const MAX_BYTES: usize = 2 << 20;
/// Of the attempts of a request, so many of the first are kept, and so many of the last.
const FIRST_ATTEMPTS: usize = 8;
const LAST_ATTEMPTS: usize = 24;

/// What is known of a request when it comes.
#[derive(Clone, Copy, Debug)]
pub struct NewRequest<'a> {
    /// Its id.
    pub id: &'a str,
    /// When it came.
    pub at: Timestamp,
    /// The name of its client, from the table of clients.
    pub client: &'static str,
    /// Its dialect, if it asks a model.
    pub dialect: Option<Dialect>,
    /// The model that it asks for; empty if none.
    pub model: &'a str,
    /// The path.
    pub path: &'a str,
}

/// Names a request in [`Traffic`] for as long as it is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestKey(u64);

/// The last requests.
pub struct RequestLog(Mutex<Ring>);

struct Ring {
    seq: u64,
    last: RequestKey,
    requests: BTreeMap<RequestKey, Box<Request>>,
    /// Those that are over, in the order of their ends.
    over: VecDeque<RequestKey>,
    bytes: usize,
}

impl RequestLog {
    /// None yet. Changes are counted from the time on: whoever has watched a gateway that was there before finds that
    /// everything is new.
    pub fn new(now: Timestamp) -> Self {
        Self(Mutex::new(Ring {
            seq: now.as_millis(),
            last: RequestKey(0),
            requests: BTreeMap::new(),
            over: VecDeque::new(),
            bytes: 0,
        }))
    }

    /// A request has come.
    pub fn begun(&self, begun: &NewRequest<'_>) -> RequestKey {
        let model = Some(begun.model).filter(|model| !model.is_empty());
        let request = Box::new(Request {
            seq: 0,
            id: kept(begun.id),
            client: begun.client,
            dialect: begun.dialect.map(Dialect::name),
            model: model.map(kept),
            account: None,
            path: log::cleaned_path(begun.path).into(),
            begun: begun.at,
            resent: None,
            since: None,
            attempts: Vec::new(),
            ended: None,
            outcome: None,
            status: None,
        });
        self.ring().add(request)
    }

    /// An attempt is made.
    pub fn tried(&self, ticket: RequestKey, attempt: u32, at: Timestamp) {
        self.ring().change(ticket, |request| {
            request.of_attempt(attempt).began = Some(at);
        });
    }

    /// Something happened to a request, which the log is told, too.
    pub fn note(&self, ticket: RequestKey, at: Timestamp, what: &EventKind<'_>) {
        match *what {
            EventKind::AttemptFailed {
                cause,
                attempt,
                status,
                account,
                message,
            } => {
                let (account, message) = (account.map(kept), kept(message));
                self.ring().change(ticket, |request| {
                    request.account = account.or(request.account.take());
                    let failed = request.of_attempt(attempt);
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
            } => self.ring().change(ticket, |request| {
                let last = request.of_attempt(attempt);
                last.cause.get_or_insert(cause);
                last.wake = wake;
            }),
            EventKind::TakenUp { resent, since, .. } => self.ring().change(ticket, |request| {
                request.resent = Some(resent);
                request.since = Some(since);
            }),
            EventKind::Finished(record) => {
                let account = record.account.map(kept);
                let mut ring = self.ring();
                ring.change(ticket, |request| {
                    request.account = account.or(request.account.take());
                    request.ended = Some(at);
                    request.outcome = Some(record.outcome);
                    request.status = record.status;
                    // What fails after content is said by the end alone.
                    let last = request.attempts.last_mut();
                    if let (Some(last), Outcome::Broken) = (last, record.outcome) {
                        last.failed_at = Some(at);
                        last.cause = record.cause;
                    }
                });
                ring.ended(ticket);
            }
            _ => {}
        }
    }

    /// What changed after that number. A number that was not reached yet is of a gateway that was there before: then
    /// all are told.
    pub fn since(&self, after: u64, now: Timestamp) -> Changes {
        let ring = self.ring();
        let after = if after > ring.seq { 0 } else { after };
        let changed = ring.requests.values().filter(|one| one.seq > after);
        let mut requests: Vec<Request> = changed.map(|one| Request::clone(one)).collect();
        let seq = ring.seq;
        drop(ring);
        requests.sort_by_key(|request| request.seq);
        Changes { seq, now, requests }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Changes a request, if it is still kept.
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

    fn ended(&mut self, ticket: RequestKey) {
        if self.requests.contains_key(&ticket) {
            self.over.push_back(ticket);
        }
    }

    fn evict(&mut self) {
        while self.requests.len() > MAX_REQUESTS || self.bytes > MAX_BYTES {
            let gone = match self.over.pop_front() {
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
    /// That attempt, which is the last one, or comes after it.
    fn of_attempt(&mut self, attempt: u32) -> &mut Attempt {
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

    /// What it takes, in bytes.
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

/// A text from outside as it may be kept.
fn kept(text: &str) -> Box<str> {
    log::cleaned(text).into()
}

#[cfg(test)]
#[path = "traffic_tests.rs"]
mod tests;
