//! What a server needs of a session's host.

use crate::factory::hooks;
use crate::factory::journal;
use crate::factory::session_host::{SessionHost, SessionOrigin, error_text};
use crate::platform::home;
use crate::print_diagnostic;
use outlast_engine::BoxFuture;
use outlast_kernel::budget::Limits;
use outlast_kernel::policy::Policy;
use outlast_session::Session;
use outlast_session::Setup;
use outlast_session::factory::{Host, Model, OpenedSession};
use outlast_session::hooks::ExitReason;
use outlast_session::tools::shell::ShellCommand;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;

impl Host for SessionHost {
    fn create(&self) -> BoxFuture<'_, Result<OpenedSession, String>> {
        Box::pin(async {
            let folder = self.current.lock().folder.clone();
            self.open_session(&folder, SessionOrigin::New)
                .await
                .map_err(error_text)
        })
    }

    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<OpenedSession, String>> {
        Box::pin(async { self.reopen(name).await.map_err(error_text) })
    }

    fn fork<'a>(
        &'a self,
        session: &'a Session,
        before: Option<u64>,
    ) -> BoxFuture<'a, Result<OpenedSession, String>> {
        Box::pin(async move {
            let folder = self.current.lock().folder.clone();
            let made = self
                .open_session(&folder, SessionOrigin::Fork(session, before))
                .await;
            made.map_err(error_text)
        })
    }

    fn models(&self) -> Vec<Model> {
        self.current.lock().models.clone()
    }

    fn setup_with_model<'a>(
        &'a self,
        now: Arc<Setup>,
        wanted: (&'a str, &'a str),
    ) -> BoxFuture<'a, Result<Option<(Setup, Model)>, String>> {
        Box::pin(async move {
            self.choose_model(&now, wanted.0, wanted.1)
                .map_err(error_text)
        })
    }

    fn setup_with_policy(&self, now: &Setup, name: &str) -> Result<Setup, String> {
        Self::choose_policy(self, now, name).map_err(error_text)
    }

    fn policy(&self) -> Option<Policy> {
        Self::policy(self)
    }

    fn limits(&self) -> Limits {
        self.current
            .lock()
            .limits
            .limits_starting_at(self.clock.now())
    }

    fn resume_options(&self) -> Value {
        serde_json::to_value(&self.current.lock().options).unwrap_or_default()
    }

    fn journal_path(&self) -> Option<String> {
        let home = self.journal.as_ref().and_then(|_| home::path().ok())?;
        Some(home.join(journal::FILE).to_string_lossy().into_owned())
    }

    fn folder(&self) -> PathBuf {
        self.current.lock().folder.clone()
    }

    fn shell_command(&self, command: &str) -> ShellCommand {
        let in_use = self.current.lock();
        ShellCommand {
            command: command.to_owned(),
            directory: in_use.folder.clone(),
            hidden_variables: in_use.hidden_variables.clone(),
        }
    }

    fn leave_session(&self, session: &Session) {
        let reason = match *self.signal.lock() {
            None if session.is_running() => ExitReason::HungUp,
            signalled => hooks::exit_reason(signalled),
        };
        for hooked in &mut *self.hooks.lock() {
            // Those of sessions before have been told.
            if hooked.session == session.id() && hooked.subscription.take().is_some() {
                hooked.hooks.session_stopped(session, reason);
            }
        }
    }

    fn warn(&self, warning: &str) {
        print_diagnostic(&format!("warning: {warning}"));
    }
}
