//! A clock that runs several times as fast, so that minutes take seconds.

use std::time::Duration;

/// The number of seconds that pass in one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale(pub(super) u32);

impl Scale {
    pub(super) const REAL: Self = Self(1);

    /// Returns the real duration of a stated one.
    pub(super) fn real(self, stated: Duration) -> Duration {
        stated / self.0
    }

    /// Returns the duration that passes in a real one.
    pub(super) fn stated(self, real: Duration) -> Duration {
        real * self.0
    }
}
