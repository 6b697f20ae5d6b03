//! The commands to a live session: prompts, the control of turns, settings.

use super::live_session::{LiveSession, RuntimeSettings, SettingsChange};
use super::open_session::OpenSession;
use super::view::QueueMode;
use super::{Error, sanitize_title};
use crate::rpc::ABORT_REPLY_TIMEOUT;
use outlast_dialect::Message;
use outlast_session::factory::FactoryError;
use outlast_session::{Accepted, Delivery, DrainMode, QueueKind, Rejected, Session};
use std::sync::Arc;
use tokio::time::timeout;

impl LiveSession {
    /// Sends a prompt to the model, or queues it.
    pub async fn prompt(
        self: &Arc<Self>,
        message: Message,
        delivery: Delivery,
    ) -> Result<Accepted, Error> {
        let lead = self.enter().await?;
        Ok(lead.conversation.prompt(message, delivery).await?)
    }

    /// Sends a message with the next call of the running turn.
    pub async fn steer(self: &Arc<Self>, message: Message) -> Result<Accepted, Error> {
        // Opening it names the process that has the session open.
        let lead = match self.is_new() {
            true => self.led(),
            false => Some(self.enter().await?),
        };
        let lead = lead.filter(|lead| lead.session().is_running());
        let idle = || Error::Refused("no turn is running that could be steered".to_owned());
        let conversation = lead.ok_or_else(idle)?.conversation;
        Ok(conversation.enqueue(QueueKind::Steering, message).await?)
    }

    /// Resumes the unfinished turn, sends what is queued, or retries the failed turn.
    pub async fn resume(self: &Arc<Self>) -> Result<(), Error> {
        let lead = self.enter().await?;
        lead.conversation.resume().await?;
        Ok(())
    }

    /// Aborts the turn that runs or is unfinished.
    pub async fn abort(self: &Arc<Self>) -> Result<(), Error> {
        if let Some(lead) = self.with_turn().await? {
            timeout(ABORT_REPLY_TIMEOUT, lead.conversation.abort())
                .await
                .ok();
        }
        Ok(())
    }

    /// Cancels the wait for a retry: the turn fails with the error that caused it.
    pub async fn abort_retry(self: &Arc<Self>) -> Result<(), Error> {
        if let Some(OpenSession { conversation, .. }) = self.with_turn().await? {
            let ended = conversation.run_ended();
            if conversation.abort_retry() {
                timeout(ABORT_REPLY_TIMEOUT, ended).await.ok();
            }
        }
        Ok(())
    }

    /// Ends the wait for a retry, and retries at once; a turn that was left in such a wait is resumed.
    pub async fn retry_now(self: &Arc<Self>) -> Result<(), Error> {
        let Some(OpenSession { conversation, .. }) = self.with_turn().await? else {
            return Ok(());
        };
        let session = conversation.session();
        if session.unfinished_turn().is_some() && !conversation.is_running() {
            match conversation.resume().await {
                // Another client was faster.
                Ok(_) | Err(Rejected::Busy) => {}
                Err(error) => return Err(error.into()),
            }
        }
        conversation.retry_now();
        Ok(())
    }

    /// Returns the session, open, unless it has no turn to control.
    async fn with_turn(self: &Arc<Self>) -> Result<Option<OpenSession>, Error> {
        match self.led() {
            Some(lead) => Ok(Some(lead)),
            None if self.is_unfinished().await => self.enter().await.map(Some),
            None => Ok(None),
        }
    }

    async fn is_unfinished(&self) -> bool {
        let Some(journal) = self.session_factory.journal() else {
            return false;
        };
        let summary = journal.summary(self.id()).await;
        summary.is_ok_and(|summary| summary.open_turn.is_some())
    }

    /// Changes how the session is led, once it is clear that all of it can be had.
    pub async fn change(self: &Arc<Self>, mut settings: SettingsChange) -> Result<(), Error> {
        self.check(&settings).await?;
        settings.title = settings.title.map(|title| sanitize_title(&title));
        let switches = RuntimeSettings {
            auto_retry: settings.auto_retry,
            auto_compaction: settings.auto_compaction,
            steering_mode: settings.steering_mode,
            follow_up_mode: settings.follow_up_mode,
        };
        // Whoever opens it meanwhile either knows of this or is told.
        let door = self.open_lock.lock().await;
        let is_new = self.is_new() && self.led().is_none();
        {
            let mut wanted = self.pending.lock();
            wanted.runtime_settings = switches.after(wanted.runtime_settings);
            if let Some((provider, model)) = settings.model.clone() {
                (wanted.options.provider, wanted.options.model) = (Some(provider), Some(model));
            }
            let wishes = &mut wanted.options;
            wishes.policy = settings.policy.clone().or(wishes.policy.take());
            if is_new {
                wishes.title = settings.title.clone().or(wishes.title.take());
            }
            wanted.description = None;
        }
        let lead = self.led();
        drop(door);
        let lead = match lead {
            Some(lead) => lead,
            // The rest is done when it is opened.
            None if is_new || settings.title.is_none() => return Ok(()),
            None => self.enter().await?,
        };
        let session = lead.session();
        switches.apply(session);
        if let Some((provider, model)) = settings.model {
            let chosen = lead
                .host
                .setup_with_model(session.setup(), (provider.as_str(), model.as_str()))
                .await
                .map_err(Error::Refused)?;
            let unknown = || Error::Refused(format!("Model not found: {provider}/{model}"));
            lead.conversation
                .choose_model(chosen.ok_or_else(unknown)?.0);
        }
        if let Some(policy) = settings.policy {
            let setup = lead.host.setup_with_policy(&session.setup(), &policy);
            session.change_setup(setup.map_err(FactoryError::Invalid)?);
        }
        match settings.title {
            Some(title) if title.is_empty() => {
                Err(Error::Refused("Session name cannot be empty".to_owned()))
            }
            Some(title) => {
                let renamed = session.rename(&title).await;
                renamed.map_err(|error| Error::Refused(error.to_string()))
            }
            None => Ok(()),
        }
    }

    /// Whether such a model and such a policy can be had.
    async fn check(&self, settings: &SettingsChange) -> Result<(), Error> {
        if settings.model.is_none() && settings.policy.is_none() {
            return Ok(());
        }
        let mut wishes = self.pending.lock().options.clone();
        if let Some((provider, model)) = settings.model.clone() {
            (wishes.provider, wishes.model) = (Some(provider), Some(model));
        }
        wishes.policy = settings.policy.clone().or(wishes.policy);
        let name = Some(self.id()).filter(|_| !self.is_new());
        self.session_factory
            .describe(name, &wishes)
            .await?
            .ensure_usable()?;
        Ok(())
    }
}

impl RuntimeSettings {
    fn after(self, earlier: Self) -> Self {
        Self {
            auto_retry: self.auto_retry.or(earlier.auto_retry),
            auto_compaction: self.auto_compaction.or(earlier.auto_compaction),
            steering_mode: self.steering_mode.or(earlier.steering_mode),
            follow_up_mode: self.follow_up_mode.or(earlier.follow_up_mode),
        }
    }

    pub(super) fn apply(self, session: &Session) {
        if let Some(enabled) = self.auto_retry {
            session.set_auto_retry_enabled(enabled);
        }
        if let Some(enabled) = self.auto_compaction {
            session.set_auto_compaction_enabled(enabled);
        }
        if let Some(mode) = self.steering_mode {
            session.set_steering_mode(mode.into());
        }
        if let Some(mode) = self.follow_up_mode {
            session.set_follow_up_mode(mode.into());
        }
    }
}

impl From<QueueMode> for DrainMode {
    fn from(mode: QueueMode) -> Self {
        match mode {
            QueueMode::All => Self::All,
            QueueMode::OneAtATime => Self::OneAtATime,
        }
    }
}

impl From<DrainMode> for QueueMode {
    fn from(mode: DrainMode) -> Self {
        match mode {
            DrainMode::All => Self::All,
            DrainMode::OneAtATime => Self::OneAtATime,
        }
    }
}

impl From<Rejected> for Error {
    fn from(rejected: Rejected) -> Self {
        match rejected {
            Rejected::Closed => Self::Unreadable("the server is gone".to_owned()),
            rejected => Self::Refused(rejected.to_string()),
        }
    }
}
