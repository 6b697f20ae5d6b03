//! Where the sessions of a pipeline's steps come from: the settings, what was typed, and what the step says.

use crate::config::{self, SEPARATOR, Settings};
use crate::factory::options::Options;
use crate::factory::session::{Attendance, SessionParts};
use crate::platform::exit::UsageError;
use anyhow::Context;
use outlast_engine::shared_state::SharedState;
use outlast_engine::{BoxFuture, Clock};
use outlast_kernel::Timestamp;
use outlast_pipeline::definition::{Pipeline, Rule, Step, Work};
use outlast_pipeline::host::{Host, SessionRequest};
use outlast_session::Setup;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// For how long settings count that were read.
const SETTINGS_MAX_AGE: Duration = Duration::from_secs(1);

pub(crate) struct RunHost {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) shared_state: SharedState,
    /// What was typed; it counts before what a step says.
    pub(crate) typed: Options,
    /// Where the run works.
    pub(crate) folder: PathBuf,
    pub(crate) hidden_variables: Vec<String>,
    /// What was read a moment ago.
    pub(crate) settings_cache: Mutex<SettingsCache>,
}

/// Settings by what they were read with, and since when they count.
#[derive(Default)]
pub(crate) struct SettingsCache {
    loaded_at: Timestamp,
    settings: HashMap<Vec<(String, String)>, Settings>,
}

impl RunHost {
    /// Finds out before anything is begun whether every model can be asked, and what it costs where that must be known.
    pub(crate) fn check(&self, pipeline: &Pipeline) -> anyhow::Result<()> {
        let mut seen: Vec<(Option<&str>, Option<&str>)> = Vec::new();
        for step in &pipeline.steps {
            for (provider, model, fallbacks) in requested_models(step) {
                if seen.contains(&(provider, model)) {
                    continue;
                }
                seen.push((provider, model));
                let wanted = SessionRequest {
                    provider,
                    model,
                    fallbacks,
                    allow: None,
                    directory: &self.folder,
                };
                let has_price = self.has_price(wanted);
                let has_price = has_price.with_context(|| format!("step `{}`", step.id))?;
                if pipeline.runtime.budget.cost.is_some() && !has_price {
                    let id = &step.id;
                    return Err(UsageError(format!(
                        "step `{id}`: what its model costs is not known, and the run has a ceiling on its cost (runtime.budget); \
                         set `price` for the model in outlast.toml (see `outlast config schema`)"
                    ))
                    .into());
                }
            }
        }
        Ok(())
    }

    fn has_price(&self, wanted: SessionRequest<'_>) -> anyhow::Result<bool> {
        let options = self.options(wanted);
        let settings = self.settings(&options)?;
        let has_price = settings.price.is_some();
        SessionParts::new(settings, &options, Arc::clone(&self.clock))?;
        Ok(has_price)
    }

    async fn create_setup(&self, wanted: SessionRequest<'_>) -> anyhow::Result<Setup> {
        let options = self.options(wanted);
        let settings = self.settings(&options)?;
        let parts = SessionParts::new(settings, &options, Arc::clone(&self.clock))?;
        let (folder, attendance) = (wanted.directory, Attendance::Unattended);
        Ok(Box::pin(parts.setup(&options, &self.shared_state, folder, attendance)).await)
    }

    /// The settings as they are now, or were a moment ago: many steps that begin together read them once.
    fn settings(&self, options: &Options) -> anyhow::Result<Settings> {
        let (now, overrides) = (self.clock.now(), options.overrides());
        let owned = |(path, value): &(&str, &str)| ((*path).to_owned(), (*value).to_owned());
        let key: Vec<(String, String)> = overrides.iter().map(owned).collect();
        let mut read = self.settings_cache.lock();
        if now.since(read.loaded_at) >= SETTINGS_MAX_AGE {
            *read = SettingsCache {
                loaded_at: now,
                settings: HashMap::new(),
            };
        }
        if let Some(settings) = read.settings.get(&key) {
            return Ok(settings.clone());
        }
        let settings = config::load_quietly(&self.folder, &overrides)?;
        read.settings.insert(key, settings.clone());
        Ok(settings)
    }

    fn options(&self, wanted: SessionRequest<'_>) -> Options {
        let fallbacks = wanted.fallbacks.join(&SEPARATOR.to_string());
        let allow = wanted.allow.map(|names| names.join(","));
        let said = [
            ("provider", wanted.provider.map(str::to_owned)),
            ("model", wanted.model.map(str::to_owned)),
            (
                "fallback.models",
                (!fallbacks.is_empty()).then_some(fallbacks),
            ),
            (
                "tools.enabled",
                wanted.allow.is_none().then(|| "false".to_owned()),
            ),
        ];
        let mut options = Options::from_settings(said).overridden_by(&self.typed);
        if let Some(allow) = allow.filter(|allow| !allow.is_empty()) {
            options.allow(&allow);
        }
        options
    }
}

type RequestedModel<'a> = (Option<&'a str>, Option<&'a str>, &'a [String]);

/// The models that a step asks: that of its prompt, and its judges.
fn requested_models(step: &Step) -> Vec<RequestedModel<'_>> {
    let prompt = match &step.work {
        Work::Prompt(prompt) => Some((
            prompt.provider.as_deref(),
            prompt.model.as_deref(),
            prompt.fallbacks.as_slice(),
        )),
        _ => None,
    };
    let judges = step
        .contracts
        .iter()
        .filter_map(|contract| match &contract.rule {
            Rule::Judge(judge) => {
                Some((judge.provider.as_deref(), judge.model.as_deref(), &[][..]))
            }
            _ => None,
        });
    prompt.into_iter().chain(judges).collect()
}

impl Host for RunHost {
    fn setup<'a>(&'a self, wanted: SessionRequest<'a>) -> BoxFuture<'a, Result<Setup, String>> {
        Box::pin(async move {
            let made = self.create_setup(wanted).await;
            made.map_err(|error| format!("{error:#}"))
        })
    }

    fn hidden_variables(&self) -> &[String] {
        &self.hidden_variables
    }
}
