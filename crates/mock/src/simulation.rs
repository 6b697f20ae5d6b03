//! Many agents, one provider and an outage, played in virtual time on the kernel that users run.
//!
//! A [`Scenario`] says what happens, a [`Strategy`] what the agents do about it, [`run`] gives the [`Metrics`]. The
//! gate, the reducer, the policies and the classifier are the real ones; agents, provider and store are pretended.
//!
//! Invariant: all chance comes from the scenario's seed, all time from its events. The same seed gives the same trace.
//! Not here: tables and pictures (see the app).

mod agent;
mod event_queue;
mod metrics;
mod provider;
mod scenario;
mod shared_state;
mod simulator;
mod strategy;

pub use metrics::Metrics;
pub use scenario::{Error, Scenario};
pub use strategy::Strategy;

/// Plays the scenario with that strategy to its end.
pub fn run(scenario: &Scenario, strategy: &Strategy) -> Result<Metrics, Error> {
    scenario.check()?;
    Ok(simulator::Simulator::new(scenario, strategy).run())
}

#[cfg(test)]
#[path = "simulation_tests.rs"]
mod tests;
