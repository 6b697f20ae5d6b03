//! A client of the pi RPC protocol, for programs that drive a session.
//!
//! ```no_run
//! use outlast_serve::pi_rpc::client::{ClientError, RpcClient};
//!
//! # async fn example() -> Result<(), ClientError> {
//! let mut command = tokio::process::Command::new("outlast");
//! command.args(["rpc", "--provider", "anthropic", "--model", "claude-opus-4-1"]);
//! let client = RpcClient::spawn(command)?;
//! client.set_auto_retry(true).await?;
//!
//! let mut events = client.events();
//! tokio::spawn(async move {
//!     while let Some(event) = events.next().await {
//!         if let Ok(event) = event {
//!             eprintln!("{}", event["type"]);
//!         }
//!     }
//! });
//! let said = client.prompt_and_wait("What is in this folder?").await?;
//! eprintln!("{} events", said.len());
//! client.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! Invariants: a client may be used from many tasks at once, so one task can abort while another waits; no request
//! waits for a server that is gone; dropping a request cancels it. There is no timeout unless the caller sets one: a
//! wait of eight hours is not unusual.

use serde_json::{Value, json};
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::process::Command;
use tokio::time::timeout;

mod connection;
mod error;
mod inbox;

use connection::Connection;
pub use error::{ClientError, Lagged};
pub use inbox::EventStream;

/// A client. Its clones share one server process, which is killed when the last clone is dropped.
#[derive(Clone)]
pub struct RpcClient {
    connection: Arc<Connection>,
    last_request_id: Arc<AtomicU64>,
    limit: Option<Duration>,
}

/// The outcome of sending a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Disposition {
    /// A run started with it.
    Started,
    /// It is queued for the model.
    Queued,
    /// It was a command, and is done: no run follows.
    Handled,
}

impl RpcClient {
    /// Spawns a server and connects to it. The server is killed when the last client is dropped; its stderr goes to the
    /// destination that `command` sets. Must be called within a runtime.
    pub fn spawn(mut command: Command) -> io::Result<Self> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn()?;
        let missing = || io::Error::other("it has no pipes");
        let reader = child.stdout.take().ok_or_else(missing)?;
        let writer = child.stdin.take().ok_or_else(missing)?;
        Ok(Self::from_connection(Connection::from_streams(
            reader,
            writer,
            Some(child),
        )))
    }

    /// Connects to a server over a pair of streams. Must be called within a runtime.
    pub fn from_streams<R, W>(reader: R, writer: W) -> Self
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        Self::from_connection(Connection::from_streams(reader, writer, None))
    }

    fn from_connection(link: Connection) -> Self {
        Self {
            connection: Arc::new(link),
            last_request_id: Arc::default(),
            limit: None,
        }
    }

    /// Sets a time limit for each reply. The duration of a run is not limited by it.
    #[must_use]
    pub fn with_timeout(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Sends a command of the protocol, such as `{"type": "get_state"}`. Returns the `data` of the reply, or null if it
    /// has none.
    pub async fn request(&self, command: Value) -> Result<Value, ClientError> {
        self.send_request(command).await.map(|reply| reply.data)
    }

    /// Sends a frame that has no reply, such as an `extension_ui_response`.
    pub async fn send_frame(&self, frame: &Value) -> Result<(), ClientError> {
        let line = format!("{frame}\n");
        self.connection.write(line.into_bytes()).await
    }

    /// Returns the events from now on, in order: every frame of the server that is not a reply to a request.
    pub fn events(&self) -> EventStream {
        self.connection.inbox.subscribe()
    }

    /// Sends a prompt. Returns when the server has accepted it, before the model answers.
    pub async fn prompt(&self, text: &str) -> Result<Disposition, ClientError> {
        let command = json!({ "type": "prompt", "message": text });
        self.send_request(command)
            .await?
            .disposition(Disposition::Started)
    }

    /// Sends a prompt and waits, for hours if necessary, until the run it belongs to has ended. Returns the events
    /// until then; the last one is `agent_settled`. Deltas of messages and of tool output are left out: the end of each
    /// message has its whole text, and [`RpcClient::events`] has the deltas.
    pub async fn prompt_and_wait(&self, text: &str) -> Result<Vec<Value>, ClientError> {
        let mut following = self.connection.inbox.subscribe_run();
        let command = json!({ "type": "prompt", "message": text });
        let reply = self.send_request(command).await?;
        let mut said = Vec::new();
        if reply.disposition(Disposition::Started)? == Disposition::Handled {
            return Ok(said);
        }
        // An earlier run may end before the reply; only frames after the reply belong to this prompt.
        let mut accepted = false;
        while let Some(frame) = following.recv().await {
            let kind = frame["type"].as_str().unwrap_or_default();
            if kind == "response" {
                accepted |= inbox::reply_id(&frame) == Some(reply.id);
            } else if accepted {
                let is_over = kind == "agent_settled";
                said.push(Arc::unwrap_or_clone(frame));
                if is_over {
                    return Ok(said);
                }
            }
        }
        Err(self.connection.inbox.closed_error())
    }

    /// Queues a message for the next model call of the current run.
    pub async fn steer(&self, text: &str) -> Result<Disposition, ClientError> {
        let command = json!({ "type": "steer", "message": text });
        self.send_request(command)
            .await?
            .disposition(Disposition::Queued)
    }

    /// Queues a message for after the model's answer.
    pub async fn follow_up(&self, text: &str) -> Result<Disposition, ClientError> {
        let command = json!({ "type": "follow_up", "message": text });
        self.send_request(command)
            .await?
            .disposition(Disposition::Queued)
    }

    /// Aborts the run, whatever it does or waits for.
    pub async fn abort(&self) -> Result<(), ClientError> {
        self.send_command("abort").await
    }

    /// Switches automatic retries on or off.
    pub async fn set_auto_retry(&self, enabled: bool) -> Result<(), ClientError> {
        let command = json!({ "type": "set_auto_retry", "enabled": enabled });
        self.request(command).await.map(drop)
    }

    /// Cancels the pending retry.
    pub async fn abort_retry(&self) -> Result<(), ClientError> {
        self.send_command("abort_retry").await
    }

    /// Makes the pending retry start now.
    pub async fn retry_now(&self) -> Result<(), ClientError> {
        self.send_command("retry_now").await
    }

    /// Returns the state of the session.
    pub async fn get_state(&self) -> Result<Value, ClientError> {
        self.request(json!({ "type": "get_state" })).await
    }

    /// Compacts the conversation, optionally with instructions on what to keep. Returns when that is done.
    pub async fn compact(&self, instructions: Option<&str>) -> Result<Value, ClientError> {
        let mut command = json!({ "type": "compact" });
        if let Some(instructions) = instructions {
            command["customInstructions"] = instructions.into();
        }
        self.request(command).await
    }

    /// Runs a shell command in the session's folder. Returns when it has exited.
    pub async fn bash(&self, command: &str) -> Result<Value, ClientError> {
        let command = json!({ "type": "bash", "command": command });
        self.request(command).await
    }

    /// Closes the connection and waits for the server to exit; after some seconds it is killed. Returns its exit status
    /// if it was spawned here. Requests without a reply by then fail, those of other clones as well.
    pub async fn close(&self) -> Option<ExitStatus> {
        self.connection.close().await
    }

    async fn send_command(&self, command: &str) -> Result<(), ClientError> {
        self.request(json!({ "type": command })).await.map(drop)
    }

    async fn send_request(&self, mut command: Value) -> Result<Reply, ClientError> {
        let Some(name) = command["type"].as_str().map(str::to_owned) else {
            return Err(ClientError::MissingType);
        };
        let id = self.last_request_id.fetch_add(1, Ordering::Relaxed) + 1;
        command["id"] = id.to_string().into();
        let asked = self.connection.inbox.register_request(id)?;
        let answer = async {
            self.send_frame(&command).await?;
            asked.wait().await
        };
        let frame = match self.limit {
            None => answer.await,
            Some(limit) => timeout(limit, answer).await.unwrap_or_else(|_| {
                let command = name.clone();
                Err(ClientError::TimedOut { command, limit })
            }),
        }?;
        Reply::from_frame(id, name, frame)
    }
}

/// A successful reply.
struct Reply {
    id: u64,
    command: String,
    data: Value,
}

impl Reply {
    fn from_frame(id: u64, command: String, frame: Arc<Value>) -> Result<Self, ClientError> {
        let mut frame = Arc::unwrap_or_clone(frame);
        if frame["success"] == true {
            let data = frame["data"].take();
            return Ok(Self { id, command, data });
        }
        let error = frame["error"].as_str().unwrap_or("refused").to_owned();
        Err(ClientError::Refused { command, error })
    }

    /// Reads the disposition from the reply; older servers do not send one.
    fn disposition(&self, unsaid: Disposition) -> Result<Disposition, ClientError> {
        match &self.data["disposition"] {
            Value::Null => Ok(unsaid),
            said => {
                serde_json::from_value(said.clone()).map_err(|_| ClientError::UnexpectedReply {
                    command: self.command.clone(),
                    answer: said.to_string(),
                })
            }
        }
    }
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
