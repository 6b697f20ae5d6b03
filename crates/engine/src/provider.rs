//! A model behind a stream of deltas.
//!
//! Invariant: a provider makes one request for each call of `stream` or `resume` and reports what it saw; it never retries.

mod adapter;
mod check;
mod response;
mod watchdog;

use crate::BoxStream;
use crate::credential::Credential;
use outlast_dialect::{Delta, Request, StreamCursor};
use outlast_kernel::failure::Failure;
use std::time::Duration;

pub use adapter::Adapter;
pub use check::ProviderCheck;
pub use response::Frame;
pub use watchdog::Watchdog;

/// Something that answers requests with a stream.
pub trait Provider: Send + Sync {
    /// The name that failures and events carry.
    fn name(&self) -> &str;

    /// What tells it from others of the same name, such as its address: what is learnt of one is not true of another.
    fn place(&self) -> &str {
        ""
    }

    /// Makes one request, with that credential or else the provider's own. A failure comes boxed, being many times the
    /// size of a delta, and rare. The stream ends after its first failure or after [`Delta::Stopped`].
    fn stream(
        &self,
        request: &Request,
        credential: Option<&Credential>,
    ) -> BoxStream<'static, Result<Delta, Box<Failure>>>;

    /// Makes one request for the rest of an answer that was cut off right after that place; it says nothing of what lies
    /// before. The phase of a failure is that of this request. `None` when answers are not kept.
    fn resume(
        &self,
        _place: &StreamCursor,
        _credential: Option<&Credential>,
    ) -> Option<BoxStream<'static, Result<Delta, Box<Failure>>>> {
        None
    }
}

/// How long to wait for signs of life; zero means without limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the connection stands.
    pub connect: Duration,
    /// From sending the request to the headers of its answer.
    pub headers: Duration,
    /// From the headers to the first event.
    pub first_event: Duration,
    /// Between one event and the next.
    pub idle: Duration,
}

/// What a system gives a connection by itself, more or less.
const SYSTEM_CONNECT_TIMEOUT: Duration = Duration::from_secs(150);

impl Timeouts {
    /// From asking for a connection to the headers; nobody tells when it stood.
    pub fn until_headers(&self) -> Duration {
        match (self.headers.is_zero(), self.connect.is_zero()) {
            (true, _) => Duration::ZERO,
            (false, true) => self.headers + SYSTEM_CONNECT_TIMEOUT,
            (false, false) => self.headers + self.connect,
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            headers: Duration::from_secs(300),
            first_event: Duration::from_secs(300),
            idle: Duration::from_secs(300),
        }
    }
}
