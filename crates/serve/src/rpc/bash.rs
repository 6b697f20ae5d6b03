//! The `bash` command: runs a shell command of the client beside everything else.

use super::command::Caller;
use super::connection::Connection;
use crate::native::Notice;
use crate::pi_rpc::bash_message;
use outlast_dialect::Message;
use outlast_session::tools::shell;
use outlast_session::{Error, Session};
use serde_json::json;
use serde_json::value::to_raw_value;
use std::sync::Arc;

/// Maximum number of tasks of a connection, including shell commands.
const MAX_TASKS: usize = 256;

impl Connection {
    /// Runs a shell command of the client, who may run any. The model is told the result if `is_told`.
    pub(super) fn bash(
        self: &Arc<Self>,
        session: &Arc<Session>,
        caller: Caller,
        command: String,
        is_told: bool,
    ) {
        if self.tasks.len() > MAX_TASKS {
            return self.reply(caller.error("too many commands are under way"));
        }
        let (connection, session) = (Arc::clone(self), Arc::clone(session));
        let (shell, cancel) = (self.host.shell_command(&command), self.shells());
        self.tasks.spawn(async move {
            let mut write = |piece: &str| {
                // The reply has the beginning and the end of the output.
                if connection.outbox.is_full() {
                    return;
                }
                let update = Notice::BashExecutionUpdate {
                    id: caller.id().cloned(),
                    delta: piece.to_owned(),
                };
                connection.reply(to_raw_value(&update).unwrap_or_default());
            };
            let ended = match shell::run(shell, cancel, &mut write).await {
                Ok(ended) => ended,
                Err(error) => return connection.reply(caller.error(&error.to_string())),
            };
            if is_told {
                let note = Message::user(bash_message::format_message(&command, &ended));
                match session.add_note(note).await {
                    // No model is asked in a closed session.
                    Ok(()) | Err(Error::Closed) => {}
                    Err(error) => connection
                        .host
                        .warn(&format!("the model is not told of it: {error}")),
                }
            }
            let mut data = json!({
                "output": ended.output, "cancelled": ended.cancelled, "truncated": ended.truncated,
            });
            if let Some(code) = ended.exit_code {
                data["exitCode"] = code.into();
            }
            connection.reply(caller.data(data));
        });
    }
}
