//! Leading a session: opening it when something is to be done, driving it by the commands of `rpc`, giving it back.

use super::record::Seen;
use super::room::{Deliver, Place, Room, Said, Settings, Switches, lock};
use super::view::{QueueMode, State};
use super::{Error, one_line};
use crate::host::{Host, Hosted, HouseError, Opened};
use crate::pi_rpc::client::{ClientError, RpcClient};
use crate::rpc::{BUSY, Dialect, Server};
use outlast_agent::Session;
use outlast_agent::session::{Mode, Subscription};
use outlast_engine::CancellationToken;
use outlast_store::journal::State as Owned;
use serde_json::{Value, json};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A session in which nothing happens for so long is given back.
const IDLE: Duration = Duration::from_secs(60);
/// How much of what is said to a session, and what it answers, may be on its way.
const PIPE: usize = 64 << 10;
/// How long a run that has said its last word may take to end, and how often that is looked at.
const ENDING: Duration = Duration::from_millis(500);
const MOMENT: Duration = Duration::from_millis(1);
/// A room that nobody has looked at for so long is forgotten; one in which nothing was said, after a day.
const UNWATCHED: Duration = Duration::from_secs(300);
const NEVER_USED: Duration = Duration::from_secs(24 * 3600);

/// A session that is open.
#[derive(Clone)]
pub(super) struct Lead {
    pub(super) session: Arc<Session>,
    pub(super) host: Arc<dyn Host>,
    pub(super) client: RpcClient,
    /// Cancelled when it is not served any more.
    over: CancellationToken,
    _listening: Arc<Subscription>,
}

impl Lead {
    /// What it does, as those who watch are told.
    pub(super) fn state(&self) -> State {
        let snapshot = self.session.snapshot();
        let is_held = snapshot.held.is_some();
        let waits = is_held || snapshot.retry.is_some_and(|retry| retry.wake_at.is_some());
        match (self.session.is_running(), waits) {
            (true, true) => State::Waiting,
            (true, false) => State::Running,
            (false, _) if self.session.unfinished_turn().is_some() => State::Unfinished,
            (false, _) => State::Idle,
        }
    }
}

impl Room {
    /// The session, if it is open.
    pub(super) fn led(&self) -> Option<Lead> {
        let lead = lock(&self.lead).clone();
        lead.filter(|lead| !lead.over.is_cancelled())
    }

    pub(super) fn led_state(&self) -> Option<State> {
        self.led().map(|lead| lead.state())
    }

    /// The session, open.
    async fn enter(self: &Arc<Self>) -> Result<Lead, Error> {
        self.touch();
        let _door = self.door.lock().await;
        if let Some(lead) = self.led() {
            return Ok(lead);
        }
        let wanted = lock(&self.wanted).clone();
        let Hosted { opened, host } = self.house.open(self.id(), &wanted.wishes).await?;
        let session = Arc::clone(&opened.session);
        let entries = match self.house.journal().filter(|_| session.is_kept()) {
            Some(journal) => journal.summary(self.id()).await.map_or(0, |it| it.entries),
            None => 0,
        };
        let is_unfinished = session.unfinished_turn().is_some();
        let written = (session.turn_count(), entries);
        {
            let mut record = self.record();
            let is_led = false;
            record.has(self.id(), Seen { entries, is_led });
            record.open(written, is_unfinished);
        }
        lock(&self.wanted).card = None;
        wanted.switches.apply(&session);
        let lead = self.serve(opened, host);
        // Its events are heard here; of what is asked for only the answers are of interest there.
        let quietly = json!({ "type": "follow", "only": [] });
        lead.client.request(quietly).await.map_err(said)?;
        *lock(&self.lead) = Some(lead.clone());
        self.stir();
        Ok(lead)
    }

    fn serve(self: &Arc<Self>, opened: Opened, host: Arc<dyn Host>) -> Lead {
        let session = Arc::clone(&opened.session);
        let (room, heard): (Weak<Self>, _) = (Arc::downgrade(self), Arc::downgrade(&session));
        let listening = session.subscribe(move |event| {
            if let (Some(room), Some(session)) = (room.upgrade(), heard.upgrade()) {
                room.hear(event, &session);
            }
        });
        let (ours, theirs) = tokio::io::duplex(PIPE);
        let server = Server {
            host: Arc::clone(&host),
            dialect: Dialect::Native,
            stop: self.stop.clone(),
        };
        let over = CancellationToken::new();
        let ended = over.clone().drop_guard();
        self.tasks.spawn(async move {
            let _ended = ended;
            Box::pin(server.serve(opened, tokio::io::split(theirs))).await;
        });
        let (reader, writer) = tokio::io::split(ours);
        Lead {
            client: RpcClient::over(reader, writer),
            _listening: Arc::new(listening),
            session,
            host,
            over,
        }
    }

    /// Gives the session back when nothing has happened in it for a while.
    pub(super) async fn close_if_idle(&self) {
        let Some(lead) = self.led() else {
            return;
        };
        let session = &lead.session;
        let is_needed = || {
            let is_asked = session.is_running() || !session.waiting().is_empty();
            is_asked || !session.is_kept() || self.idle_since().elapsed() < IDLE
        };
        // Whoever comes through the door meanwhile needs it.
        let door = self.door.try_lock();
        if is_needed() || door.is_err() {
            return;
        }
        lead.client.close().await;
        lead.over.cancelled().await;
        // It was led here until now, and by nobody else.
        let is_led = false;
        let seen = self.seen().await.map(|seen| Seen { is_led, ..seen });
        *lock(&self.lead) = None;
        lock(&self.wanted).card = None;
        self.record().close(self.id(), seen);
        self.stir();
    }

    /// Looks whether another process has gone on with a session that somebody watches here.
    pub(super) async fn look_elsewhere(&self) {
        if self.is_new() || self.led().is_some() {
            return;
        }
        let Some(seen) = self.seen().await else {
            return;
        };
        // It may have been opened meanwhile.
        let Ok(_door) = self.door.try_lock() else {
            return;
        };
        if self.led().is_none() && self.record().has(self.id(), seen) {
            lock(&self.wanted).card = None;
            self.stir();
        }
    }

    async fn seen(&self) -> Option<Seen> {
        let summary = self.house.journal()?.summary(self.id()).await.ok()?;
        Some(Seen {
            entries: summary.entries,
            is_led: summary.state == Owned::InUse,
        })
    }

    /// Whether it can be made again from what is written down.
    pub(super) fn can_be_forgotten(&self) -> bool {
        let has_wishes = {
            let wanted = lock(&self.wanted);
            wanted.wishes.are_settings() || wanted.switches != Switches::default()
        };
        let unwatched = self.unwatched_since().elapsed();
        let is_old = unwatched > NEVER_USED || unwatched > UNWATCHED && !self.is_new();
        self.led().is_none() && is_old && (self.is_new() || !has_wishes)
    }

    // --- What can be asked ---

    /// Says something to the model, or has it wait to be said. What came of it is `started` or `queued`; nothing of it has
    /// happened before that place.
    pub async fn prompt(
        self: &Arc<Self>,
        said: Said,
        deliver: Option<Deliver>,
    ) -> Result<(Value, Place), Error> {
        let lead = self.enter().await?;
        let place = self.place();
        let say = |deliver: Option<Deliver>| {
            let mut command =
                json!({ "type": "prompt", "message": said.text, "images": said.images });
            if let Some(deliver) = deliver {
                command["streamingBehavior"] = deliver.word().into();
            }
            lead.client.request(command)
        };
        // In a session in which nothing runs it is said at once, whatever it would have waited for.
        let first = deliver.filter(|_| lead.session.is_running());
        let until = tokio::time::Instant::now() + ENDING;
        let answer = loop {
            match say(first).await {
                Err(ClientError::Refused { error, .. }) if error == BUSY => {}
                answer => break answer,
            }
            // A run that has said its last word is over in a moment. Otherwise there is a turn that it has to wait for.
            let is_ending = lead.session.snapshot().turn_id.is_none();
            if !is_ending || tokio::time::Instant::now() > until {
                break say(Some(deliver.unwrap_or(Deliver::FollowUp))).await;
            }
            tokio::time::sleep(MOMENT).await;
        };
        Ok((answer.map_err(self::said)?, place))
    }

    /// Says something with the next call of the turn that runs.
    pub async fn steer(self: &Arc<Self>, said: Said) -> Result<Value, Error> {
        let command = json!({ "type": "steer", "message": said.text, "images": said.images });
        // Whoever leads it elsewhere is named.
        let lead = match self.is_new() {
            true => self.led(),
            false => Some(self.enter().await?),
        };
        let lead = lead.filter(|lead| lead.session.is_running());
        let idle = || Error::Refused("no turn is running that could be steered".to_owned());
        let client = lead.ok_or_else(idle)?.client;
        client.request(command).await.map_err(self::said)
    }

    /// Carries on what was left, or tries the last turn again that failed.
    pub async fn resume(self: &Arc<Self>) -> Result<(), Error> {
        let lead = self.enter().await?;
        let resumed = lead.client.request(json!({ "type": "resume" })).await;
        resumed.map(drop).map_err(said)
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
        if self.led().is_none() && self.is_unfinished().await {
            self.resume().await?;
        }
        self.order("retry_now").await
    }

    /// Does something about a turn; when there is none, that is no mistake.
    async fn order(self: &Arc<Self>, command: &str) -> Result<(), Error> {
        let lead = match self.led() {
            Some(lead) => lead,
            None if self.is_unfinished().await => self.enter().await?,
            None => return Ok(()),
        };
        let done = lead.client.request(json!({ "type": command })).await;
        done.map(drop).map_err(said)
    }

    async fn is_unfinished(&self) -> bool {
        let Some(journal) = self.house.journal() else {
            return false;
        };
        let summary = journal.summary(self.id()).await;
        summary.is_ok_and(|summary| summary.open_turn.is_some())
    }

    /// Changes how the session is led, once it is clear that all of it can be had.
    pub async fn change(self: &Arc<Self>, mut settings: Settings) -> Result<(), Error> {
        self.check(&settings).await?;
        settings.title = settings.title.map(|title| one_line(&title));
        let switches = Switches {
            auto_retry: settings.auto_retry,
            auto_compaction: settings.auto_compaction,
            steering_mode: settings.steering_mode,
            follow_up_mode: settings.follow_up_mode,
        };
        // Whoever opens it meanwhile either knows of this or is told.
        let door = self.door.lock().await;
        let is_new = self.is_new() && self.led().is_none();
        {
            let mut wanted = lock(&self.wanted);
            wanted.switches = switches.after(wanted.switches);
            if let Some((provider, model)) = settings.model.clone() {
                (wanted.wishes.provider, wanted.wishes.model) = (Some(provider), Some(model));
            }
            let wishes = &mut wanted.wishes;
            wishes.policy = settings.policy.clone().or(wishes.policy.take());
            if is_new {
                wishes.title = settings.title.clone().or(wishes.title.take());
            }
            wanted.card = None;
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
            lead.client.request(choose).await.map_err(said)?;
        }
        if let Some(policy) = settings.policy {
            let setup = lead.host.choose_policy(&lead.session.setup(), &policy);
            let setup = setup.map_err(HouseError::Wrong)?;
            lead.session.change_setup(setup);
        }
        if let Some(title) = settings.title {
            let rename = json!({ "type": "set_session_name", "name": title });
            lead.client.request(rename).await.map_err(said)?;
        }
        Ok(())
    }

    /// Whether such a model and such a policy can be had.
    async fn check(&self, settings: &Settings) -> Result<(), Error> {
        if settings.model.is_none() && settings.policy.is_none() {
            return Ok(());
        }
        let mut wishes = lock(&self.wanted).wishes.clone();
        if let Some((provider, model)) = settings.model.clone() {
            (wishes.provider, wishes.model) = (Some(provider), Some(model));
        }
        wishes.policy = settings.policy.clone().or(wishes.policy);
        let name = Some(self.id()).filter(|_| !self.is_new());
        self.house.look(name, &wishes).await?.sound()?;
        Ok(())
    }
}

impl Switches {
    fn after(self, earlier: Self) -> Self {
        Self {
            auto_retry: self.auto_retry.or(earlier.auto_retry),
            auto_compaction: self.auto_compaction.or(earlier.auto_compaction),
            steering_mode: self.steering_mode.or(earlier.steering_mode),
            follow_up_mode: self.follow_up_mode.or(earlier.follow_up_mode),
        }
    }

    fn apply(self, session: &Session) {
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

impl Deliver {
    const fn word(self) -> &'static str {
        match self {
            Self::Steer => "steer",
            Self::FollowUp => "followUp",
        }
    }
}

impl From<QueueMode> for Mode {
    fn from(mode: QueueMode) -> Self {
        match mode {
            QueueMode::All => Self::All,
            QueueMode::OneAtATime => Self::OneAtATime,
        }
    }
}

impl From<Mode> for QueueMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::All => Self::All,
            Mode::OneAtATime => Self::OneAtATime,
        }
    }
}

/// What a command was answered with, when it was not done.
fn said(error: ClientError) -> Error {
    match error {
        ClientError::Refused { error, .. } => Error::Refused(error),
        error => Error::Unreadable(error.to_string()),
    }
}
