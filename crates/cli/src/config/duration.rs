//! Durations in settings: `30s`, `2m`, `1h30m`, `500ms`, `1.5s`, or a number of seconds.

use outlast_kernel::time::Span;
use std::time::Duration;

/// Parses a duration; `None` if the text is none.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    text.parse::<Span>().ok().map(|span| span.0)
}

/// Formats a duration as a file can have it, to the millisecond.
pub(crate) fn to_text(duration: Duration) -> String {
    let span = Span(duration).to_string();
    if parse(&span) == Some(duration) {
        return span;
    }
    let millis = duration.subsec_millis();
    format!(
        "{}{millis}ms",
        Span(Duration::from_secs(duration.as_secs()))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formatted_duration_parses_back() {
        for millis in [0, 1, 999, 1_500, 1_550, 90_250, 300_000, 86_400_001] {
            let duration = Duration::from_millis(millis);
            assert_eq!(
                parse(&to_text(duration)),
                Some(duration),
                "{}",
                to_text(duration)
            );
        }
    }
}
