//! When to come back: every stated time of a failure, and the one that counts.
//!
//! One grammar for headers, body fields and text. The longest stated time counts; a report about a bucket counts only
//! when nothing was stated, and only for the bucket that is empty. Invariant: reading is total, and absurd values
//! neither panic nor wrap.

mod duration;
mod moment;

use crate::Timestamp;
use crate::classify::wording::{Cue, Wording};
use crate::failure::Failure;
use crate::verdict::{Authority, Hint};
use duration::Bare;
use moment::Here;

/// The time that a failure states, if any.
pub(crate) fn read(failure: &Failure, wording: &Wording) -> Option<Hint> {
    let here = Here {
        now: failure.at,
        offset_minutes: failure.local_offset_minutes,
    };
    let mut best = Best::default();
    from_headers(failure, &mut best);
    from_fields(failure, &mut best);
    from_text(wording, here, &mut best);
    best.stated.or(best.naive).or_else(|| from_buckets(failure))
}

/// The latest time of each rank.
#[derive(Default)]
struct Best {
    stated: Option<Hint>,
    /// A time of day without a zone: good enough when nothing better was said.
    naive: Option<Hint>,
}

impl Best {
    fn offer(&mut self, at: Option<Timestamp>, source: &str) {
        if let Some(at) = at {
            keep_latest(&mut self.stated, at, source);
        }
    }
}

fn keep_latest(slot: &mut Option<Hint>, at: Timestamp, source: &str) {
    if slot.as_ref().is_none_or(|known| known.not_before < at) {
        *slot = Some(Hint {
            not_before: at,
            source: source.to_owned(),
            authority: Authority::Stated,
        });
    }
}

// --- headers ---

const UNIFIED: &str = "anthropic-ratelimit-unified-";

fn from_headers(failure: &Failure, best: &mut Best) {
    let now = failure.at;
    for name in ["retry-after-ms", "x-ms-retry-after-ms"] {
        let wait = failure
            .header(name)
            .and_then(|value| duration::whole(value, Bare::Millis));
        best.offer(wait.map(|wait| now + wait), name);
    }
    if let Some(value) = failure.header("retry-after") {
        let at = duration::whole(value, Bare::Seconds).map(|wait| now + wait);
        best.offer(at.or_else(|| http_date(failure, value)), "retry-after");
    }
    // Names are put together only where there is something to find.
    if failure
        .headers
        .iter()
        .any(|(name, _)| name.starts_with(UNIFIED))
    {
        best.offer(
            rejected_window(failure),
            "anthropic-ratelimit-unified-reset",
        );
    }
    let mut parts = failure.headers.iter().chain(&failure.fields);
    if parts.any(|(name, _)| name.starts_with("x-codex-")) {
        best.offer(codex_window(failure), "x-codex-primary-reset");
    }
}

/// A date, as far from now as it is from the server's own clock. One that has passed says nothing.
fn http_date(failure: &Failure, value: &str) -> Option<Timestamp> {
    let at = moment::stamp(value)?;
    let server_now = failure
        .header("date")
        .and_then(moment::stamp)
        .unwrap_or(failure.at);
    (at > server_now).then(|| failure.at + at.since(server_now))
}

/// The reset of the window that was rejected; the latest, if there are several.
fn rejected_window(failure: &Failure) -> Option<Timestamp> {
    let windows = failure.headers.iter().filter_map(|(name, value)| {
        let window = name.strip_prefix(UNIFIED)?.strip_suffix("status")?;
        (value == "rejected").then_some(window)
    });
    let reset = |window: &str| {
        failure
            .header(&format!("{UNIFIED}{window}reset"))
            .and_then(moment::epoch)
    };
    let named = windows
        .clone()
        .filter(|window| !window.is_empty())
        .filter_map(reset)
        .max();
    named
        .or_else(|| windows.filter_map(reset).max())
        .filter(|at| *at > failure.at)
}

/// The reset of the subscription window that is used up.
fn codex_window(failure: &Failure) -> Option<Timestamp> {
    let value = |window: &str, name: &str| {
        let name = format!("x-codex-{window}-{name}");
        failure.header(&name).or_else(|| failure.field(&name))
    };
    let reset = |window: &str| {
        let used: f64 = value(window, "used-percent")?.trim().parse().ok()?;
        let after = || {
            duration::whole(value(window, "reset-after-seconds")?, Bare::Seconds)
                .map(|wait| failure.at + wait)
        };
        (used >= 100.0)
            .then(|| {
                value(window, "reset-at")
                    .and_then(moment::epoch)
                    .or_else(after)
            })
            .flatten()
    };
    ["primary", "secondary"]
        .into_iter()
        .filter_map(reset)
        .filter(|at| *at > failure.at)
        .max()
}

/// What a report about buckets says of the empty one, when nobody stated a time.
fn from_buckets(failure: &Failure) -> Option<Hint> {
    let all = || failure.headers.iter().chain(&failure.fields);
    let knows_remaining = all().any(|(name, _)| name.contains("remaining"));
    let resets = all().filter_map(|(name, value)| {
        let bucket = bucket_of(name)?;
        let left = all()
            .find(|(other, _)| *other == bucket)
            .and_then(|(_, value)| value.trim().parse::<f64>().ok());
        let empty = left.map_or(!knows_remaining, |left| left <= 0.0);
        let at = bucket_reset(failure, value)?;
        (empty && at > failure.at).then_some((at, name))
    });
    let (at, name) = resets.max_by_key(|(at, _)| *at)?;
    Some(Hint {
        not_before: at,
        source: name.clone(),
        authority: Authority::Reported,
    })
}

/// The header that says what is left in the bucket whose reset this header states.
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

fn bucket_reset(failure: &Failure, value: &str) -> Option<Timestamp> {
    let wait = || duration::whole(value, Bare::Seconds).map(|wait| failure.at + wait);
    moment::epoch(value)
        .or_else(|| moment::stamp(value))
        .or_else(wait)
}

// --- the body ---

fn from_fields(failure: &Failure, best: &mut Best) {
    for (name, value) in &failure.fields {
        let after = |bare| duration::whole(value, bare).map(|wait| failure.at + wait);
        let at = || {
            moment::epoch(value)
                .or_else(|| moment::stamp(value))
                .filter(|at| *at > failure.at)
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
            | "retry_in" => after(Bare::Seconds),
            "retry_after_ms" | "retry-after-ms" | "retryafterms" | "retry_delay_ms" => {
                after(Bare::Millis)
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
        best.offer(stated, name);
    }
}

// --- the message ---

fn from_text(wording: &Wording, here: Here, best: &mut Best) {
    for (cue, rest) in wording.after_cues() {
        let after = |bare| duration::leading(rest, bare).map(|wait| here.now + wait);
        match cue {
            Cue::In => best.offer(after(Bare::Refused), "text"),
            Cue::After => best.offer(after(Bare::Seconds), "text"),
            Cue::AfterMillis => best.offer(after(Bare::Millis), "text"),
            Cue::At => match moment::leading(rest, here).filter(|moment| moment.at > here.now) {
                Some(moment) if moment.zoned => best.offer(Some(moment.at), "text"),
                Some(moment) => keep_latest(&mut best.naive, moment.at, "text"),
                None => {}
            },
        }
    }
}

#[cfg(test)]
#[path = "hint_tests.rs"]
mod tests;
