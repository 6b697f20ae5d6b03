//! Times as the files have them: milliseconds since the epoch.

use outlast_kernel::Timestamp;

/// Returns a time in the form of the file.
pub(crate) fn millis(time: Timestamp) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// Returns a time of the file.
pub(crate) fn timestamp(millis: i64) -> Timestamp {
    Timestamp::from_millis(u64::try_from(millis).unwrap_or_default())
}
