//! What can be asked of a session: to say something, to end a turn or its wait, to be led otherwise.

use super::live_session::{
    Delivery, EventCursor, LiveSession, RuntimeSettings, SettingsChange, UserMessage,
};
use super::view::QueueMode;
use super::{Error, sanitize_title};
use crate::pi_rpc::client::ClientError;
use crate::rpc::BUSY_ERROR;
use outlast_session::DrainMode;
use outlast_session::Session;
use outlast_session::factory::FactoryError;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// How long a run that has said its last word, or that is about to begin, may take for it, and how often that is looked at.
const SETTLE_TIMEOUT: Duration = Duration::from_millis(500);
const POLL_INTERVAL: Duration = Duration::from_millis(1);

impl LiveSession {
    /// Says something to the model, or has it wait to be said. What came of it is `started` or `queued`; nothing of it has
    /// happened before that place.
    pub async fn prompt(
        self: &Arc<Self>,
        said: UserMessage,
        deliver: Option<Delivery>,
    ) -> Result<(Value, EventCursor), Error> {
        let lead = self.enter().await?;
        let place = self.cursor();
        let say = |deliver: Option<Delivery>| {
            let mut command =
                json!({ "type": "prompt", "message": said.text, "images": said.images });
            if let Some(deliver) = deliver {
                command["streamingBehavior"] = deliver.word().into();
            }
            lead.client.request(command)
        };
        // In a session in which nothing runs it is said at once, whatever it would have waited for.
        let first = deliver.filter(|_| lead.session.is_running());
        let until = tokio::time::Instant::now() + SETTLE_TIMEOUT;
        let answer = loop {
            match say(first).await {
                Err(ClientError::Refused { error, .. }) if error == BUSY_ERROR => {}
                answer => break answer,
            }
            // A run that has said its last word is over in a moment. Otherwise there is a turn that it has to wait for.
            let is_ending = lead.session.snapshot().turn_id.is_none();
            if !is_ending || tokio::time::Instant::now() > until {
                break say(Some(deliver.unwrap_or(Delivery::FollowUp))).await;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        };
        Ok((answer.map_err(self::command_error)?, place))
    }

    /// Says something with the next call of the turn that runs.
    pub async fn steer(self: &Arc<Self>, said: UserMessage) -> Result<Value, Error> {
        let command = json!({ "type": "steer", "message": said.text, "images": said.images });
        // Whoever leads it elsewhere is named.
        let lead = match self.is_new() {
            true => self.led(),
            false => Some(self.enter().await?),
        };
        let lead = lead.filter(|lead| lead.session.is_running());
        let idle = || Error::Refused("no turn is running that could be steered".to_owned());
        let client = lead.ok_or_else(idle)?.client;
        client.request(command).await.map_err(self::command_error)
    }

    /// Carries on what was left, or tries the last turn again that failed.
    pub async fn resume(self: &Arc<Self>) -> Result<(), Error> {
        let lead = self.enter().await?;
        let resumed = lead.client.request(json!({ "type": "resume" })).await;
        resumed.map(drop).map_err(command_error)
    }

    /// Ends the turn that runs or was left.
    pub async fn abort(self: &Arc<Self>) -> Result<(), Error> {
        self.order("abort").await
    }

    /// Ends the wait for a retry: the turn fails with the error that it waited out.
    pub async fn abort_retry(self: &Arc<Self>) -> Result<(), Error> {
        self.order("abort_retry").await
    }

    /// Ends the wait for a retry, and tries at once; a turn that was left in the middle of one is carried on.
    pub async fn retry_now(self: &Arc<Self>) -> Result<(), Error> {
        let lead = match self.led() {
            Some(lead) => lead,
            None if self.is_unfinished().await => self.enter().await?,
            None => return Ok(()),
        };
        let session = &lead.session;
        let is_left = || session.unfinished_turn().is_some() && !session.is_running();
        if is_left() {
            let resumed = lead.client.request(json!({ "type": "resume" })).await;
            // Somebody else is about to: one that has not begun yet would not hear what is said to it.
            let until = tokio::time::Instant::now() + SETTLE_TIMEOUT;
            while is_left() && tokio::time::Instant::now() < until {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            if is_left() {
                resumed.map_err(command_error)?;
            }
        }
        let hastened = lead.client.request(json!({ "type": "retry_now" })).await;
        hastened.map(drop).map_err(command_error)
    }

    /// Does something about a turn; when there is none, that is no mistake.
    async fn order(self: &Arc<Self>, command: &str) -> Result<(), Error> {
        let lead = match self.led() {
            Some(lead) => lead,
            None if self.is_unfinished().await => self.enter().await?,
            None => return Ok(()),
        };
        let done = lead.client.request(json!({ "type": command })).await;
        done.map(drop).map_err(command_error)
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
        switches.apply(&lead.session);
        if let Some((provider, model)) = settings.model {
            let choose = json!({ "type": "set_model", "provider": provider, "modelId": model });
            lead.client.request(choose).await.map_err(command_error)?;
        }
        if let Some(policy) = settings.policy {
            let setup = lead.host.setup_with_policy(&lead.session.setup(), &policy);
            let setup = setup.map_err(FactoryError::Invalid)?;
            lead.session.change_setup(setup);
        }
        if let Some(title) = settings.title {
            let rename = json!({ "type": "set_session_name", "name": title });
            lead.client.request(rename).await.map_err(command_error)?;
        }
        Ok(())
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

impl Delivery {
    const fn word(self) -> &'static str {
        match self {
            Self::Steer => "steer",
            Self::FollowUp => "followUp",
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

/// What a command was answered with, when it was not done.
pub(super) fn command_error(error: ClientError) -> Error {
    match error {
        ClientError::Refused { error, .. } => Error::Refused(error),
        error => Error::Unreadable(error.to_string()),
    }
}
