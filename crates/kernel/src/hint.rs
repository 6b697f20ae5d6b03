//! Reads every stated retry time of a failure and chooses the one that counts.
//!
//! One grammar for headers, body fields and text. Headers and fields have precedence over the text; of equals the
//! longest counts. A report about a bucket counts only when nothing was stated, and only for the empty bucket. A moment
//! is as far away as it is from the server's own clock, where the server states its time.
//! Invariant: reading is total, and absurd values neither panic nor wrap.

mod duration;
mod moment;

use crate::Timestamp;
use crate::classify::wording::{Cue, Wording};
use crate::failure::Failure;
use crate::verdict::{Authority, Hint};
use duration::BareUnit;
use moment::LocalClock;

/// Returns the time that a failure states, if any.
pub(crate) fn read(failure: &Failure, wording: &Wording) -> Option<Hint> {
    let server_now = failure
        .header("date")
        .and_then(moment::parse_timestamp)
        .unwrap_or(failure.at);
    let mut reader = Reader {
        failure,
        server_now,
        facts: None,
        text: None,
        naive: None,
    };
    reader.read_headers();
    reader.read_fields();
    if reader.facts.is_none() {
        reader.read_text(wording);
    }
    let Reader {
        facts, text, naive, ..
    } = reader;
    facts
        .or(text)
        .or(naive)
        .or_else(|| from_buckets(failure, server_now))
}

/// A failure, and the latest time of each rank that was found in it.
struct Reader<'a> {
    failure: &'a Failure,
    server_now: Timestamp,
    facts: Option<Hint>,
    text: Option<Hint>,
    /// A time of day without a zone: good enough when nothing better was stated.
    naive: Option<Hint>,
}

fn keep_latest(slot: &mut Option<Hint>, at: Option<Timestamp>, source: &str) {
    let Some(at) = at else { return };
    if slot.as_ref().is_none_or(|known| known.not_before < at) {
        *slot = Some(Hint {
            not_before: at,
            source: source.to_owned(),
            authority: Authority::Stated,
        });
    }
}

/// Returns a moment by our own clock, as far away as it is from the server's. A past moment is ignored.
fn to_local_clock(failure: &Failure, server_now: Timestamp, at: Timestamp) -> Option<Timestamp> {
    (at >= server_now).then(|| failure.at + at.since(server_now))
}

// --- headers ---

const UNIFIED_HEADER_PREFIX: &str = "anthropic-ratelimit-unified-";

impl Reader<'_> {
    fn read_headers(&mut self) {
        let failure = self.failure;
        for name in ["retry-after-ms", "x-ms-retry-after-ms"] {
            let wait = failure
                .header(name)
                .and_then(|value| duration::parse_whole(value, BareUnit::Millis));
            keep_latest(&mut self.facts, wait.map(|wait| failure.at + wait), name);
        }
        if let Some(value) = failure.header("retry-after") {
            let wait =
                duration::parse_whole(value, BareUnit::Seconds).map(|wait| failure.at + wait);
            let at = wait.or_else(|| self.on_local_clock(moment::parse_timestamp(value)));
            keep_latest(&mut self.facts, at, "retry-after");
        }
        // Names are put together only where there is something to find.
        if failure
            .headers
            .iter()
            .any(|(name, _)| name.starts_with(UNIFIED_HEADER_PREFIX))
        {
            let at = self.on_local_clock(rejected_window(failure));
            keep_latest(&mut self.facts, at, "anthropic-ratelimit-unified-reset");
        }
        let mut parts = failure.headers.iter().chain(&failure.fields);
        if parts.any(|(name, _)| name.starts_with("x-codex-")) {
            let at = self.codex_window();
            keep_latest(&mut self.facts, at, "x-codex-primary-reset");
        }
    }

    fn on_local_clock(&self, at: Option<Timestamp>) -> Option<Timestamp> {
        at.and_then(|at| to_local_clock(self.failure, self.server_now, at))
    }

    /// Returns the reset of the subscription window that is used up.
    fn codex_window(&self) -> Option<Timestamp> {
        let value = |window: &str, name: &str| {
            let name = format!("x-codex-{window}-{name}");
            self.failure
                .header(&name)
                .or_else(|| self.failure.field(&name))
        };
        let reset = |window: &str| {
            let used: f64 = value(window, "used-percent")?.trim().parse().ok()?;
            let at =
                || self.on_local_clock(value(window, "reset-at").and_then(moment::parse_epoch));
            let after =
                || duration::parse_whole(value(window, "reset-after-seconds")?, BareUnit::Seconds);
            (used >= 100.0)
                .then(|| at().or_else(|| after().map(|wait| self.failure.at + wait)))
                .flatten()
        };
        ["primary", "secondary"].into_iter().filter_map(reset).max()
    }
}

/// Returns the reset of the rejected window; the latest of several. Usage paid beyond the plan is not a window.
fn rejected_window(failure: &Failure) -> Option<Timestamp> {
    let windows = failure.headers.iter().filter_map(|(name, value)| {
        let window = name
            .strip_prefix(UNIFIED_HEADER_PREFIX)?
            .strip_suffix("status")?;
        (value == "rejected" && !window.contains("overage")).then_some(window)
    });
    let reset = |window: &str| {
        failure
            .header(&format!("{UNIFIED_HEADER_PREFIX}{window}reset"))
            .and_then(moment::parse_epoch)
    };
    let named = windows
        .clone()
        .filter(|window| !window.is_empty())
        .filter_map(reset)
        .max();
    named.or_else(|| windows.filter_map(reset).max())
}

/// Returns the reset of the empty bucket in a report, for a failure without a stated time.
fn from_buckets(failure: &Failure, server_now: Timestamp) -> Option<Hint> {
    let all = || failure.headers.iter().chain(&failure.fields);
    let knows_remaining = all().any(|(name, _)| name.contains("remaining"));
    let resets = all().filter_map(|(name, value)| {
        let bucket = bucket_of(name)?;
        let left = all()
            .find(|(other, _)| *other == bucket)
            .and_then(|(_, value)| value.trim().parse::<f64>().ok());
        let empty = left.map_or(!knows_remaining, |left| left <= 0.0);
        let moment = moment::parse_epoch(value).or_else(|| moment::parse_timestamp(value));
        let at = match moment {
            Some(at) => to_local_clock(failure, server_now, at),
            None => duration::parse_whole(value, BareUnit::Seconds).map(|wait| failure.at + wait),
        };
        at.filter(|at| empty && *at > failure.at)
            .map(|at| (at, name))
    });
    let (at, name) = resets.max_by_key(|(at, _)| *at)?;
    Some(Hint {
        not_before: at,
        source: crate::text::sanitized_message(name),
        authority: Authority::Reported,
    })
}

/// Returns the header with the remaining amount of the bucket whose reset this header states.
fn bucket_of(name: &str) -> Option<String> {
    if name.contains("unified") {
        return None;
    }
    let named = ["x-ratelimit-reset", "x-rate-limit-reset", "ratelimit-reset"];
    if named.iter().any(|known| name.starts_with(known)) {
        return Some(name.replacen("reset", "remaining", 1));
    }
    let bucket = name
        .strip_prefix("anthropic-ratelimit-")?
        .strip_suffix("-reset")?;
    Some(format!("anthropic-ratelimit-{bucket}-remaining"))
}

// --- the body ---

impl Reader<'_> {
    fn read_fields(&mut self) {
        for (name, value) in &self.failure.fields {
            let after =
                |bare| duration::parse_whole(value, bare).map(|wait| self.failure.at + wait);
            let at = || {
                self.on_local_clock(
                    moment::parse_epoch(value).or_else(|| moment::parse_timestamp(value)),
                )
            };
            let stated = match name.as_str() {
                "retrydelay"
                | "resets_in_seconds"
                | "retry_after_seconds"
                | "reset_after_seconds"
                | "retry_after"
                | "retry-after"
                | "retryafter"
                | "resets_in"
                | "retry_after_s"
                | "estimated_time"
                | "wait_seconds"
                | "retry_in" => after(BareUnit::Seconds),
                "retry_after_ms" | "retry-after-ms" | "retryafterms" | "retry_delay_ms" => {
                    after(BareUnit::Millis)
                }
                "resets_at"
                | "reset_at"
                | "resetsat"
                | "resetat"
                | "reset_time"
                | "resettime"
                | "quotaresettimestamp"
                | "next_request_at"
                | "resets_at_ms" => at(),
                _ => None,
            };
            keep_latest(&mut self.facts, stated, name);
        }
    }

    // --- the message ---

    fn read_text(&mut self, wording: &Wording) {
        let failure = self.failure;
        let here = LocalClock {
            now: failure.at,
            offset_minutes: failure.local_offset_minutes,
        };
        for (cue, rest) in wording.after_cues() {
            let after = |bare| duration::parse_leading(rest, bare).map(|wait| failure.at + wait);
            let wait = match cue {
                Cue::In => after(BareUnit::UnitRequired),
                Cue::After => after(BareUnit::Seconds),
                Cue::AfterMillis => after(BareUnit::Millis),
                Cue::At => None,
            };
            keep_latest(&mut self.text, wait, "text");
            if wait.is_some() || !matches!(cue, Cue::At | Cue::After) {
                continue;
            }
            match moment::parse_leading(rest, here) {
                Some(moment) if moment.has_zone => {
                    let at = self.on_local_clock(Some(moment.at));
                    keep_latest(&mut self.text, at, "text");
                }
                Some(moment) if moment.at > here.now => {
                    keep_latest(&mut self.naive, Some(moment.at), "text")
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
#[path = "hint_tests.rs"]
mod tests;
