//! Replies about the state of the session.

use super::command::{Caller, CommandError};
use super::connection::{CommandResult, Connection};
use crate::native::{FollowRequest, SnapshotView, WaitingView};
use crate::outbox::Item;
use crate::pi_rpc::history::History;
use outlast_kernel::event::Event;
use outlast_session::Session;
use outlast_session::{Compacted, Conversation, DrainMode};
use serde_json::{Map, Value, json};

const NATIVE_ONLY: &str = "only the native dialect has it: `outlast rpc --mode native`";

impl Connection {
    /// Returns the reply to `get_state`: the fields that pi clients know, then those of our own.
    pub(super) fn state(&self, conversation: &Conversation) -> Value {
        let session = conversation.session();
        let snapshot = session.snapshot();
        let waiting = session.queued_messages();
        let is_under_way = conversation.is_running();
        let mut state = json!({
            "model": self.model(),
            "thinkingLevel": "off",
            "isStreaming": is_under_way && !conversation.is_waiting(),
            "isCompacting": snapshot.is_compacting,
            "steeringMode": mode_name(session.steering_mode()),
            "followUpMode": mode_name(session.follow_up_mode()),
            "sessionId": session.id(),
            "autoCompactionEnabled": session.auto_compaction_enabled(),
            "messageCount": session.message_count(),
            "pendingMessageCount": waiting.steering.len() + waiting.follow_up.len(),
            "isRunning": is_under_way,
            "isRetrying": snapshot.retry.is_some(),
            "autoRetryEnabled": session.auto_retry_enabled(),
            "retry": retry(session),
            "unfinishedTurn": !is_under_way && session.unfinished_turn().is_some(),
            "usage": snapshot.usage,
        });
        if let Some(file) = self.session_file(session) {
            state["sessionFile"] = file.into();
        }
        let title = session.title();
        if !title.is_empty() {
            state["sessionName"] = title.into();
        }
        if let Some(held) = snapshot.gate_hold {
            state["held"] = json!({ "until": held.until, "cause": held.cause });
        }
        state
    }

    /// Returns the name of the stored session, by which a client can open it.
    pub(super) fn session_file(&self, session: &Session) -> Option<String> {
        let file = self
            .host
            .journal_path()
            .filter(|_| session.is_persistent())?;
        Some(format!("{file}#{}", session.id()))
    }

    /// Returns the reply to `snapshot`.
    pub(super) fn snapshot(&self, session: &Session) -> CommandResult {
        match self.native_log {
            Some(_) => {
                let waiting = WaitingView::from(&session.queued_messages());
                let view = SnapshotView::new(session.id(), session.snapshot(), waiting);
                Ok(Some(json!(view)))
            }
            None => Err(NATIVE_ONLY.to_owned()),
        }
    }

    /// Handles `follow`: replays past events, and selects those to send from now on.
    pub(super) fn follow_events(&self, caller: &Caller, fields: Map<String, Value>) {
        let Some(log) = &self.native_log else {
            return self.reply(caller.error(NATIVE_ONLY));
        };
        let followed = FollowRequest::parse(&Value::Object(fields)).and_then(|follow| {
            let say = |followed, events: Vec<Event>| {
                self.reply(caller.data(followed));
                events
                    .into_iter()
                    .for_each(|event| self.outbox.send(Item::Event(event)));
            };
            Ok(log.follow(follow, say)?)
        });
        if let Err(error) = followed {
            self.reply(caller.error_with_code(&CommandError {
                error: error.to_string(),
                code: Some(error.code()),
                oldest: error.oldest(),
            }));
        }
    }

    /// Returns the reply to a compaction. Only the history knows the first entry that was kept.
    pub(super) async fn compaction(&self, session: &Session, compacted: &Compacted) -> Value {
        let entries = session.entries().await.unwrap_or_default();
        let history = History::from_entries(&entries, &self.models());
        json!({
            "summary": compacted.summary.clone().unwrap_or_default(),
            "firstKeptEntryId": history.first_kept().unwrap_or_default(),
            "tokensBefore": compacted.before,
            "tokensAfter": compacted.after,
            "details": { "readFiles": [], "modifiedFiles": [] },
        })
    }
}

/// Returns the state of the pending or active retry; attempt 0 means that there is none.
fn retry(session: &Session) -> Value {
    let mut state = json!({ "enabled": session.auto_retry_enabled(), "attempt": 0 });
    if let Some(retry) = session.snapshot().retry {
        state["attempt"] = retry.attempt.into();
        state["maxAttempts"] = retry.max_attempts.into();
        state["cause"] = retry.cause.as_str().into();
        state["errorMessage"] = retry.message.into();
        state["wakeAt"] = json!(retry.wake_at);
    }
    state
}

const fn mode_name(mode: DrainMode) -> &'static str {
    match mode {
        DrainMode::All => "all",
        DrainMode::OneAtATime => "one-at-a-time",
    }
}
