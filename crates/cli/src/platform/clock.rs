//! The clock of this process, with the time scale from the environment.

use crate::platform::exit::UsageError;
use outlast_engine::clock::WallClock;
use std::num::NonZeroU32;

const TIME_SCALE_VARIABLE: &str = "OUTLAST_TIME_SCALE";

/// Returns the clock of this process.
pub(crate) fn clock() -> Result<WallClock, UsageError> {
    let Some(scale) = time_scale()? else {
        return Ok(WallClock::default());
    };
    WallClock::scaled(scale).ok_or_else(|| {
        UsageError(format!(
            "{TIME_SCALE_VARIABLE}={scale} runs past the year 9999; take a smaller one"
        ))
    })
}

/// Returns how many times as fast as real time the clock runs, or `None` for real time.
pub(crate) fn time_scale() -> Result<Option<NonZeroU32>, UsageError> {
    let Some(text) = std::env::var_os(TIME_SCALE_VARIABLE) else {
        return Ok(None);
    };
    let text = text.to_string_lossy();
    let scale: NonZeroU32 = text.trim().parse().map_err(|_| {
        UsageError(format!(
            "{TIME_SCALE_VARIABLE} is a whole number of at least 1, such as 60; it is `{text}`"
        ))
    })?;
    Ok((scale > NonZeroU32::MIN).then_some(scale))
}
