//! A model at a provider, and the settings for calling it.

use crate::Provider;
use crate::accounts::Accounts;
use outlast_kernel::budget::Price;
use outlast_kernel::model_info::Capabilities;
use std::sync::Arc;

/// A model at a provider, and the settings for calling it.
#[derive(Clone)]
pub struct ModelTarget {
    /// The provider that is called.
    pub provider: Arc<dyn Provider>,
    /// The model's name at the provider.
    pub model: String,
    /// The accounts to use; without them, the provider's own credential is used.
    pub accounts: Option<Arc<Accounts>>,
    /// The price of the model's tokens.
    pub price: Option<Price>,
    /// The known capabilities of the model.
    pub traits: Capabilities,
    /// The maximum number of tokens of a completion.
    pub max_tokens: Option<u32>,
}

impl ModelTarget {
    /// Returns the key that identifies the target: provider, address and model.
    pub fn key(&self) -> String {
        let provider = &*self.provider;
        format!("{}@{}/{}", provider.name(), provider.endpoint(), self.model)
    }

    /// Creates a target with unknown capabilities; the other fields can be set.
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
