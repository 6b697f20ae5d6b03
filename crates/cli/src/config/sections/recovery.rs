//! Settings for remedies other than a retry: a fallback model, compaction, a correction, a continuation.

use crate::config::key::Key;
use crate::config::layers::Layers;
use crate::config::sections::fallback_chain::ProviderModel;
use crate::config::value::Value;
use outlast_kernel::decision::AfterContent;
use outlast_kernel::fallback::{Condition, Rules};
use outlast_kernel::model_info::{self, Capabilities, ContinueBy};
use outlast_session::compaction;
use std::time::Duration;

/// The default for [`Recovery::corrections`].
const DEFAULT_CORRECTIONS: u32 = 3;

/// Settings for remedies other than a retry.
#[derive(Clone, Debug)]
pub(crate) struct Recovery {
    pub(crate) after_content: AfterContent,
    /// The largest number of corrections in a row: messages that tell a model why its completion is invalid.
    pub(crate) corrections: u32,
    /// The conditions for a fallback.
    pub(crate) fallback: Rules,
    pub(crate) compaction: compaction::Settings,
}

impl Recovery {
    pub(in crate::config) fn from_layers(layers: &Layers) -> Self {
        let flag = |path| matches!(layers.value(path), Some(Value::Flag(true)));
        let usual = compaction::Settings::default();
        Self {
            after_content: match layers.text(&Key::from_path("after_content")) {
                Some("fail") => AfterContent::Fail,
                Some("continue") => AfterContent::Continue,
                _ => AfterContent::Retract,
            },
            corrections: match flag("recovery.retry_unusable_responses") {
                true => DEFAULT_CORRECTIONS,
                false => 0,
            },
            fallback: rules(layers),
            compaction: compaction::Settings {
                enabled: flag("compaction.enabled"),
                threshold: count(layers, "compaction.threshold")
                    .map_or(usual.threshold, |percent| f64::from(percent) / 100.0),
                keep_tokens: count(layers, "compaction.keep").map_or(usual.keep_tokens, u64::from),
                ..usual
            },
        }
    }
}

fn rules(layers: &Layers) -> Rules {
    let usual = Rules::default();
    let duration = |path, usual: Duration| match layers.value(path) {
        Some(Value::Duration(duration)) => *duration,
        _ => usual,
    };
    Rules {
        conditions: match layers.value("fallback.on") {
            Some(Value::List(words)) => {
                let is_named = |one: &Condition| words.iter().any(|word| word == one.as_str());
                Condition::ALL.into_iter().filter(is_named).collect()
            }
            _ => usual.conditions,
        },
        overload_retries: count(layers, "fallback.overload_retries")
            .unwrap_or(usual.overload_retries),
        max_usage_wait: duration("fallback.max_usage_limit_wait", usual.max_usage_wait),
        cooldown: duration("fallback.cooldown", usual.cooldown),
    }
}

fn count(layers: &Layers, path: &str) -> Option<u32> {
    match layers.value(path) {
        Some(Value::Count(count)) => Some(*count),
        _ => None,
    }
}

/// Returns the capabilities of a model: the built-in ones, overridden by the settings.
pub(in crate::config) fn model_traits(layers: &Layers, place: &ProviderModel) -> Capabilities {
    let ProviderModel { provider, model } = place;
    let own = |field: &str| Key::with_name(&format!("models.<model>.{field}"), model);
    let known = model_info::capabilities(provider.name(), model);
    let window = layers.effective.get(&own("context_window"));
    Capabilities {
        window: match window.map(|found| &found.value) {
            Some(Value::Count(tokens)) => Some(u64::from(*tokens)),
            _ => known.window,
        },
        continues_by: layers
            .text(&own("continue_by"))
            .and_then(ContinueBy::named)
            .unwrap_or(known.continues_by),
    }
}
