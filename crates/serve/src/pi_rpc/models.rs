//! The models, as messages name them: API, provider, model and prices.

use super::message::{Assistant, PricedUsage, Stop};
use outlast_kernel::event::Usage;
use outlast_session::factory::{Model, ModelCost};

/// The known models, the one in use first.
#[derive(Clone, Debug, Default)]
pub struct Models(Vec<Model>);

impl From<Vec<Model>> for Models {
    fn from(models: Vec<Model>) -> Self {
        Self(models)
    }
}

impl From<Model> for Models {
    fn from(model: Model) -> Self {
        Self(vec![model])
    }
}

impl Models {
    /// Returns the model in use.
    pub fn in_use(&self) -> ModelRef {
        self.0.first().map(ModelRef::from_model).unwrap_or_default()
    }

    /// Returns the context window of the model in use, in tokens.
    pub fn window(&self) -> u64 {
        self.0.first().map_or(0, |model| model.context_window)
    }

    /// Returns the model of that name, preferably at that provider. An unknown model has no known cost.
    pub fn find(&self, provider: &str, id: &str) -> ModelRef {
        let named = || self.0.iter().filter(|model| model.id == id);
        let found = named().find(|model| model.provider == provider);
        if let Some(model) = found.or_else(|| named().next()) {
            return ModelRef::from_model(model);
        }
        let mut models = self.0.iter();
        let sibling = models.find(|model| model.provider == provider);
        let api = sibling.or(self.0.first()).map(|model| model.api.clone());
        ModelRef {
            api: api.unwrap_or_default(),
            provider: provider.to_owned(),
            model: id.to_owned(),
            cost: ModelCost::default(),
        }
    }

    /// Returns the model for a journal key: provider, address and model in one.
    pub fn find_by_key(&self, key: &str) -> ModelRef {
        let provider = key.split('@').next().unwrap_or_default();
        let is_it = |model: &&Model| key.ends_with(&format!("/{}", model.id));
        // Names of models may contain slashes, as addresses do: the longest match is the right one.
        let mut known: Vec<&Model> = self.0.iter().filter(is_it).collect();
        known.sort_by_key(|model| (model.provider == provider, model.id.len()));
        match known.last() {
            Some(model) => self.find(provider, &model.id),
            None => self.find(provider, key.rsplit('/').next().unwrap_or_default()),
        }
    }
}

/// A model, as messages name it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelRef {
    /// The API of the provider.
    pub api: String,
    /// The provider.
    pub provider: String,
    /// The name of the model.
    pub model: String,
    /// The prices per million tokens.
    pub cost: ModelCost,
}

impl ModelRef {
    fn from_model(model: &Model) -> Self {
        Self {
            api: model.api.clone(),
            provider: model.provider.clone(),
            model: model.id.clone(),
            cost: model.cost,
        }
    }

    /// Returns the usage with its cost at this model's prices.
    pub fn price(&self, usage: Usage) -> PricedUsage {
        PricedUsage::new(usage, &self.cost)
    }

    /// Returns an empty message of this model.
    pub fn empty_message(&self, timestamp: u64) -> Assistant {
        Assistant {
            content: Vec::new(),
            api: self.api.clone(),
            provider: self.provider.clone(),
            model: self.model.clone(),
            usage: PricedUsage::default(),
            stop_reason: Stop::Stop,
            timestamp,
            error_message: None,
            outlast: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(provider: &str, id: &str) -> Model {
        Model {
            id: id.to_owned(),
            name: id.to_owned(),
            api: format!("{provider}-api"),
            provider: provider.to_owned(),
            base_url: String::new(),
            reasoning: false,
            input: Vec::new(),
            cost: ModelCost {
                input: 3.0,
                ..ModelCost::default()
            },
            context_window: 100,
            max_tokens: 10,
        }
    }

    #[test]
    fn model_lookup_falls_back_to_partial_matches() {
        let models = Models::from(vec![
            model("one", "m"),
            model("two", "m"),
            model("two", "maker/m"),
        ]);
        let table = [
            (models.find("two", "m"), ("two-api", "two", "m")),
            (models.find("three", "m"), ("one-api", "one", "m")),
            (models.find("two", "new"), ("two-api", "two", "new")),
            (models.find("three", "new"), ("one-api", "three", "new")),
            (
                models.find_by_key("two@http://h/v1/m"),
                ("two-api", "two", "m"),
            ),
            (
                models.find_by_key("two@http://h/v1/maker/m"),
                ("two-api", "two", "maker/m"),
            ),
            (models.find_by_key("x@http://h/v1/y"), ("one-api", "x", "y")),
            (models.find_by_key(""), ("one-api", "", "")),
        ];
        for (found, (api, provider, id)) in table {
            let seen = (&*found.api, &*found.provider, &*found.model);
            assert_eq!(seen, (api, provider, id));
        }
        assert_eq!(models.find("one", "new").cost, ModelCost::default());
        assert_eq!(models.find("one", "m").cost.input, 3.0);
        assert_eq!(Models::default().in_use(), ModelRef::default());
    }
}
