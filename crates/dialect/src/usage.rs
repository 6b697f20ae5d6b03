//! What a call has used, in the three ways of saying it.

use crate::Delta;
use outlast_kernel::event::Usage;
use serde_json::Value;

/// Where a dialect has its numbers, as JSON pointers; the first that is there counts.
pub(crate) struct UsagePointers {
    pub(crate) input: &'static str,
    pub(crate) output: &'static str,
    pub(crate) cache_read: &'static [&'static str],
    pub(crate) cache_write: Option<&'static str>,
    /// With us the tokens read from the cache are counted apart.
    pub(crate) cache_is_in_input: bool,
}

/// What is known so far. A report that leaves a number out, or has it as nothing, does not take it back.
#[derive(Debug, Default)]
pub(crate) struct UsageTracker {
    known: Usage,
    told: Option<Usage>,
}

impl UsageTracker {
    /// What a report adds to what was told before.
    pub(crate) fn report(&mut self, usage: &Value, names: &UsagePointers) -> Option<Delta> {
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
        let known = &mut self.known;
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
        if names.cache_is_in_input {
            usage.input = usage.input.saturating_sub(usage.cache_read);
        }
        (self.told.replace(usage) != Some(usage)).then_some(Delta::Usage(usage))
    }
}
