//! From settings to what a session is made of.

use crate::config::Settings;
use crate::factory::hooks;
use crate::factory::mcp;
use crate::factory::options::Options;
use crate::factory::provider::{self, ResolvedModel};
use crate::platform::home;
use outlast_dialect::Delivery;
use outlast_engine::shared_state::SharedState;
use outlast_engine::strategy::PolicyRetry;
use outlast_engine::target::ModelTarget;
use outlast_engine::{Clock, RetryStrategy};
use outlast_kernel::budget::Limits;
use outlast_session::Setup;
use outlast_session::compaction::Compaction;
use outlast_session::factory::Model;
use outlast_session::hooks::Hooks;
use outlast_session::tools::{Approver, Tools};
use std::path::Path;
use std::sync::Arc;

/// Who may be asked whether a tool may run.
#[derive(Clone)]
pub(crate) enum Attendance {
    /// A person, by these means.
    Attended(Arc<dyn Approver>),
    /// Nobody: what is not allowed is refused.
    Unattended,
}

/// What a session is made of, but for what is shared with others.
pub(crate) struct SessionParts {
    primary: ResolvedModel,
    /// Who is asked when that model cannot be, in order.
    fallbacks: Vec<ResolvedModel>,
    /// Who summarises conversations first, if it is another one.
    summarizer: Option<ResolvedModel>,
    pub(crate) settings: Settings,
    clock: Arc<dyn Clock>,
}

impl SessionParts {
    /// Finds out what is wrong with the settings before anything is begun.
    pub(crate) fn new(
        settings: Settings,
        options: &Options,
        clock: Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        mcp::check(&settings)?;
        let base_url = options.base_url.as_deref();
        let primary = provider::resolve_model(&settings, base_url, clock.clone())?;
        let other = |other: &Settings, role| {
            provider::secondary_model(other, role, &settings, base_url, &clock)
        };
        let fallbacks = settings.fallbacks.iter();
        let fallbacks = fallbacks.map(|one| other(one, "fallback"));
        let fallbacks = fallbacks.collect::<anyhow::Result<_>>()?;
        let summariser = settings.summarizer.as_deref();
        let summariser = summariser.map(|one| other(one, "compaction.model"));
        Ok(Self {
            primary,
            fallbacks,
            summarizer: summariser.transpose()?,
            settings,
            clock,
        })
    }

    /// The model that is asked.
    pub(crate) fn model(&self) -> &str {
        &self.primary.model
    }

    /// Whether what is learnt of the providers is of use to others.
    pub(crate) fn is_shared(&self) -> bool {
        let mut others = self.fallbacks.iter().chain(&self.summarizer);
        self.primary.is_shared || others.any(|other| other.is_shared)
    }

    /// What a prompt may spend that begins now.
    pub(crate) fn limits(&self) -> Limits {
        self.settings.limits.limits_starting_at(self.clock.now())
    }

    /// The model that is asked, as clients are told of it.
    pub(crate) fn model_info(&self, base_url: Option<&str>) -> Model {
        self.primary.model_info(&self.settings, base_url)
    }

    /// The models that can be asked, as clients are told of them; the one that is asked first.
    pub(crate) fn models(&self, base_url: Option<&str>) -> Vec<Model> {
        let others = self.fallbacks.iter().zip(&self.settings.fallbacks);
        let others = others.map(|(reached, settings)| {
            // An address that was typed is that of the chosen provider.
            let is_there = settings.provider == self.settings.provider;
            reached.model_info(settings, base_url.filter(|_| is_there))
        });
        std::iter::once(self.model_info(base_url))
            .chain(others)
            .collect()
    }

    /// What is run when something happens in a session in that folder.
    pub(crate) fn hooks(&self, folder: &Path) -> Hooks {
        hooks::session_hooks(&self.settings, folder)
    }

    /// What a session in that folder is made of. MCP servers are started for it, which may take a while.
    pub(crate) async fn setup(
        self,
        options: &Options,
        knowledge: &SharedState,
        folder: &Path,
        attendance: Attendance,
    ) -> Setup {
        let tools = match self.tools(folder, attendance) {
            Some(tools) => Some(mcp::with_server_tools(tools, &self.settings).await),
            None => None,
        };
        let tool_definitions = tools.as_ref().map(Tools::definitions).unwrap_or_default();
        Setup {
            system: (!tool_definitions.is_empty()).then(|| instructions(folder)),
            tools: tools.map(|tools| Arc::new(tools) as _),
            tool_definitions,
            ..self.setup_without_tools(options, knowledge)
        }
    }

    /// Who is asked, how and how often.
    pub(crate) fn setup_without_tools(self, options: &Options, knowledge: &SharedState) -> Setup {
        let Self {
            primary,
            fallbacks,
            summarizer,
            settings,
            clock,
        } = self;
        let strategy = |policy| Arc::new(PolicyRetry::new(policy, clock.clone()));
        let of_summaries = strategy(settings.retry.effective_policy());
        let retry: Arc<dyn RetryStrategy> = strategy(settings.retry.policy);
        let is_shared = primary.is_shared;
        let route = |reached: ResolvedModel| reached.route(knowledge, &clock);
        let (first, summariser) = (route(primary), summarizer.map(route));
        let fallbacks: Vec<ModelTarget> = fallbacks.into_iter().map(route).collect();
        let summarisers = summariser.into_iter().chain([first.clone()]);
        let compaction = Compaction::new(
            summarisers.chain(fallbacks.iter().cloned()).collect(),
            of_summaries,
            clock.clone(),
            settings.recovery.compaction,
        );
        Setup {
            max_tokens: settings.max_tokens,
            delivery: match options.whole {
                true => Delivery::Whole,
                false => Delivery::Streamed,
            },
            retry: Some(retry),
            retry_enabled: settings.retry.enabled,
            accounts: first.accounts,
            shared_state: is_shared.then(|| knowledge.clone()),
            price: first.price,
            traits: first.traits,
            fallbacks,
            fallback_rules: settings.recovery.fallback,
            compaction: Some(Arc::new(compaction)),
            after_content: settings.recovery.after_content,
            max_corrections: settings.recovery.corrections,
            ..Setup::new(first.provider, first.model, clock)
        }
    }

    fn tools(&self, folder: &Path, attendance: Attendance) -> Option<Tools> {
        let settings = &self.settings.tools;
        if !settings.enabled || folder.as_os_str().is_empty() {
            return None;
        }
        let tools = Tools::standard(folder, self.clock.clone())
            .with_allowed(&settings.allow)
            .with_hidden_variables(&self.settings.key_variables)
            .with_protected_paths(is_protected_path)
            .with_timeout(settings.timeout);
        Some(match attendance {
            Attendance::Attended(approve) => tools.with_approver(approve),
            Attendance::Unattended => tools,
        })
    }
}

/// What says what a model may do is not for a model to write.
fn is_protected_path(path: &Path) -> bool {
    let home = home::path().ok();
    let home = home.and_then(|home| home.canonicalize().ok());
    let is_settings = path
        .file_name()
        .is_some_and(|name| name == home::SETTINGS_FILE);
    is_settings || home.is_some_and(|home| path.starts_with(home))
}

fn instructions(folder: &Path) -> String {
    format!(
        "You are an agent that works in the folder {}. Use the tools that you are offered; paths are relative to that \
         folder. When the work is done, say what you did.",
        folder.display()
    )
}
