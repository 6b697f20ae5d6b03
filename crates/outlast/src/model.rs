//! A model and the way to it.

use crate::Error;
use outlast_dialect::Dialect;
use outlast_engine::credential::Credential;
use outlast_engine::provider::{Adapter, Timeouts};
use outlast_engine::target::ModelTarget;
use outlast_engine::transport::{Http, HttpSettings};
use outlast_engine::{Clock, Provider};
use outlast_kernel::model_info::capabilities;
use std::sync::Arc;

/// A model of a provider, with the key to use it.
///
/// ```
/// use outlast::Model;
///
/// let hosted = Model::anthropic("sk-…", "claude-sonnet-4-5");
/// let local = Model::openai("none", "qwen3").base_url("http://127.0.0.1:11434/v1");
/// # let _ = (hosted, local);
/// ```
#[derive(Clone)]
pub struct Model {
    name: String,
    source: Source,
}

#[derive(Clone)]
enum Source {
    Http {
        dialect: Dialect,
        base_url: String,
        key: Credential,
        timeouts: Timeouts,
    },
    Custom(Arc<dyn Provider>),
}

impl Model {
    /// Returns a model behind Anthropic's Messages API.
    pub fn anthropic(api_key: impl Into<String>, name: impl Into<String>) -> Self {
        let url = "https://api.anthropic.com";
        Self::http(Dialect::Anthropic, url, api_key.into(), name.into())
    }

    /// Returns a model behind OpenAI's Chat Completions API, or one that is compatible with it.
    pub fn openai(api_key: impl Into<String>, name: impl Into<String>) -> Self {
        let url = "https://api.openai.com/v1";
        Self::http(Dialect::OpenaiChat, url, api_key.into(), name.into())
    }

    /// Returns a model behind OpenAI's Responses API.
    pub fn openai_responses(api_key: impl Into<String>, name: impl Into<String>) -> Self {
        let url = "https://api.openai.com/v1";
        Self::http(Dialect::OpenaiResponses, url, api_key.into(), name.into())
    }

    /// Returns a model of a provider of your own.
    pub fn custom(provider: Arc<dyn Provider>, name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            source: Source::Custom(provider),
        }
    }

    fn http(dialect: Dialect, base_url: &str, api_key: String, name: String) -> Self {
        Self {
            name,
            source: Source::Http {
                dialect,
                base_url: base_url.to_owned(),
                key: Credential::new(api_key),
                timeouts: Timeouts::default(),
            },
        }
    }

    /// Sets the address of the API. Has no effect on a provider of your own.
    #[must_use]
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        if let Source::Http { base_url, .. } = &mut self.source {
            *base_url = url.into();
        }
        self
    }

    /// Sets the time limits of a request. Has no effect on a provider of your own.
    #[must_use]
    pub fn timeouts(mut self, limits: Timeouts) -> Self {
        if let Source::Http { timeouts, .. } = &mut self.source {
            *timeouts = limits;
        }
        self
    }

    /// Connects the model to its provider. No request is made.
    pub(crate) fn connect(self, clock: &Arc<dyn Clock>) -> Result<ModelTarget, Error> {
        let (provider, dialect): (Arc<dyn Provider>, &str) = match self.source {
            Source::Custom(provider) => (provider, ""),
            Source::Http {
                dialect,
                base_url,
                key,
                timeouts,
            } => {
                let settings = HttpSettings {
                    base_url,
                    connect_timeout: timeouts.connect,
                    ..HttpSettings::default()
                };
                let http = Arc::new(Http::new(&settings)?);
                let adapter = Adapter::new(dialect, http, Arc::clone(clock))
                    .with_timeouts(timeouts)
                    .with_endpoint(&settings.base_url)
                    .with_credential(key);
                (Arc::new(adapter), dialect.name())
            }
        };
        let traits = capabilities(dialect, &self.name);
        Ok(ModelTarget {
            traits,
            ..ModelTarget::new(provider, self.name)
        })
    }
}
