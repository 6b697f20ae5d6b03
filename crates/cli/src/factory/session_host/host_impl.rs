//! What a server needs of a session's host.

use crate::complain;
use crate::factory::hooks;
use crate::factory::journal;
use crate::factory::session_host::{SessionHost, SessionOrigin, lock, said};
use crate::platform::home;
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
    fn begin(&self) -> BoxFuture<'_, Result<OpenedSession, String>> {
        Box::pin(async {
            let folder = lock(&self.in_use).folder.clone();
            self.make(&folder, SessionOrigin::Nothing)
                .await
                .map_err(said)
        })
    }

    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<OpenedSession, String>> {
        Box::pin(async { self.reopen(name).await.map_err(said) })
    }

    fn fork<'a>(
        &'a self,
        session: &'a Session,
        before: Option<u64>,
    ) -> BoxFuture<'a, Result<OpenedSession, String>> {
        Box::pin(async move {
            let folder = lock(&self.in_use).folder.clone();
            let made = self
                .make(&folder, SessionOrigin::Copy(session, before))
                .await;
            made.map_err(said)
        })
    }

    fn models(&self) -> Vec<Model> {
        lock(&self.in_use).models.clone()
    }

    fn choose<'a>(
        &'a self,
        now: Arc<Setup>,
        wanted: (&'a str, &'a str),
    ) -> BoxFuture<'a, Result<Option<(Setup, Model)>, String>> {
        Box::pin(async move { self.choose_model(&now, wanted.0, wanted.1).map_err(said) })
    }

    fn choose_policy(&self, now: &Setup, name: &str) -> Result<Setup, String> {
        Self::choose_policy(self, now, name).map_err(said)
    }

    fn policy(&self) -> Option<Policy> {
        Self::policy(self)
    }

    fn limits(&self) -> Limits {
        lock(&self.in_use).limits.from(self.clock.now())
    }

    fn options(&self) -> Value {
        serde_json::to_value(&lock(&self.in_use).options).unwrap_or_default()
    }

    fn file(&self) -> Option<String> {
        let home = self.journal.as_ref().and_then(|_| home::path().ok())?;
        Some(home.join(journal::FILE).to_string_lossy().into_owned())
    }

    fn folder(&self) -> PathBuf {
        lock(&self.in_use).folder.clone()
    }

    fn shell(&self, command: &str) -> ShellCommand {
        let in_use = lock(&self.in_use);
        ShellCommand {
            command: command.to_owned(),
            directory: in_use.folder.clone(),
            hidden_variables: in_use.hidden_variables.clone(),
        }
    }

    fn leave(&self, session: &Session) {
        let reason = match *lock(&self.signalled) {
            None if session.is_running() => ExitReason::HungUp,
            signalled => hooks::reason(signalled),
        };
        for hooked in &mut *lock(&self.hooks) {
            // Those of sessions before have been told.
            if hooked.session == session.id() && hooked.listening.take().is_some() {
                hooked.hooks.stopped(session, reason);
            }
        }
    }

    fn warn(&self, warning: &str) {
        complain(&format!("warning: {warning}"));
    }
}
