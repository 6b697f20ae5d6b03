//! A server for the whole session: calls it, and restarts it when it has ended.
//!
//! Invariants: a call is made once, whatever its outcome. While it is under way it owns the connection: a caller that stops
//! waiting stops the server, which may have left something running.

use super::call_result::tool_output;
use super::connection::{CallOutcome, Connection};
use super::{Error, ServerConfig};
use outlast_engine::CancellationToken;
use outlast_engine::tools::Output;
use rmcp::model::{CallToolRequestParams, ServerResult, Tool};
use std::path::PathBuf;
use tokio::sync::Mutex;

/// Maximum number of starts of a server before it responds to a call.
const MAX_STARTS: u32 = 3;

/// The working folder of a server, and the environment variables hidden from it.
#[derive(Clone)]
pub(super) struct LaunchContext {
    pub(super) directory: PathBuf,
    pub(super) hidden_variables: Vec<String>,
}

/// A server.
pub(super) struct ServerHandle {
    pub(super) config: ServerConfig,
    launch_context: LaunchContext,
    state: Mutex<State>,
}

struct State {
    connection: Option<Connection>,
    /// Number of starts since its last response.
    starts: u32,
}

impl ServerHandle {
    /// Starts the server and returns it with its tools.
    pub(super) async fn start(
        config: ServerConfig,
        launch_context: LaunchContext,
    ) -> Result<(Self, Vec<Tool>), Error> {
        let connection = Connection::open(&config, &launch_context).await?;
        let tools = connection.tools(&config).await?;
        let state = State {
            connection: Some(connection),
            starts: 1,
        };
        let state = Mutex::new(state);
        let host = Self {
            config,
            launch_context,
            state,
        };
        Ok((host, tools))
    }

    /// Makes a call.
    pub(super) async fn call(
        &self,
        call: CallToolRequestParams,
        cancel: &CancellationToken,
    ) -> Output {
        let mut state = self.state.lock().await;
        let ready = tokio::select! {
            ready = self.take_connection(&mut state) => ready,
            () = cancel.cancelled() => return Output::error(""),
        };
        let connection = match ready {
            Ok(connection) => connection,
            Err(why) => return Output::error(format!("it was not run: {why}")),
        };
        match connection.call(call, cancel).await {
            CallOutcome::Responded(answer) => {
                *state = State {
                    connection: Some(connection),
                    starts: 0,
                };
                response_output(*answer)
            }
            CallOutcome::Cancelled => {
                state.starts = 0;
                connection.stop().await;
                Output::error("")
            }
            CallOutcome::Disconnected => self.disconnected_output(&connection.stop().await),
        }
    }

    /// Stops the server.
    pub(super) async fn close(&self) {
        let connection = self.state.lock().await.connection.take();
        if let Some(connection) = connection {
            connection.stop().await;
        }
    }

    /// Takes the connection, or opens a new one if that has ended. The caller must give it back.
    async fn take_connection(&self, state: &mut State) -> Result<Connection, String> {
        let open = state.connection.take();
        if let Some(connection) = open.filter(|connection| !connection.is_closed()) {
            return Ok(connection);
        }
        if state.starts >= MAX_STARTS {
            return Err(format!(
                "its server `{}` was started {MAX_STARTS} times and has answered nothing; it is not started again",
                self.config.name
            ));
        }
        state.starts += 1;
        let opened = Connection::open(&self.config, &self.launch_context).await;
        opened.map_err(|error| error.to_string())
    }

    fn disconnected_output(&self, said: &str) -> Output {
        let server = &self.config.name;
        let end =
            format!("its server `{server}` ended before it answered; the call may have partly run");
        Output::error(match said {
            "" => end,
            said => format!("{end}. The server said: {said}"),
        })
    }
}

fn response_output(answer: Result<ServerResult, String>) -> Output {
    match answer {
        Ok(ServerResult::CallToolResult(result)) => tool_output(&result),
        Ok(ServerResult::InputRequiredResult(_)) => {
            Output::error("it wants to ask something, and nobody can be asked here")
        }
        Ok(_) => Output::error("its server answered with something else than a result"),
        Err(why) => Output::error(outlast_kernel::text::plain(&why).into_owned()),
    }
}
