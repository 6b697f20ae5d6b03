//! The state of a gate in one sentence, for people: the same words at every door.

use super::Gate;
use crate::Timestamp;
use crate::time::{Span, millis};
use std::time::Duration;

/// The state of a gate at which nothing is wrong.
const CALLS_SUCCEED: &str = "calls succeed";

impl Gate {
    /// Returns the state of the gate in one sentence. `failed_share` is the share of late calls that failed, as far as it is
    /// known, and `waiting` the number of requests that wait for the gate.
    pub fn summary(&self, failed_share: Option<f64>, waiting: u64, now: Timestamp) -> String {
        if let Some((since, probe_at)) = self.outage() {
            let down = whole_seconds(now.since(since));
            let next = match (self.not_before() > now, probe_at > now) {
                (true, _) => format!(
                    "stated reset in {}",
                    whole_seconds(self.not_before().since(now))
                ),
                (false, true) => format!("next probe in {}", whole_seconds(probe_at.since(now))),
                (false, false) => "probing".to_owned(),
            };
            return format!("down for {down}; {next}; {waiting} wait");
        }
        if let Some(rate) = self.rate() {
            return format!("recovering at {} calls/s; {waiting} wait", rounded(rate));
        }
        match failed_share.map(|share| rounded(share * 100.0)) {
            Some(percent) if percent != "0" => {
                format!("{percent} % of calls fail; not waiting for others")
            }
            _ => CALLS_SUCCEED.to_owned(),
        }
    }
}

/// A time rounded up to whole seconds, so that what is to come is not said to be over.
fn whole_seconds(time: Duration) -> Span {
    Span(Duration::from_secs(millis(time).div_ceil(1000)))
}

/// A number with one decimal below ten.
fn rounded(number: f64) -> String {
    let text = match number < 9.95 {
        true => format!("{number:.1}"),
        false => format!("{number:.0}"),
    };
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::super::{Down, State};
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    #[test]
    fn flowing_gate_says_how_many_calls_fail() {
        let gate = Gate::default();
        for (share, summary) in [
            (None, CALLS_SUCCEED),
            (Some(0.0004), CALLS_SUCCEED),
            (Some(0.012), "1.2 % of calls fail; not waiting for others"),
            (Some(0.12), "12 % of calls fail; not waiting for others"),
        ] {
            assert_eq!(gate.summary(share, 0, NOW), summary);
        }
    }

    #[test]
    fn gate_that_is_down_says_since_when_and_what_comes_next() {
        let down = |probe_at| Gate {
            state: State::Down(Down {
                since: Timestamp::from_millis(1_000_000 - 750_000),
                probe_at,
                failed_probes: 3,
                leased_until: None,
                previous_rate: None,
            }),
            ..Gate::default()
        };
        let soon = NOW + Duration::from_millis(5_200);
        assert_eq!(
            down(soon).summary(None, 40, NOW),
            "down for 12m30s; next probe in 6s; 40 wait"
        );
        assert_eq!(
            down(NOW).summary(None, 2, NOW),
            "down for 12m30s; probing; 2 wait"
        );
        let limited = Gate {
            not_before: NOW + Duration::from_secs(18_000),
            ..down(soon)
        };
        assert_eq!(
            limited.summary(None, 1, NOW),
            "down for 12m30s; stated reset in 5h; 1 wait"
        );
    }
}
