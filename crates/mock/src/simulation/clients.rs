//! The clients: how many requests they make, and how large those are.

use fastrand::Rng;

/// The cost of a large request, in units.
pub(super) const LARGE: f64 = 8.0;

/// Clients that make one request after another.
#[derive(Clone, Debug, PartialEq)]
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
    pub large_share: f64,
}

impl Clients {
    /// Returns so many clients without a pause.
    pub const fn busy(count: usize) -> Self {
        Self {
            count,
            pause: 0.0,
            requests: None,
            continues_at_first_byte: false,
            large_share: 0.0,
        }
    }

    /// Returns the mean cost of a request, in units.
    pub fn mean_size(&self) -> f64 {
        1.0 + (LARGE - 1.0) * self.large_share
    }

    pub(super) fn size(&self, rng: &mut Rng) -> f64 {
        match self.large_share > 0.0 && rng.f64() < self.large_share {
            true => LARGE,
            false => 1.0,
        }
    }
}
