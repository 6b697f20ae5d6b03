//! The status line at the bottom: model, settings and usage.

use outlast_kernel::budget::Cost;

/// The values of the status line.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Status {
    /// The session's id.
    pub(crate) session: String,
    pub(crate) folder: String,
    pub(crate) model: String,
    pub(crate) account: Option<String>,
    pub(crate) policy: String,
    /// The tokens of the conversation, and the model's limit.
    pub(crate) context: u64,
    pub(crate) window: Option<u64>,
    pub(crate) cost: Option<Cost>,
    /// Number of retries so far.
    pub(crate) retries: u64,
    /// Whether automatic retries are off.
    pub(crate) retries_off: bool,
    /// Whether the session has no journal.
    pub(crate) is_unrecorded: bool,
}

impl Status {
    /// Returns the parts, the most important first: the last ones are left out if they do not fit.
    pub(crate) fn parts(&self) -> Vec<String> {
        let mut parts = vec![self.model.clone()];
        parts.extend(self.account.clone());
        parts.extend((self.context > 0 || self.window.is_some()).then(|| self.context()));
        parts.extend(self.cost.map(dollars));
        parts.push(match (self.retries_off, self.retries) {
            (true, _) => "retries off".to_owned(),
            (false, 1) => "1 retry".to_owned(),
            (false, retries) => format!("{retries} retries"),
        });
        parts.push(self.policy.clone());
        parts.extend(self.is_unrecorded.then(|| "not written down".to_owned()));
        parts.push(self.folder.clone());
        parts.retain(|part| !part.is_empty());
        parts
    }

    fn context(&self) -> String {
        let used = thousands(self.context);
        match self.window {
            Some(window) if window > 0 => {
                let percent = self.context.saturating_mul(100) / window;
                format!("{used}/{} ({percent}%)", thousands(window))
            }
            _ => format!("{used} tokens"),
        }
    }

    /// Returns the line at that width.
    pub(crate) fn line(&self, width: usize) -> String {
        let mut line = String::new();
        for part in self.parts() {
            let separator = if line.is_empty() { "" } else { " · " };
            let next = format!("{line}{separator}{part}");
            if unicode_width::UnicodeWidthStr::width(next.as_str()) > width && !line.is_empty() {
                break;
            }
            line = next;
        }
        line
    }
}

fn thousands(tokens: u64) -> String {
    match tokens {
        0..1000 => tokens.to_string(),
        1000..1_000_000 => format!("{}k", tokens / 1000),
        _ => format!("{}.{}M", tokens / 1_000_000, tokens % 1_000_000 / 100_000),
    }
}

fn dollars(cost: Cost) -> String {
    // A cost is stored in millionths.
    let cents = cost.0.div_ceil(10_000);
    match cost.0 {
        0 => "$0.00".to_owned(),
        _ => format!("${}.{:02}", cents / 100, cents % 100),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Status {
        Status {
            model: "claude-opus".to_owned(),
            account: Some("work".to_owned()),
            policy: "session".to_owned(),
            context: 24_100,
            window: Some(200_000),
            cost: Some(Cost(123_456)),
            retries: 3,
            folder: "~/project".to_owned(),
            ..Status::default()
        }
    }

    #[test]
    fn narrow_status_line_keeps_most_important_parts() {
        let whole = "claude-opus · work · 24k/200k (12%) · $0.13 · 3 retries · session · ~/project";
        assert_eq!(status().line(100), whole);
        assert_eq!(status().line(40), "claude-opus · work · 24k/200k (12%)");
        assert_eq!(status().line(15), "claude-opus");
    }

    #[test]
    fn token_counts_are_short_and_costs_round_up() {
        let table = [
            (0, "0"),
            (999, "999"),
            (1000, "1k"),
            (999_999, "999k"),
            (1_250_000, "1.2M"),
        ];
        for (tokens, expected) in table {
            assert_eq!(thousands(tokens), expected);
        }
        let table = [
            (0, "$0.00"),
            (1, "$0.01"),
            (10_000, "$0.01"),
            (10_001, "$0.02"),
            (12_340_000, "$12.34"),
        ];
        for (cost, expected) in table {
            assert_eq!(dollars(Cost(cost)), expected);
        }
    }

    #[test]
    fn status_line_handles_unusual_windows_and_retry_states() {
        type Change = fn(&mut Status);
        let table: [(Change, &str); 5] = [
            (|it| it.window = Some(0), "24k tokens"),
            (|it| it.window = None, "24k tokens"),
            (|it| it.context = u64::MAX, "(92233720368547%)"),
            (|it| it.retries = 1, "1 retry"),
            (|it| it.retries_off = true, "retries off"),
        ];
        for (change, expected) in table {
            let mut status = status();
            change(&mut status);
            assert!(status.line(200).contains(expected), "{}", status.line(200));
        }
    }

    #[test]
    fn wide_names_are_measured_in_columns() {
        let status = Status {
            model: "模型".to_owned(),
            account: Some("账户".to_owned()),
            ..Status::default()
        };
        assert_eq!(status.line(11), "模型 · 账户");
        assert_eq!(status.line(10), "模型");
        assert_eq!(status.line(0), "模型");
    }

    #[test]
    fn unknown_values_are_omitted_from_status_line() {
        let status = Status {
            model: "m".to_owned(),
            ..Status::default()
        };
        assert_eq!(status.line(80), "m · 0 retries");
    }
}
