//! Sessions as clients are told of them.

use crate::native::{HeldView, RetryView, WaitingView};
use crate::turn_stream::TurnEvent;
use outlast_kernel::Timestamp;
use outlast_kernel::event::{Event, TurnStatus, Usage};
use outlast_session::factory::Model;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a session does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "SessionState")]
pub enum State {
    /// Nothing was said in it yet. It is written down with its first prompt.
    New,
    /// Nothing.
    Idle,
    /// A turn runs.
    Running,
    /// A turn waits: for a retry, or at a gate.
    Waiting,
    /// Its last turn was interrupted and is not carried on by anybody.
    Unfinished,
    /// Another process leads it.
    Elsewhere,
}

/// A session in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SessionRow {
    /// Its id.
    pub id: String,
    /// What it is about; the beginning of its first prompt when nobody has said so.
    pub title: String,
    /// Where it works.
    pub directory: String,
    /// When it began.
    pub created: Timestamp,
    /// When something happened in it last.
    pub changed: Timestamp,
    /// How many turns it has.
    pub turns: u64,
    /// What it does.
    pub state: State,
}

/// Sessions, the newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SessionList {
    /// The server's clock.
    pub now: Timestamp,
    /// They.
    pub sessions: Vec<SessionRow>,
    /// Whether there are more: ask for those before the last one.
    pub more: bool,
}

/// A model that can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Model")]
pub struct ModelView {
    /// Its name at the provider.
    pub id: String,
    /// Its name for people.
    pub name: String,
    /// Who answers.
    pub provider: String,
    /// How many tokens it can read.
    pub context_window: u64,
    /// How many it can write.
    pub max_tokens: u64,
}

impl From<Model> for ModelView {
    fn from(model: Model) -> Self {
        Self {
            id: model.id,
            name: model.name,
            provider: model.provider,
            context_window: model.context_window,
            max_tokens: model.max_tokens,
        }
    }
}

/// Where a session stands.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SessionView {
    /// What it is.
    #[serde(flatten)]
    pub row: SessionRow,
    /// The server's clock.
    pub now: Timestamp,
    /// The model that is asked.
    pub model: ModelView,
    /// The turn that is running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<String>,
    /// The retry that is waited for or under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryView>,
    /// Until when the gate holds the call, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldView>,
    /// What waits to be said to the model.
    pub queue: WaitingView,
    /// How the last turn ended, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seal: Option<TurnStatus>,
    /// What all turns used, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// How it is led.
    pub settings: SettingsView,
    /// Why nothing can be said in it as things are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// How a session is led.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SettingsView {
    /// What it is about.
    pub title: String,
    /// Who answers.
    pub provider: String,
    /// The model that is asked.
    pub model: String,
    /// The retry policy.
    pub policy: String,
    /// Whether failures are retried.
    pub auto_retry: bool,
    /// Whether the conversation is made smaller by itself.
    pub auto_compaction: bool,
    /// How many messages that wait are said at once, of those for the turn that runs.
    pub steering_mode: QueueMode,
    /// The same for those that follow.
    pub follow_up_mode: QueueMode,
}

/// How many messages that wait are said at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum QueueMode {
    /// All of them.
    All,
    /// One, and the next with the next call.
    OneAtATime,
}

/// A session's transcript as events, and the place from which to follow.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SnapshotView {
    /// How far it goes; what comes after it can be followed from there.
    pub place: String,
    /// The number of the last event that is part of it.
    pub seq: u64,
    /// Where the session stands.
    pub session: SessionView,
    /// What was said, told again as events; pieces of one text are put together.
    pub events: SnapshotEvents,
    /// Whether the beginning was left out because it is long.
    pub truncated: bool,
}

/// Events in one of two vocabularies.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum SnapshotEvents {
    /// The turn stream.
    Turn(Vec<TurnEvent>),
    /// As they are.
    Native(Vec<Event>),
}
