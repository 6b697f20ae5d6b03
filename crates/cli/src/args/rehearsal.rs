//! Arguments of the commands that rehearse failure: `outlast demo`, `outlast mock` and `outlast simulate`.

use crate::config::duration;
use clap::Args;
use outlast_mock::simulation::Flap;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

const DEMO_NOTES: &str =
    "The demo runs this program twice on this machine: as a scripted provider that fails, and as an
agent that sends it requests, both with an accelerated clock. It needs no key, no account and no
network. It works in a temporary folder (TMPDIR), which it removes at the end. The exit code is 1 if
a failure was not handled.

Examples:
  outlast demo                      # about ninety seconds, with time to read
  outlast demo --fast               # without pauses for reading";

#[derive(Debug, Args)]
#[command(after_help = DEMO_NOTES)]
pub(crate) struct DemoArguments {
    /// Skip the pauses for reading, and use a faster clock
    #[arg(long)]
    pub(crate) fast: bool,
}

const MOCK_EXAMPLES: &str = "Examples:
  outlast mock --script outage:600                                # down for ten minutes
  outlast mock --script big=overloaded:2 --script small=ok        # for each model
  curl -s http://127.0.0.1:8787/_outlast/script -d '{\"script\":\"overloaded:3\"}'
  curl -s http://127.0.0.1:8787/_outlast/requests                 # what arrived";

fn mock_notes() -> String {
    format!("{}\n\n{MOCK_EXAMPLES}", outlast_mock::help().trim_end())
}

#[derive(Debug, Args)]
#[command(after_help = mock_notes())]
pub(crate) struct MockArguments {
    /// Address to listen on; port 0 takes any free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8787", value_parser = address)]
    pub(crate) listen: SocketAddr,

    /// Script for requests that name none by their model or the header `x-outlast-script`; MODEL=SCRIPT applies to
    /// one model only (may be given more than once) [default: ok]
    #[arg(long = "script", value_name = "[MODEL=]SCRIPT")]
    pub(crate) scripts: Vec<String>,

    /// Exit when stdin is closed, so that it does not outlive the program that started it
    #[arg(long)]
    pub(crate) until_stdin_ends: bool,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse();
    address.map_err(|_| "write an address and a port, such as 127.0.0.1:8787".to_owned())
}

const SIMULATE_NOTES: &str = "Faults that begin, begin after two minutes. The simulation compares:
  outlast          the shared gate with the policy `gateway`
  SDK defaults     2 retries, 0.5 s doubled up to 8 s; then the request is started again after 30 s
  full jitter      1 s doubled up to 60 s, spread from 0 to the delay, without end
  circuit breaker  SDK defaults; after 6 failures in a row no calls for a minute, then one
  ideal            the delays of an SDK with retries without end, whatever they cost

Columns:
  of ideal     served after the first minute, relative to what the ideal served
  per success  calls per request that succeeded
  median, 99%  from the arrival of a request to its answer
  in outage    calls during the outage or the usage limit
  first        from the recovery to the first success
  drained      from the recovery until every waiting agent had its answer
  refused      calls that were refused (429) after the first minute, relative to all
  peak         most calls in five seconds, relative to the capacity
  given up     requests that were given up, and started again by the user of the agent

Examples:
  outlast simulate                          # 500 agents, 25 calls a second, 30 minutes of outage
  outlast simulate --fail 10%               # one call in ten fails
  outlast simulate --load 200 --retry-after # twice what the limit allows
  outlast simulate --flap 20s/20s --plot flap.svg
  outlast simulate --outage 30m --store-down 5m..10m";

#[derive(Debug, Args)]
#[command(after_help = SIMULATE_NOTES)]
pub(crate) struct SimulateArguments {
    /// Number of agents, each with one call after another
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = range(1, 100_000))]
    pub(crate) agents: u32,

    /// Number of processes over which the agents are spread
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = range(1, 1000))]
    pub(crate) processes: u32,

    /// Rate limit of the provider, in calls per second, with a burst of one second
    #[arg(long, value_name = "N/s", default_value = "25/s", value_parser = rate)]
    pub(crate) capacity: u32,

    /// Load of the agents, in percent of the capacity; 200 is an overload of 2:1
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = range(1, 10_000))]
    pub(crate) load: u32,

    /// Mean duration of a call; one of less than a second is not streamed
    #[arg(long, value_name = "DURATION", default_value = "9s", value_parser = duration)]
    pub(crate) call_time: Duration,

    /// Share of large calls, which count eight times against the rate limit
    #[arg(long, value_name = "SHARE", default_value = "0%", value_parser = share)]
    pub(crate) large: f64,

    /// Let the provider send Retry-After when it refuses a call
    #[arg(long)]
    pub(crate) retry_after: bool,

    /// Share of all calls that fail, such as 2%
    #[arg(long, value_name = "SHARE", default_value = "0%", value_parser = share)]
    pub(crate) fail: f64,

    /// Number of calls of each request that fail before it succeeds
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) fails_each: u32,

    /// Number of requests that always fail
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = range(0, 10_000))]
    pub(crate) poison: u32,

    /// Duration of an outage, in which every call fails; 0 for none [default: 30m if there is no other fault]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) outage: Option<Duration>,

    /// Capacity of the provider after the outage, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = range(1, 1000))]
    pub(crate) comes_back_at: u32,

    /// Time until the reset of a usage limit, which the provider states to every call
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) usage_limit: Option<Duration>,

    /// Duration of a brown-out: half of all calls fail, the others are answered 10 s late
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) brownout: Option<Duration>,

    /// Times for which the provider answers and fails in turns, such as 20s/20s
    #[arg(long, value_name = "UP/DOWN", value_parser = flap)]
    pub(crate) flap: Option<Flap>,

    /// Duration of each operation of the gate's store
    #[arg(long, value_name = "DURATION", default_value = "5ms", value_parser = duration)]
    pub(crate) store_latency: Duration,

    /// Period in which the gate's store is unavailable, such as 5m..10m
    #[arg(long, value_name = "FROM..TO", value_parser = time_range)]
    pub(crate) store_down: Option<Range<Duration>>,

    /// Number of agents that die while they probe for the others
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) dead_probes: u32,

    /// Additional policy to compare, with and without the gate; may be given more than once
    #[arg(long, value_name = "NAME")]
    pub(crate) policy: Vec<String>,

    /// Duration of the simulation [default: until eight minutes after the last fault]
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

fn rate(text: &str) -> Result<u32, String> {
    let rate = text.strip_suffix("/s").unwrap_or(text).parse().ok();
    rate.filter(|rate| (1..=5000).contains(rate))
        .ok_or_else(|| "write calls per second, from 1/s to 5000/s".to_owned())
}

fn share(text: &str) -> Result<f64, String> {
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.parse().map(|percent: f64| percent / 100.0),
        None => text.parse(),
    };
    let share = share.ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "write a share such as 2% or 0.02".to_owned())
}

fn flap(text: &str) -> Result<Flap, String> {
    let flap = text.split_once('/').and_then(|(up, down)| {
        let (up, down) = (duration::parse(up)?, duration::parse(down)?);
        (!up.is_zero() && !down.is_zero()).then_some(Flap { up, down })
    });
    flap.ok_or_else(|| "write two durations such as 20s/20s".to_owned())
}

fn time_range(text: &str) -> Result<Range<Duration>, String> {
    let times = text.split_once("..").and_then(|(from, to)| {
        let (from, to) = (duration::parse(from)?, duration::parse(to)?);
        (from < to).then_some(from..to)
    });
    times.ok_or_else(|| {
        "write two times from the beginning, the first one earlier, such as 5m..10m".to_owned()
    })
}
