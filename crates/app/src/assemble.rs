//! From settings to what a session is made of.

use crate::approval::Terminal;
use crate::config::Settings;
use crate::home;
use crate::options::Options;
use crate::reach::{self, Reached};
use crate::servers;
use outlast_agent::session::Setup;
use outlast_agent::tools::Tools;
use outlast_dialect::Delivery;
use outlast_engine::accounts::Accounts;
use outlast_engine::knowledge::Knowledge;
use outlast_engine::strategy::PolicyRetry;
use outlast_engine::{Clock, RetryStrategy};
use outlast_kernel::budget::Limits;
use std::path::Path;
use std::sync::Arc;

/// Who may be asked whether a tool may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attendance {
    /// A person at the terminal.
    Attended,
    /// Nobody: what is not allowed is refused.
    Unattended,
}

/// What a session is made of, but for what is shared with others.
pub(crate) struct Parts {
    reached: Reached,
    pub(crate) settings: Settings,
    clock: Arc<dyn Clock>,
}

impl Parts {
    /// Finds out what is wrong with the settings before anything is begun.
    pub(crate) fn new(
        settings: Settings,
        options: &Options,
        clock: Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        servers::check(&settings)?;
        let reached = reach::model(&settings, options.base_url.as_deref(), clock.clone())?;
        Ok(Self {
            reached,
            settings,
            clock,
        })
    }

    /// The model that is asked.
    pub(crate) fn model(&self) -> &str {
        &self.reached.model
    }

    /// Whether what is learnt of the provider is of use to others.
    pub(crate) const fn is_shared(&self) -> bool {
        self.reached.is_shared
    }

    /// What a prompt may spend that begins now.
    pub(crate) fn limits(&self) -> Limits {
        let limits = self.settings.limits;
        Limits {
            deadline: limits.deadline.map(|limit| self.clock.now() + limit),
            sleep: limits.sleep,
            cost: limits.cost,
        }
    }

    /// What a session in that folder is made of. MCP servers are started for it, which may take a while.
    pub(crate) async fn setup(
        self,
        options: &Options,
        knowledge: &Knowledge,
        (folder, attendance): (&Path, Attendance),
    ) -> Setup {
        let tools = match self.tools(folder, attendance) {
            Some(tools) => Some(servers::started(tools, &self.settings).await),
            None => None,
        };
        let offered = tools.as_ref().map(Tools::offered).unwrap_or_default();
        let Self {
            reached,
            settings,
            clock,
        } = self;
        let retry: Arc<dyn RetryStrategy> =
            Arc::new(PolicyRetry::new(settings.retry.policy, clock.clone()));
        let accounts = (!reached.accounts.is_empty()).then(|| {
            Arc::new(Accounts::new(
                reached.accounts,
                knowledge.clone(),
                clock.clone(),
            ))
        });
        Setup {
            system: (!offered.is_empty()).then(|| instructions(folder)),
            max_tokens: settings.max_tokens,
            delivery: match options.whole {
                true => Delivery::Whole,
                false => Delivery::Streamed,
            },
            retry: Some(retry),
            retry_enabled: settings.retry.enabled,
            accounts,
            knowledge: reached.is_shared.then(|| knowledge.clone()),
            price: settings.price,
            tools: tools.map(|tools| Arc::new(tools) as _),
            offered,
            ..Setup::new(Arc::new(reached.adapter), reached.model, clock)
        }
    }

    fn tools(&self, folder: &Path, attendance: Attendance) -> Option<Tools> {
        let settings = &self.settings.tools;
        if !settings.enabled || folder.as_os_str().is_empty() {
            return None;
        }
        let tools = Tools::standard(folder, self.clock.clone())
            .allowing(&settings.allow)
            .hiding(&self.settings.key_variables)
            .protecting(is_ours)
            .with_timeout(settings.timeout);
        Some(match attendance {
            Attendance::Attended => tools.asking(Arc::new(Terminal)),
            Attendance::Unattended => tools,
        })
    }
}

/// What says what a model may do is not for a model to write.
fn is_ours(path: &Path) -> bool {
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
