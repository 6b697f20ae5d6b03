//! The typed options of a prompt that a later process needs to resume it. They are stored with the prompt.
//!
//! Invariant: nothing here is secret; keys come from the settings of the resuming process.

use crate::args::SessionArguments;
use crate::config::{Provider, Settings};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Settings that apply to one prompt alone, and not to later ones of its session.
const SINGLE_PROMPT_SETTINGS: [&str; 2] = ["limits.deadline", "tools.allow"];

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Options {
    /// Settings, by their paths.
    settings: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) base_url: Option<String>,
    /// Whether completions are requested as a whole.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) whole: bool,
}

impl Options {
    pub(crate) fn from_arguments(choice: &SessionArguments) -> Self {
        let typed = [
            ("tools.allow", choice.allow.as_deref()),
            ("tools.enabled", choice.no_tools.then_some("false")),
            ("limits.deadline", choice.deadline.as_deref()),
        ];
        let typed = typed
            .into_iter()
            .filter_map(|(path, value)| Some((path, value?.to_owned())));
        let settings = choice.flags.overrides().into_iter().chain(typed);
        Self {
            settings: settings
                .map(|(path, value)| (path.to_owned(), value))
                .collect(),
            base_url: choice.base_url.clone(),
            whole: false,
        }
    }

    /// Builds options from settings by their paths; those without a value are left out.
    pub(crate) fn from_settings<const N: usize>(settings: [(&str, Option<String>); N]) -> Self {
        let said = settings.into_iter();
        let said = said.filter_map(|(path, value)| Some((path.to_owned(), value?)));
        Self {
            settings: said.collect(),
            ..Self::default()
        }
    }

    /// Merges the options with others, which take precedence.
    pub(crate) fn overridden_by(mut self, others: &Self) -> Self {
        self.settings.extend(others.settings.clone());
        Self {
            base_url: others.base_url.clone().or(self.base_url),
            ..self
        }
    }

    /// Selects a model from here on.
    pub(crate) fn with_model(self, provider: &str, model: &str) -> Self {
        let chosen = [("provider", provider), ("model", model)];
        let chosen = chosen.map(|(path, value)| (path.to_owned(), value.to_owned()));
        let chosen = Self {
            settings: BTreeMap::from(chosen),
            ..Self::default()
        };
        let kept = self.settings.clone();
        let mut options = chosen.or_earlier(self);
        // The permissions were given to this process, which is still the same.
        for path in SINGLE_PROMPT_SETTINGS {
            let value = kept.get(path).cloned();
            options
                .settings
                .extend(value.map(|value| (path.to_owned(), value)));
        }
        options
    }

    /// Adds to the allowed tools.
    pub(crate) fn allow(&mut self, names: &str) {
        let allowed = self.settings.entry("tools.allow".to_owned());
        let allowed = allowed.or_default();
        *allowed = match allowed.is_empty() {
            true => names.to_owned(),
            false => format!("{allowed},{names}"),
        };
    }

    /// Stores the provider, model and policy in use, whatever their origin: a later process may find other settings. A
    /// temporary fallback model is not stored.
    pub(crate) fn pin_model(&mut self, settings: &Settings, model: &str) {
        let provider = settings.provider.unwrap_or(Provider::Mock).name();
        let pinned = [
            ("provider", provider),
            ("model", model),
            ("retry.policy", &settings.retry.policy.name),
        ];
        for (path, value) in pinned {
            self.settings.insert(path.to_owned(), value.to_owned());
        }
        self.base_url = self.base_url.take().or(settings.base_url.clone());
    }

    /// Returns the options for the next prompt of a session: those typed for it, else the earlier ones.
    pub(crate) fn or_earlier(self, mut earlier: Self) -> Self {
        earlier
            .settings
            .retain(|path, _| !SINGLE_PROMPT_SETTINGS.contains(&path.as_str()));
        // Another provider has another address and other models.
        let provider = self.settings.get("provider");
        if provider.is_some() && provider != earlier.settings.get("provider") {
            earlier.base_url = None;
            earlier.settings.remove("model");
            earlier.settings.remove("fallback.models");
        }
        earlier.settings.extend(self.settings);
        Self {
            settings: earlier.settings,
            base_url: self.base_url.or(earlier.base_url),
            whole: self.whole || earlier.whole,
        }
    }

    /// Fills the gaps with the usual options. The address of the usual provider is left out: it belongs to the machine and
    /// not to the session.
    pub(crate) fn or_defaults(mut self, usual: &Self) -> Self {
        let own = self.settings.get("provider").cloned();
        let is_usual = own.is_none_or(|own| usual.get("provider").is_none_or(|it| it == own));
        for (path, value) in &usual.settings {
            let is_of_provider = ["model", "fallback.models"].contains(&path.as_str());
            if is_usual || !is_of_provider {
                let kept = self.settings.entry(path.clone());
                kept.or_insert_with(|| value.clone());
            }
        }
        let address = usual.base_url.clone().filter(|_| is_usual);
        Self {
            base_url: address.or(self.base_url),
            whole: self.whole || usual.whole,
            ..self
        }
    }

    /// Returns the typed value of a setting.
    pub(crate) fn get(&self, path: &str) -> Option<&str> {
        self.settings.get(path).map(String::as_str)
    }

    pub(crate) fn overrides(&self) -> Vec<(&str, &str)> {
        let pairs = self.settings.iter();
        pairs
            .map(|(path, value)| (path.as_str(), value.as_str()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(settings: &[(&str, &str)]) -> Options {
        Options {
            settings: settings
                .iter()
                .map(|(path, value)| ((*path).to_owned(), (*value).to_owned()))
                .collect(),
            ..Options::default()
        }
    }

    #[test]
    fn next_prompt_keeps_model_but_not_tool_permission() {
        let earlier = options(&[
            ("model", "m"),
            ("tools.allow", "bash"),
            ("retry.policy", "none"),
        ]);
        let next = options(&[("retry.policy", "overnight")]).or_earlier(earlier);
        assert_eq!(
            next.overrides(),
            [("model", "m"), ("retry.policy", "overnight")]
        );
    }

    #[test]
    fn defaults_fill_unset_options_and_model_of_same_provider() {
        let mut usual = options(&[
            ("provider", "openai"),
            ("model", "usual"),
            ("tools.allow", "bash"),
        ]);
        usual.base_url = Some("http://here".to_owned());
        let mut own = options(&[("provider", "openai"), ("model", "own")]);
        own.base_url = Some("http://there".to_owned());
        let same = own.clone().or_defaults(&usual);
        let expected = [
            ("model", "own"),
            ("provider", "openai"),
            ("tools.allow", "bash"),
        ];
        assert_eq!(same.overrides(), expected);
        assert_eq!(same.base_url.as_deref(), Some("http://here"));
        own.settings.insert("provider".into(), "anthropic".into());
        own.settings.remove("model");
        let other = own.or_defaults(&usual);
        let expected = [("provider", "anthropic"), ("tools.allow", "bash")];
        assert_eq!(other.overrides(), expected);
        assert_eq!(other.base_url.as_deref(), Some("http://there"));
        assert_eq!(Options::default().or_defaults(&usual), usual);
    }

    #[test]
    fn provider_change_drops_earlier_base_url_and_model() {
        let mut earlier = options(&[
            ("provider", "openai"),
            ("model", "m"),
            ("fallback.models", "n"),
        ]);
        earlier.base_url = Some("http://there".to_owned());
        let next = options(&[("provider", "anthropic")]).or_earlier(earlier);
        assert_eq!(next.overrides(), [("provider", "anthropic")]);
        assert_eq!(next.base_url, None);
    }
}
