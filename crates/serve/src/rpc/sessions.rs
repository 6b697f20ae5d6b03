//! Commands that replace the session or the model in use.

use super::command::{Command, ThinkingLevel};
use super::connection::{CommandResult, Connection, close, close_session};
use crate::pi_rpc::history::History;
use outlast_kernel::text;
use outlast_session::factory::{Model, OpenedSession};
use outlast_session::{Conversation, Session};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Time that a run gets to end before another session replaces its own.
const RUN_END_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_NAME_BYTES: usize = 200;

impl Connection {
    /// Handles commands about sessions and models; returns all others to the caller.
    pub(super) async fn sessions(
        self: &Arc<Self>,
        conversation: &Conversation,
        command: Command,
    ) -> Result<CommandResult, Command> {
        let session = conversation.session();
        Ok(match command {
            Command::NewSession => self.replace(SessionSource::New).await,
            Command::SwitchSession { session_path } => self.switch(session, &session_path).await,
            Command::Clone => self.replace(SessionSource::Copy(session, None)).await,
            Command::Fork { entry_id } => self.fork(session, &entry_id).await,
            Command::SetSessionName { name } => self.rename(session, name.trim()).await,
            Command::SetModel { provider, model_id } => {
                let chosen = self.choose(conversation, &provider, &model_id).await;
                chosen.map(Some)
            }
            Command::CycleModel => self.cycle_model(conversation).await,
            Command::GetAvailableModels => Ok(Some(json!({ "models": self.host.models() }))),
            // The server cannot set a thinking level: there is one level, and a request for another one says so.
            Command::SetThinkingLevel { level } => {
                Ok((level != ThinkingLevel::Off).then(|| json!({ "level": "off" })))
            }
            Command::CycleThinkingLevel => Ok(Some(Value::Null)),
            Command::GetAvailableThinkingLevels => Ok(Some(json!({ "levels": ["off"] }))),
            Command::GetCommands => Ok(Some(json!({ "commands": [] }))),
            command => return Err(command),
        })
    }

    /// Renames the session. The title becomes one line of at most `MAX_NAME_BYTES`.
    async fn rename(&self, session: &Session, name: &str) -> CommandResult {
        let name = text::plain(name)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        let name = &*text::bounded(&name, MAX_NAME_BYTES);
        if name.is_empty() {
            return Err("Session name cannot be empty".to_owned());
        }
        let renamed = session.rename(name).await;
        renamed.map(|()| None).map_err(|error| error.to_string())
    }

    // --- Sessions ---

    async fn switch(self: &Arc<Self>, session: &Session, path: &str) -> CommandResult {
        let is_open = session_name(path).is_some_and(|name| session.id().starts_with(name));
        match is_open {
            true => Ok(Some(json!({ "cancelled": false }))),
            false => self.replace(SessionSource::Named(path)).await,
        }
    }

    /// Replaces the session. The active run is ended and settled first. Except for a copy, the other session is opened
    /// before that, so that an error does not end the run.
    async fn replace(self: &Arc<Self>, other: SessionSource<'_>) -> CommandResult {
        let opened = match other {
            SessionSource::Copy(session, before) => {
                self.end_active_run().await?;
                self.host.fork(session, before).await?
            }
            other => {
                let opened = self.other(other).await?;
                if let Err(why) = self.end_active_run().await {
                    close_session(&opened.session, &*self.host).await;
                    return Err(why);
                }
                opened
            }
        };
        if let Some(before) = self.attach_session(opened) {
            close(&before, &*self.host).await;
        }
        Ok(Some(json!({ "cancelled": false })))
    }

    async fn end_active_run(&self) -> Result<(), String> {
        // An unfinished turn is left, unlike at an abort.
        self.epochs.end();
        if let Some(conversation) = self.conversation() {
            let settled = tokio::time::timeout(RUN_END_TIMEOUT, conversation.settled()).await;
            settled.map_err(|_| "the turn that is running does not end".to_owned())?;
        }
        Ok(())
    }

    async fn other(&self, other: SessionSource<'_>) -> Result<OpenedSession, String> {
        match other {
            SessionSource::New => self.host.create().await,
            SessionSource::Copy(session, before) => self.host.fork(session, before).await,
            SessionSource::Named(path) => match session_name(path) {
                Some(name) => self.host.open(name).await,
                // A file that does not exist starts a new session.
                None if is_file_name(path) && !std::path::Path::new(path).exists() => {
                    self.host.create().await
                }
                None => Err(format!(
                    "{path} is no session of ours; give its id, or the `sessionFile` of `get_state`"
                )),
            },
        }
    }

    async fn fork(self: &Arc<Self>, session: &Arc<Session>, entry_id: &str) -> CommandResult {
        let entries = session.entries().await;
        let entries = entries.map_err(|error| error.to_string())?;
        let history = History::from_entries(&entries, &self.models());
        let seq = history.seq_of(entry_id);
        let seq = seq.map_err(|error| error.to_string())?;
        let mut prompts = history.fork_messages().into_iter();
        let prompt = prompts.find(|prompt| prompt.entry_id == entry_id);
        let text = prompt.map(|prompt| prompt.text);
        let text = text.ok_or_else(|| format!("{entry_id} is no prompt: see get_fork_messages"))?;
        self.replace(SessionSource::Copy(session, Some(seq)))
            .await?;
        Ok(Some(json!({ "text": text, "cancelled": false })))
    }

    // --- Models ---

    async fn choose(
        &self,
        conversation: &Conversation,
        provider: &str,
        model: &str,
    ) -> Result<Value, String> {
        let session = conversation.session();
        let chosen = self
            .host
            .setup_with_model(session.setup(), (provider, model))
            .await?;
        let (setup, model) =
            chosen.ok_or_else(|| format!("Model not found: {provider}/{model}"))?;
        conversation.choose_model(setup);
        self.set_model(model.clone());
        Ok(json!(model))
    }

    async fn cycle_model(&self, conversation: &Conversation) -> CommandResult {
        let (models, current) = (self.host.models(), self.model());
        let is_current = |model: &Model| {
            let current = current.as_ref();
            current.is_some_and(|current| current.is_same(model))
        };
        let place = models.iter().position(is_current);
        let next = place.map_or(0, |place| place + 1) % models.len().max(1);
        match models.get(next) {
            Some(next) if models.len() > 1 => {
                let model = self.choose(conversation, &next.provider, &next.id).await?;
                Ok(Some(
                    json!({ "model": model, "thinkingLevel": "off", "isScoped": false }),
                ))
            }
            _ => Ok(Some(Value::Null)),
        }
    }
}

/// The session to use next.
enum SessionSource<'a> {
    New,
    Named(&'a str),
    /// A copy of that session: the entries before a number, or all of them.
    Copy(&'a Arc<Session>, Option<u64>),
}

/// Returns the session id in a client's name for a session: the id, or the `sessionFile` of `get_state`. Other paths
/// contain none.
fn session_name(path: &str) -> Option<&str> {
    let name = path.rsplit_once('#').map_or(path, |(_, name)| name);
    let is_id = |b: u8| b.is_ascii_hexdigit() || b == b'-';
    (!name.is_empty() && name.bytes().all(is_id)).then_some(name)
}

/// Returns whether a name looks like a file, and not like a mistyped id.
fn is_file_name(path: &str) -> bool {
    path.contains(['/', '\\']) || path.ends_with(".jsonl")
}

#[cfg(test)]
mod tests {
    use super::session_name;

    #[test]
    fn session_name_accepts_only_id_or_own_path() {
        let table = [
            ("01a1dcc3-752b", Some("01a1dcc3-752b")),
            ("/home/u/sessions.db#01a1dcc3-752b", Some("01a1dcc3-752b")),
            ("/home/u/2026_01a1dcc3.jsonl", None),
            ("", None),
            ("/home/u/sessions.db#", None),
        ];
        for (path, expected) in table {
            assert_eq!(session_name(path), expected, "{path}");
        }
    }
}
