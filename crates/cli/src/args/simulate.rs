//! Arguments of `outlast simulate`.

use crate::config::duration;
use clap::Args;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

const SIMULATE_NOTES: &str =
    "The simulation always compares: overnight behind the gate; each agent alone with full jitter,
1 s doubled up to 60 s; overnight without the gate; and the default of client libraries: 2 retries,
then the call is started again after 30 s.

Columns:
  in outage    calls made while the provider was down
  per success  calls per accepted call, over the whole run
  first        from the recovery to the first success
  drained      from the recovery until every waiting agent had its call
  refused      calls refused after the recovery
  peak         maximum calls in any one second, relative to the provider's capacity
  goodput      accepted calls relative to the possible ones, under overload
  fairness     Jain's index over the completed calls of the agents: 1 when all had the same
  wasted       tokens of calls that were refused
  given up     calls that were abandoned, and started again by the user of the agent

Examples:
  outlast simulate                          # 500 agents, 25 calls a second, 30 minutes of outage
  outlast simulate --load 200 --outage 0    # sustained overload
  outlast simulate --store-down 15m..20m    # the gate's store is lost in the outage
  outlast simulate --policy standard --outage 1h --plot outage.svg";

#[derive(Debug, Args)]
#[command(after_help = SIMULATE_NOTES)]
pub(crate) struct SimulateArguments {
    /// Number of agents, each with one call after another
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = range(1, 100_000))]
    pub(crate) agents: u32,

    /// Number of processes over which the agents are spread
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = range(1, 1000))]
    pub(crate) processes: u32,

    /// Capacity of the provider, in calls per second
    #[arg(long, value_name = "N", default_value_t = 25, value_parser = range(1, 1000))]
    pub(crate) capacity: u32,

    /// Capacity of the provider in tokens per second, instead of calls
    #[arg(long, value_name = "N")]
    pub(crate) tokens_per_second: Option<u32>,

    /// Load of the agents, in percent of the capacity; 200 is an overload of 2:1
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = range(1, 10_000))]
    pub(crate) load: u32,

    /// Duration of the outage, from the tenth minute on; 0 for no outage
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = duration)]
    pub(crate) outage: Duration,

    /// Capacity of the provider after the outage, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = range(1, 1000))]
    pub(crate) comes_back_at: u32,

    /// Let the provider send Retry-After when it is overloaded
    #[arg(long)]
    pub(crate) retry_after: bool,

    /// Duration of each operation of the gate's store
    #[arg(long, value_name = "DURATION", default_value = "5ms", value_parser = duration)]
    pub(crate) store_latency: Duration,

    /// Period in which the gate's store is unavailable, such as 15m..20m
    #[arg(long, value_name = "FROM..TO", value_parser = time_range)]
    pub(crate) store_down: Option<Range<Duration>>,

    /// Number of agents that die while they probe for the others
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) dead_probes: u32,

    /// Additional policy to compare, with and without the gate; may be given more than once
    #[arg(long, value_name = "NAME")]
    pub(crate) policy: Vec<String>,

    /// Duration of the simulation [default: an hour plus the outage]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) length: Option<Duration>,

    /// Seed of the random numbers: the same seed gives the same run
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Print JSON, with a fingerprint of each run
    #[arg(long)]
    pub(crate) json: bool,

    /// Draw the calls over time to an SVG file as well
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
}

fn range(least: u32, most: u32) -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(i64::from(least)..=i64::from(most))
}

fn duration(text: &str) -> Result<Duration, String> {
    duration::parse(text).ok_or_else(|| "write a duration such as 90s, 30m or 1h30m".to_owned())
}

fn time_range(text: &str) -> Result<Range<Duration>, String> {
    let times = text.split_once("..").and_then(|(from, to)| {
        let (from, to) = (duration::parse(from)?, duration::parse(to)?);
        (from < to).then_some(from..to)
    });
    times.ok_or_else(|| {
        "write two times from the beginning, the first one earlier, such as 15m..20m".to_owned()
    })
}
