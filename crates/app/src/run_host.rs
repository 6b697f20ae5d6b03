//! Where the sessions of a pipeline's steps come from: the settings, what was typed, and what the step says.

use crate::assemble::{Attendance, Parts};
use crate::config;
use crate::config::list::SEPARATOR;
use crate::exit::Usage;
use crate::options::Options;
use anyhow::Context;
use outlast_agent::pipeline::definition::{Pipeline, Rule, Step, Work};
use outlast_agent::pipeline::host::{Host, Wanted};
use outlast_agent::session::Setup;
use outlast_engine::knowledge::Knowledge;
use outlast_engine::{BoxFuture, Clock};
use std::path::PathBuf;
use std::sync::Arc;

pub(crate) struct RunHost {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) knowledge: Knowledge,
    /// What was typed; it counts before what a step says.
    pub(crate) typed: Options,
    /// Where the run works.
    pub(crate) folder: PathBuf,
    pub(crate) hidden_variables: Vec<String>,
}

impl RunHost {
    /// Finds out before anything is begun whether every model can be asked, and what it costs where that must be known.
    pub(crate) fn check(&self, pipeline: &Pipeline) -> anyhow::Result<()> {
        let mut seen: Vec<(Option<&str>, Option<&str>)> = Vec::new();
        for step in &pipeline.steps {
            for (provider, model, fallbacks) in asked(step) {
                if seen.contains(&(provider, model)) {
                    continue;
                }
                seen.push((provider, model));
                let wanted = Wanted {
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
                    return Err(Usage(format!(
                        "step `{id}`: what its model costs is not known, and the run has a ceiling on its cost (runtime.budget); \
                         set `price` for the model in outlast.toml (see `outlast config schema`)"
                    ))
                    .into());
                }
            }
        }
        Ok(())
    }

    fn has_price(&self, wanted: Wanted<'_>) -> anyhow::Result<bool> {
        let options = self.options(wanted);
        let settings = config::load_in_silence(&self.folder, &options.overrides())?;
        let has_price = settings.price.is_some();
        Parts::new(settings, &options, Arc::clone(&self.clock))?;
        Ok(has_price)
    }

    async fn make(&self, wanted: Wanted<'_>) -> anyhow::Result<Setup> {
        let options = self.options(wanted);
        let settings = config::load_in_silence(&self.folder, &options.overrides())?;
        let parts = Parts::new(settings, &options, Arc::clone(&self.clock))?;
        let place = (wanted.directory, Attendance::Unattended);
        Ok(Box::pin(parts.setup(&options, &self.knowledge, place)).await)
    }

    fn options(&self, wanted: Wanted<'_>) -> Options {
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
        let mut options = Options::said(said).with(&self.typed);
        if let Some(allow) = allow.filter(|allow| !allow.is_empty()) {
            options.allow(&allow);
        }
        options
    }
}

type Asked<'a> = (Option<&'a str>, Option<&'a str>, &'a [String]);

/// The models that a step asks: that of its prompt, and its judges.
fn asked(step: &Step) -> Vec<Asked<'_>> {
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
    fn setup<'a>(&'a self, wanted: Wanted<'a>) -> BoxFuture<'a, Result<Setup, String>> {
        Box::pin(async move {
            let made = self.make(wanted).await;
            made.map_err(|error| format!("{error:#}"))
        })
    }

    fn hidden_variables(&self) -> &[String] {
        &self.hidden_variables
    }
}
