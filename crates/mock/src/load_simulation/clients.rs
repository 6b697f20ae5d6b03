//! The clients, and the ways in which their requests are retried.

use super::provider::in_millis;
use fastrand::Rng;

/// The way in which failed requests are retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Processes that share a gate; each exchange with its store takes so many milliseconds.
    Gate {
        /// The number of processes.
        processes: usize,
        /// The latency of the store.
        store_latency: u64,
    },
    /// Each client alone: 0.5 s, doubled up to 8 s, a quarter of it jitter; after so many retries it starts anew in 30 s.
    Alone {
        /// The number of retries; without end if there is none.
        retries: Option<u32>,
    },
}

impl Strategy {
    /// One process with a gate of its own.
    pub const GATE: Self = Self::Gate {
        processes: 1,
        store_latency: 0,
    };
    /// The defaults of SDKs.
    pub const SDK: Self = Self::Alone { retries: Some(2) };
    /// The delays of SDKs, with retries without end.
    pub const IDEAL: Self = Self::Alone { retries: None };

    /// Returns the delay of a client that is alone, in milliseconds, and its next number of retries.
    pub(super) fn delay_alone(retries: Option<u32>, done: u32, rng: &mut Rng) -> (u64, u32) {
        if retries.is_some_and(|most| done >= most) {
            return (30_000, 0);
        }
        let doubled = (0.5 * f64::from(1_u32 << done.min(10))).min(8.0);
        (in_millis(doubled * (1.0 - 0.25 * rng.f64())), done + 1)
    }
}

/// Clients that make one request after another.
pub struct Clients {
    /// Their number.
    pub count: usize,
    /// The pause between two requests, in seconds: half to one and a half of it.
    pub pause: f64,
    /// The number of all requests; unlimited if there is none.
    pub requests: Option<u64>,
    /// Whether the next request follows the first byte, not the end.
    pub continues_at_first_byte: bool,
    /// The share of requests that cost eight units instead of one.
    pub big_share: f64,
}

impl Clients {
    /// Returns so many clients without a pause.
    pub const fn busy(count: usize) -> Self {
        Self {
            count,
            pause: 0.0,
            requests: None,
            continues_at_first_byte: false,
            big_share: 0.0,
        }
    }

    pub(super) fn size(&self, rng: &mut Rng) -> f64 {
        match self.big_share > 0.0 && rng.f64() < self.big_share {
            true => 8.0,
            false => 1.0,
        }
    }
}
