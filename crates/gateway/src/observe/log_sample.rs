//! A sample request for tests.

use super::{Outcome, Record};
use outlast_dialect::Dialect;
use outlast_kernel::Timestamp;
use std::time::Duration;

/// All outcomes.
pub(crate) const OUTCOMES: [Outcome; 6] = [
    Outcome::Answered,
    Outcome::Failed,
    Outcome::Broken,
    Outcome::SentBack,
    Outcome::Left,
    Outcome::Cancelled,
];

pub(crate) fn record() -> Record<'static> {
    Record {
        received_at: Timestamp::from_millis(1_794_715_200_123),
        client: "claude-code",
        dialect: Some(Dialect::Anthropic),
        model: Some("claude-opus-5"),
        account: Some("work"),
        method: "POST",
        path: "/v1/messages?key=0123456789abcdef",
        status: Some(200),
        attempts: 3,
        waited: Duration::from_millis(15_000),
        duration: Duration::from_millis(21_500),
        first_byte: Some(Duration::from_millis(16_250)),
        bytes_in: 4096,
        bytes_out: 12_345,
        outcome: Outcome::Answered,
        cause: None,
    }
}
