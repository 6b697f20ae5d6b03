//! The token usage of a call, in the three formats of the dialects.

use crate::Delta;
use outlast_kernel::event::Usage;
use serde_json::Value;

/// The JSON pointers to a dialect's numbers; the first that is present counts.
pub(crate) struct UsagePointers {
    pub(crate) input: &'static str,
    pub(crate) output: &'static str,
    pub(crate) cache_read: &'static [&'static str],
    pub(crate) cache_write: Option<&'static str>,
    /// Whether the input includes the cached tokens; our `Usage` counts them separately.
    pub(crate) input_includes_cache: bool,
}

/// The usage known so far. A report without a number, or with null for it, does not reset it.
#[derive(Debug, Default)]
pub(crate) struct UsageTracker {
    latest: Usage,
    last_reported: Option<Usage>,
}

impl UsageTracker {
    /// Applies a report to the numbers so far.
    pub(crate) fn update(&mut self, usage: &Value, names: &UsagePointers) -> Option<Delta> {
        usage.as_object()?;
        let number = |name: &str| usage.pointer(name)?.as_u64();
        let numbers = [
            number(names.input),
            number(names.output),
            names.cache_read.iter().find_map(|name| number(name)),
            names.cache_write.and_then(number),
        ];
        if numbers.iter().all(Option::is_none) {
            return None;
        }
        let known = &mut self.latest;
        let places = [
            &mut known.input,
            &mut known.output,
            &mut known.cache_read,
            &mut known.cache_write,
        ];
        for (place, number) in places.into_iter().zip(numbers) {
            *place = number.filter(|number| *number > 0).unwrap_or(*place);
        }
        let mut usage = *known;
        if names.input_includes_cache {
            usage.input = usage.input.saturating_sub(usage.cache_read);
        }
        (self.last_reported.replace(usage) != Some(usage)).then_some(Delta::Usage(usage))
    }
}
