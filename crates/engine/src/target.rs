//! A model at a provider, and how it is asked there.

use crate::Provider;
use crate::accounts::Accounts;
use outlast_kernel::budget::Price;
use outlast_kernel::model_info::Capabilities;
use std::sync::Arc;

/// A model at a provider, and how it is asked there.
#[derive(Clone)]
pub struct ModelTarget {
    /// Who answers.
    pub provider: Arc<dyn Provider>,
    /// The model that is asked.
    pub model: String,
    /// The accounts to ask with; without them, the provider's own credential is used.
    pub accounts: Option<Arc<Accounts>>,
    /// What tokens cost there.
    pub price: Option<Price>,
    /// What is known of it.
    pub traits: Capabilities,
    /// The most tokens that an answer may have.
    pub max_tokens: Option<u32>,
}

impl ModelTarget {
    /// What tells it from others: who answers, where, and as which model.
    pub fn key(&self) -> String {
        let provider = &*self.provider;
        format!("{}@{}/{}", provider.name(), provider.place(), self.model)
    }

    /// A model with nothing more known of it; the other fields can be set.
    pub fn new(provider: Arc<dyn Provider>, model: impl Into<String>) -> Self {
        Self {
            provider,
            model: model.into(),
            accounts: None,
            price: None,
            traits: Capabilities::default(),
            max_tokens: None,
        }
    }
}
