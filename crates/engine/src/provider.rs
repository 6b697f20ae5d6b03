//! A model behind a stream of deltas.
//!
//! Invariant: a provider makes one request for each call of `stream` or `resume` and reports the result; it never
//! retries.

mod adapter;
mod check;
mod deltas;
pub mod response;
mod watchdog;

use crate::BoxStream;
use crate::credential::Credential;
use outlast_dialect::{Delta, Request, StreamCursor};
use outlast_kernel::failure::Failure;
use std::time::Duration;

pub use adapter::Adapter;
pub use check::ProviderCheck;
pub use watchdog::Watchdog;

/// A service that answers requests with a stream.
pub trait Provider: Send + Sync {
    /// Returns the name that failures and events carry.
    fn name(&self) -> &str;

    /// Distinguishes it from others of the same name, such as by its address: facts about one do not apply to another.
    fn endpoint(&self) -> &str {
        ""
    }

    /// Makes one request, with the given credential or else the provider's own. The stream ends after its first failure
    /// or after [`Delta::Stopped`]. Failures are boxed, as they are rare and many times the size of a delta.
    fn stream(
        &self,
        request: &Request,
        credential: Option<&Credential>,
    ) -> BoxStream<'static, Result<Delta, Box<Failure>>>;

    /// Makes one request for the rest of an interrupted completion, from the cursor on, without what came before it.
    /// The phase of a failure is that of this request. Returns `None` when the provider does not store completions.
    fn resume(
        &self,
        _place: &StreamCursor,
        _credential: Option<&Credential>,
    ) -> Option<BoxStream<'static, Result<Delta, Box<Failure>>>> {
        None
    }
}

/// The time limits of a request; zero means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the connection is established.
    pub connect: Duration,
    /// From sending the request to the headers of its response.
    pub headers: Duration,
    /// From the headers to the first event.
    pub first_event: Duration,
    /// Between one event and the next.
    pub idle: Duration,
}

/// The approximate connect timeout of the operating system.
const SYSTEM_CONNECT_TIMEOUT: Duration = Duration::from_secs(150);

impl Timeouts {
    /// Returns the limit from requesting a connection to the headers; the moment of connecting is not observable.
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
