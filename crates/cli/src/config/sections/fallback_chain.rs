//! Fallback chains: the models that are called in place of one that is unavailable, in order.
//!
//! Invariants: each model is in a chain once, and the chain's own model never; so a chain ends, whatever the chains of its
//! models name. Not here: the conditions for a fallback (see the kernel's `fallback`).

use crate::config::key::{Key, closest_word, sanitized};
use crate::config::layers::{Layer, Layers};
use crate::config::settings::Provider;
use crate::config::table::PROVIDERS;

/// A model at a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProviderModel {
    pub(crate) provider: Provider,
    pub(crate) model: String,
}

impl std::fmt::Display for ProviderModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.provider.name(), self.model)
    }
}

/// A model as a list has it: alone, or after the provider at which it is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModelEntry<'a> {
    provider: Option<Provider>,
    model: &'a str,
}

impl<'a> ModelEntry<'a> {
    /// Parses an entry. Names of models hold colons, too, so only a known provider before the first one is a provider.
    pub(crate) fn parse(text: &'a str) -> Result<Self, String> {
        let text = text.trim();
        if text.contains(char::is_control) {
            return Err("it holds control characters".to_owned());
        }
        let (before, model) = text.split_once(':').unwrap_or(("", text));
        let provider = Provider::from_name(before);
        if provider.is_some() && !model.trim().is_empty() {
            let model = model.trim();
            return Ok(Self { provider, model });
        }
        if provider.is_some() || Provider::from_name(text).is_some() {
            return Err(
                "it is a provider; name a model as well, as in `PROVIDER:MODEL`".to_owned(),
            );
        }
        if let Some(near) = closest_word(before, PROVIDERS).filter(|_| looks_like_provider(before))
        {
            let before = sanitized(before);
            return Err(format!(
                "there is no provider `{before}`; did you mean `{near}`? A model of that name is written with its \
                 provider, as in `PROVIDER:{before}:…`"
            ));
        }
        match text.is_empty() {
            true => Err("it is empty".to_owned()),
            false => Ok(Self {
                provider,
                model: text,
            }),
        }
    }

    /// Returns the model that the entry means in the list of a model at the given provider.
    pub(crate) fn resolve_for(self, provider: Provider) -> ProviderModel {
        ProviderModel {
            provider: self.provider.unwrap_or(provider),
            model: self.model.to_owned(),
        }
    }
}

/// Reports whether the text could be a provider: models have digits, dots and slashes before a colon, providers do not.
fn looks_like_provider(text: &str) -> bool {
    let in_name = |b: u8| b.is_ascii_alphabetic() || b"-_".contains(&b);
    !text.is_empty() && text.bytes().all(in_name)
}

/// Returns the fallback models of the given model: those of its own list, else of the default one, then those of the last
/// one's own list, and so on.
pub(in crate::config) fn fallback_models(
    layers: &Layers,
    first: &ProviderModel,
) -> Vec<ProviderModel> {
    let mut chain: Vec<ProviderModel> = Vec::new();
    let mut entries = entries_for_model(layers, first);
    loop {
        let before = chain.len();
        let provider = chain.last().unwrap_or(first).provider;
        for place in entries
            .iter()
            .filter_map(|text| ModelEntry::parse(text).ok())
        {
            let place = place.resolve_for(provider);
            if place != *first && !chain.contains(&place) {
                chain.push(place);
            }
        }
        match chain.last().filter(|_| chain.len() > before) {
            Some(last) => entries = layers.named("models", &last.model).value("fallback"),
            None => return chain,
        }
    }
}

/// Returns the list of the first model. A typed list overrides the list that a file has for one model.
fn entries_for_model(layers: &Layers, first: &ProviderModel) -> Vec<String> {
    let typed = layers.effective.get(&Key::from_path("fallback.models"));
    let is_typed = typed.is_some_and(|found| found.origin.layer() == Layer::Flag);
    let own = layers.named("models", &first.model).get("fallback");
    let own = own.filter(|_| !is_typed);
    own.unwrap_or_else(|| layers.get("fallback.models").unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(provider: Provider, model: &str) -> ProviderModel {
        let model = model.to_owned();
        ProviderModel { provider, model }
    }

    #[test]
    fn model_entry_takes_only_known_provider_as_prefix() {
        let table = [
            ("m", place(Provider::OpenAi, "m")),
            ("llama3:8b", place(Provider::OpenAi, "llama3:8b")),
            ("anthropic:m", place(Provider::Anthropic, "m")),
            (
                "openai-responses:m:free",
                place(Provider::OpenAiResponses, "m:free"),
            ),
            (
                "mock:ok:agent,times=always",
                place(Provider::Mock, "ok:agent,times=always"),
            ),
            (
                "anthropic/m:beta",
                place(Provider::OpenAi, "anthropic/m:beta"),
            ),
            (" openai:antropic:m ", place(Provider::OpenAi, "antropic:m")),
        ];
        for (text, expected) in table {
            let entry = ModelEntry::parse(text).unwrap();
            assert_eq!(entry.resolve_for(Provider::OpenAi), expected, "{text}");
        }
        for wrong in ["", " ", "anthropic", "anthropic:", "antropic:m", "a\nb"] {
            assert!(ModelEntry::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
