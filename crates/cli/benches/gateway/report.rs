//! The results of holding many requests, beside the limits.

use crate::hold::Extent;
use crate::outage::Arrivals;
use crate::process::Memory;
use anyhow::{Result, bail};
use std::time::Duration;

const MAX_MEMORY: u64 = 100 << 20;
/// Share of a core while all requests are held.
const MAX_CPU: f64 = 0.01;
/// Maximum number of calls in any second, relative to the capacity.
const MAX_PEAK: f64 = 1.2;
/// Time until the first success, on top of the time that all of them need.
const RECOVERY_GRACE: Duration = Duration::from_secs(20);
/// The time that all of them may take, relative to that at full capacity.
const SLOWER_THAN_CAPACITY: f64 = 1.5;

pub(crate) struct Report {
    extent: Extent,
    idle: Memory,
    pub(crate) most: Memory,
    pub(crate) peak_memory: u64,
    pub(crate) cpu: f64,
    pub(crate) calls_in_outage: usize,
    /// Requests after the outage, by dialect.
    pub(crate) arrived: [Arrivals; 2],
    pub(crate) lost: Vec<String>,
    pub(crate) drained: Duration,
}

impl Report {
    pub(crate) fn new(extent: Extent, idle: Memory) -> Self {
        Self {
            extent,
            idle,
            most: Memory::default(),
            peak_memory: 0,
            cpu: 0.0,
            calls_in_outage: 0,
            arrived: [Arrivals::default(); 2],
            lost: Vec::new(),
            drained: Duration::ZERO,
        }
    }

    /// Returns the time limit until all requests are served.
    pub(crate) fn drain_limit(&self) -> Duration {
        let capacity = f64::from(self.extent.per_second) * self.arrived.len() as f64;
        let needed = self.extent.clients as f64 / capacity;
        RECOVERY_GRACE + Duration::from_secs_f64(SLOWER_THAN_CAPACITY * needed)
    }

    /// Prints everything; fails if a limit is exceeded.
    pub(crate) fn judge(&self) -> Result<()> {
        let calls: usize = self.arrived.iter().map(|dialect| dialect.calls).sum();
        let served: usize = self.arrived.iter().map(|dialect| dialect.served).sum();
        println!(
            "{} requests of 64 KiB held for {:?}; {} calls in the outage, {calls} after it, {} of them refused",
            self.extent.clients,
            self.extent.waiting,
            self.calls_in_outage,
            calls - served
        );
        let promises = [
            self.memory(),
            self.waiting(),
            self.losses(),
            self.peak(),
            self.first(),
            self.drain(),
        ];
        for (is_kept, line) in &promises {
            println!("{} {line}", if *is_kept { "✓" } else { "✗" });
        }
        match promises.iter().all(|(is_kept, _)| *is_kept) {
            true => Ok(()),
            false => bail!("holding costs more than it may"),
        }
    }

    fn memory(&self) -> (bool, String) {
        let more = self.most.resident.saturating_sub(self.idle.resident);
        let anonymous = self.most.anonymous.saturating_sub(self.idle.anonymous);
        let line = format!(
            "memory: {} more than {} ({} of it anonymous; at most {}); the most at any time: {}",
            mebibytes(more),
            mebibytes(self.idle.resident),
            mebibytes(anonymous),
            mebibytes(MAX_MEMORY),
            mebibytes(self.peak_memory)
        );
        (more <= MAX_MEMORY, line)
    }

    fn waiting(&self) -> (bool, String) {
        let (used, most) = (self.cpu * 100.0, MAX_CPU * 100.0);
        let line = format!("CPU while all wait: {used:.2} % of a core (at most {most:.0} %)");
        (self.cpu <= MAX_CPU, line)
    }

    fn losses(&self) -> (bool, String) {
        let mut line = format!("lost: {}", self.lost.len());
        for example in self.lost.iter().take(3) {
            line.push_str("\n    ");
            line.push_str(example);
        }
        (self.lost.is_empty(), line)
    }

    fn peak(&self) -> (bool, String) {
        let capacity = self.extent.per_second;
        let peaks = self
            .arrived
            .map(|dialect| dialect.peak as f64 / f64::from(capacity));
        let most = peaks[0].max(peaks[1]);
        let line = format!(
            "peak at the provider: {most:.2} × the {capacity}/s of a dialect (at most {MAX_PEAK})"
        );
        (most <= MAX_PEAK, line)
    }

    fn first(&self) -> (bool, String) {
        let all = self.arrived.map(|dialect| dialect.first_served);
        let first = all
            .map(|served| served.unwrap_or(Duration::MAX))
            .into_iter()
            .max();
        let first = first.unwrap_or_default();
        let line = format!(
            "first success, in the slower dialect, after {first:.1?} (at most {RECOVERY_GRACE:?})"
        );
        (first <= RECOVERY_GRACE, line)
    }

    fn drain(&self) -> (bool, String) {
        let (drained, limit) = (self.drained, self.drain_limit());
        let line = format!("all answered after {drained:.1?} (at most {limit:.1?})");
        (drained <= limit, line)
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}
