//! Arguments of `outlast simulate`.

use crate::config::duration;
use clap::Args;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

const SIMULATE_NOTES: &str =
    "Always compared: overnight behind the gate; each agent for itself with full jitter, 1 s
doubled up to 60 s; overnight without the gate; and what client libraries do by default:
2 retries, then the call is started again after 30 s.

Columns:
  in outage    calls made while the provider was down
  per success  calls made for each that was accepted, over the whole run
  first        from the recovery to the first success
  drained      from the recovery until every agent that waited had its call
  refused      calls refused after the recovery
  peak         the most calls in any one second, for each that the provider can carry
  goodput      what was accepted, for all that could have been, under overload
  fairness     Jain's index over the completed calls of the agents: 1 when all had the same
  wasted       tokens of calls that were refused
  given up     calls that were given up, and started again by whoever runs the agent

Examples:
  outlast simulate                          # 500 agents, 25 calls a second, 30 minutes of outage
  outlast simulate --load 200 --outage 0    # sustained overload
  outlast simulate --store-down 15m..20m    # the gate's store is lost in the outage
  outlast simulate --policy standard --outage 1h --plot outage.svg";

#[derive(Debug, Args)]
#[command(after_help = SIMULATE_NOTES)]
pub(crate) struct SimulateArguments {
    /// How many agents make one call after another
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = range(1, 100_000))]
    pub(crate) agents: u32,

    /// Over how many processes they are spread
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = range(1, 1000))]
    pub(crate) processes: u32,

    /// What the provider can carry, in calls a second
    #[arg(long, value_name = "N", default_value_t = 25, value_parser = range(1, 1000))]
    pub(crate) capacity: u32,

    /// Count the capacity in tokens: so many a second
    #[arg(long, value_name = "N")]
    pub(crate) tokens_per_second: Option<u32>,

    /// What the agents want, in percent of the capacity; 200 is an overload of 2:1
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = range(1, 10_000))]
    pub(crate) load: u32,

    /// How long the provider is down, from the tenth minute on; 0 for no outage
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = duration)]
    pub(crate) outage: Duration,

    /// What the provider carries after the outage, in percent of its capacity
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = range(1, 1000))]
    pub(crate) comes_back_at: u32,

    /// The provider says when to come back when it is asked too much
    #[arg(long)]
    pub(crate) retry_after: bool,

    /// How long each operation of the gate's store takes
    #[arg(long, value_name = "DURATION", default_value = "5ms", value_parser = duration)]
    pub(crate) store_latency: Duration,

    /// When the gate's store cannot be reached, such as 15m..20m
    #[arg(long, value_name = "FROM..TO", value_parser = time_range)]
    pub(crate) store_down: Option<Range<Duration>>,

    /// How many agents die while they probe for the others
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) dead_probes: u32,

    /// Compare this policy too, with and without the gate; may be given more than once
    #[arg(long, value_name = "NAME")]
    pub(crate) policy: Vec<String>,

    /// How long it all lasts [default: an hour and the outage]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) length: Option<Duration>,

    /// Where all chance comes from: the same seed gives the same run
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// As JSON, with a fingerprint of each run
    #[arg(long)]
    pub(crate) json: bool,

    /// Draw the calls over time into an SVG file as well
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
