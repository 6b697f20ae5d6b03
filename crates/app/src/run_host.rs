//! Where the sessions of a pipeline's steps come from: the settings, what was typed, and what the step says.

use crate::assemble::{Attendance, Parts};
use crate::config;
use crate::config::list::SEPARATOR;
use crate::options::Options;
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
