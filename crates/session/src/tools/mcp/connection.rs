//! A connection to a running server that has completed its initialization.
//!
//! Invariant: the process belongs to a task of its own. It is killed when that task is gone, however the connection ends
//! and whichever caller drops it.

use super::process::{Process, StderrTail};
use super::server_handle::LaunchContext;
use super::{Error, ServerConfig};
use outlast_engine::CancellationToken;
use outlast_kernel::text;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientCapabilities, ClientConfig, ClientRequest,
    Implementation, PaginatedRequestParams, ProtocolVersion, ServerResult, Tool,
};
use rmcp::service::{ClientInitializeError, PeerRequestOptions, RunningService};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{RoleClient, ServiceError, serve_client};
use std::time::Duration;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

/// Time for a server to initialize; some are fetched from the network first.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for telling a server that a call is cancelled.
const CANCEL_NOTICE_TIMEOUT: Duration = Duration::from_millis(40);
/// Maximum number of tools of a server, and of pages that list them.
const MAX_TOOLS: usize = 512;
const MAX_PAGES: usize = 64;

/// A running server.
pub(super) struct Connection {
    service: RunningService<RoleClient, ClientConfig>,
    stderr_tail: StderrTail,
    stop: CancellationToken,
    supervisor: AbortOnDropHandle<()>,
}

/// The outcome of a call.
pub(super) enum CallOutcome {
    /// The server has responded.
    Responded(Box<Result<ServerResult, String>>),
    /// The call was cancelled, and the server was told.
    Cancelled,
    /// The server is gone.
    Disconnected,
}

impl Connection {
    /// Starts the server and initializes the connection.
    pub(super) async fn open(server: &ServerConfig, place: &LaunchContext) -> Result<Self, Error> {
        let started = Process::start(server, place);
        let (process, (output, input)) = started.map_err(|error| Error::NotStarted {
            server: server.name.clone(),
            program: server.program.clone(),
            error,
        })?;
        let (stderr_tail, stop) = (process.stderr_tail(), CancellationToken::new());
        let supervisor = AbortOnDropHandle::new(tokio::spawn(process.supervise(stop.clone())));
        let transport = AsyncRwTransport::new_client(output, input);
        let transport = transport.with_max_line_length(usize::MAX);
        let why = match timeout(START_TIMEOUT, serve_client(client_config(), transport)).await {
            Ok(Ok(service)) => {
                return Ok(Self {
                    service,
                    stderr_tail,
                    stop,
                    supervisor,
                });
            }
            Ok(Err(error)) => describe_start_error(&error),
            Err(_) => format!("it has not introduced itself within {START_TIMEOUT:?}"),
        };
        stop.cancel();
        supervisor.await.ok();
        Err(broken_server_error(server, &why, &stderr_tail))
    }

    /// Lists the server's tools.
    pub(super) async fn tools(&self, server: &ServerConfig) -> Result<Vec<Tool>, Error> {
        let why = match timeout(START_TIMEOUT, self.list_all_tools()).await {
            Ok(Ok(tools)) => return Ok(tools),
            Ok(Err(why)) => why,
            Err(_) => format!("it has not listed its tools within {START_TIMEOUT:?}"),
        };
        Err(broken_server_error(server, &why, &self.stderr_tail))
    }

    async fn list_all_tools(&self) -> Result<Vec<Tool>, String> {
        let mut tools = Vec::new();
        let mut page = PaginatedRequestParams::default();
        for _ in 0..MAX_PAGES {
            let listed = self.service.list_tools(Some(page)).await;
            let listed = listed.map_err(|error| error.to_string())?;
            tools.extend(listed.tools);
            if tools.len() > MAX_TOOLS {
                break;
            }
            match listed.next_cursor {
                None => return Ok(tools),
                next => page = PaginatedRequestParams::default().with_cursor(next),
            }
        }
        Err(format!(
            "it has more than {MAX_TOOLS} tools, or lists them without end"
        ))
    }

    /// Makes one request and waits for its response, or until it is cancelled.
    pub(super) async fn call(
        &self,
        call: CallToolRequestParams,
        cancel: &CancellationToken,
    ) -> CallOutcome {
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(call));
        let options = PeerRequestOptions::no_options();
        let sent = self
            .service
            .send_cancellable_request(request, options)
            .await;
        let Ok(mut sent) = sent else {
            return CallOutcome::Disconnected;
        };
        tokio::select! {
            answer = &mut sent.rx => match answer {
                Ok(Ok(result)) => CallOutcome::Responded(Box::new(Ok(result))),
                Ok(Err(ServiceError::McpError(error))) => CallOutcome::Responded(Box::new(Err(error.message.into_owned()))),
                Ok(Err(_)) | Err(_) => CallOutcome::Disconnected,
            },
            () = cancel.cancelled() => {
                // The result does not matter: the server is stopped next.
                timeout(CANCEL_NOTICE_TIMEOUT, sent.cancel(None)).await.ok();
                CallOutcome::Cancelled
            }
        }
    }

    /// Returns whether the connection is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.service.is_transport_closed()
    }

    /// Stops the server and returns its last output.
    pub(super) async fn stop(self) -> String {
        // Closing its input is how a server is told to end.
        drop(self.service);
        self.stop.cancel();
        self.supervisor.await.ok();
        text::sanitized_message(&text::plain(&self.stderr_tail.text()))
    }
}

fn client_config() -> ClientConfig {
    let outlast = Implementation::new("outlast", env!("CARGO_PKG_VERSION"));
    let nothing_more = ClientCapabilities::default();
    ClientConfig::new(nothing_more, outlast)
        .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
}

/// Explains why a server did not initialize. The way its end was noticed means nothing to a person.
fn describe_start_error(error: &ClientInitializeError) -> String {
    use ClientInitializeError::{ConnectionClosed, TransportError};
    match error {
        ConnectionClosed(_) | TransportError { .. } => {
            "it ended before it had introduced itself".to_owned()
        }
        error => error.to_string(),
    }
}

fn broken_server_error(server: &ServerConfig, why: &str, said: &StderrTail) -> Error {
    let said = said.text();
    let why = match said.as_str() {
        "" => why.to_owned(),
        said => format!("{why}; it said: {said}"),
    };
    Error::Broken {
        server: server.name.clone(),
        why: text::sanitized_message(&text::plain(&why)),
    }
}
