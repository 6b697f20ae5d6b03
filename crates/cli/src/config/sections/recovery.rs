//! Settings for remedies other than a retry: a fallback model, compaction, a correction, a continuation.

use crate::config::layers::Layers;
use crate::config::sections::fallback_chain::ProviderModel;
use outlast_kernel::decision::AfterContent;
use outlast_kernel::fallback::{Condition, Rules};
use outlast_kernel::model_info::{self, Capabilities, ContinueBy};
use outlast_session::compaction;

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
        let usual = compaction::Settings::default();
        let own = layers.table("compaction");
        Self {
            after_content: match layers.get::<String>("after_content").as_deref() {
                Some("fail") => AfterContent::Fail,
                Some("continue") => AfterContent::Continue,
                _ => AfterContent::Retract,
            },
            corrections: match layers.get("recovery.retry_unusable_responses") {
                Some(true) => DEFAULT_CORRECTIONS,
                _ => 0,
            },
            fallback: rules(layers),
            compaction: compaction::Settings {
                enabled: own.value("enabled"),
                threshold: f64::from(own.value::<u32>("threshold")) / 100.0,
                keep_tokens: own.value::<u32>("keep").into(),
                ..usual
            },
        }
    }
}

fn rules(layers: &Layers) -> Rules {
    let own = layers.table("fallback");
    let words: Vec<String> = own.value("on");
    let is_named = |one: &Condition| words.iter().any(|word| word == one.as_str());
    Rules {
        conditions: Condition::ALL.into_iter().filter(is_named).collect(),
        overload_retries: own.value("overload_retries"),
        max_usage_wait: own.value("max_usage_limit_wait"),
        cooldown: own.value("cooldown"),
    }
}

/// Returns the capabilities of a model: the built-in ones, overridden by the settings.
pub(in crate::config) fn model_traits(layers: &Layers, place: &ProviderModel) -> Capabilities {
    let known = model_info::capabilities(place.provider.name(), &place.model);
    let own = layers.named("models", &place.model);
    let window = own.get("context_window").map(|tokens: u32| tokens.into());
    let continues_by = own.get("continue_by");
    let continues_by = continues_by.and_then(|name: String| ContinueBy::named(&name));
    Capabilities {
        window: window.or(known.window),
        continues_by: continues_by.unwrap_or(known.continues_by),
    }
}
