//! A server that runs and has introduced itself.
//!
//! Invariant: the process belongs to a task of its own. It is killed when that task is gone, however the connection ends
//! and whoever forgets it.

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

/// How long a server may take to introduce itself; some are fetched from the network first.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long it may take to tell a server that a call is cancelled.
const CANCEL_NOTICE_TIMEOUT: Duration = Duration::from_millis(40);
/// The most tools that a server may have, and the most pages that it may list them on.
const MAX_TOOLS: usize = 512;
const MAX_PAGES: usize = 64;

/// A server that runs.
pub(super) struct Connection {
    service: RunningService<RoleClient, ClientConfig>,
    said: StderrTail,
    stop: CancellationToken,
    keeper: AbortOnDropHandle<()>,
}

/// What became of a call.
pub(super) enum CallOutcome {
    /// The server has answered.
    Answered(Box<Result<ServerResult, String>>),
    /// It was cancelled, and the server was told.
    Cancelled,
    /// The server is gone.
    Lost,
}

impl Connection {
    /// Starts the server and has it introduce itself.
    pub(super) async fn open(server: &ServerConfig, place: &LaunchContext) -> Result<Self, Error> {
        let started = Process::start(server, place);
        let (process, (output, input)) = started.map_err(|error| Error::NotStarted {
            server: server.name.clone(),
            program: server.program.clone(),
            error,
        })?;
        let (said, stop) = (process.said(), CancellationToken::new());
        let keeper = AbortOnDropHandle::new(tokio::spawn(process.keep(stop.clone())));
        let transport = AsyncRwTransport::new_client(output, input);
        let transport = transport.with_max_line_length(usize::MAX);
        let why = match timeout(START_TIMEOUT, serve_client(introduction(), transport)).await {
            Ok(Ok(service)) => {
                return Ok(Self {
                    service,
                    said,
                    stop,
                    keeper,
                });
            }
            Ok(Err(error)) => unheard(&error),
            Err(_) => format!("it has not introduced itself within {START_TIMEOUT:?}"),
        };
        stop.cancel();
        keeper.await.ok();
        Err(broken(server, &why, &said))
    }

    /// Its tools.
    pub(super) async fn tools(&self, server: &ServerConfig) -> Result<Vec<Tool>, Error> {
        let why = match timeout(START_TIMEOUT, self.all_pages()).await {
            Ok(Ok(tools)) => return Ok(tools),
            Ok(Err(why)) => why,
            Err(_) => format!("it has not listed its tools within {START_TIMEOUT:?}"),
        };
        Err(broken(server, &why, &self.said))
    }

    async fn all_pages(&self) -> Result<Vec<Tool>, String> {
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

    /// Makes one request, and waits for its answer or until it is cancelled.
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
            return CallOutcome::Lost;
        };
        tokio::select! {
            answer = &mut sent.rx => match answer {
                Ok(Ok(result)) => CallOutcome::Answered(Box::new(Ok(result))),
                Ok(Err(ServiceError::McpError(error))) => CallOutcome::Answered(Box::new(Err(error.message.into_owned()))),
                Ok(Err(_)) | Err(_) => CallOutcome::Lost,
            },
            () = cancel.cancelled() => {
                // Whether it heard that does not matter: it is stopped next.
                timeout(CANCEL_NOTICE_TIMEOUT, sent.cancel(None)).await.ok();
                CallOutcome::Cancelled
            }
        }
    }

    /// Whether nothing more can be asked of it.
    pub(super) fn is_closed(&self) -> bool {
        self.service.is_transport_closed()
    }

    /// Ends the server: what it said last.
    pub(super) async fn stop(self) -> String {
        // Its input is closed, which is how a server is told to end.
        drop(self.service);
        self.stop.cancel();
        self.keeper.await.ok();
        text::message(&text::plain(&self.said.text()))
    }
}

fn introduction() -> ClientConfig {
    let outlast = Implementation::new("outlast", env!("CARGO_PKG_VERSION"));
    let nothing_more = ClientCapabilities::default();
    ClientConfig::new(nothing_more, outlast)
        .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
}

/// Why a server did not introduce itself. How its end was noticed says nothing to a person.
fn unheard(error: &ClientInitializeError) -> String {
    use ClientInitializeError::{ConnectionClosed, TransportError};
    match error {
        ConnectionClosed(_) | TransportError { .. } => {
            "it ended before it had introduced itself".to_owned()
        }
        error => error.to_string(),
    }
}

fn broken(server: &ServerConfig, why: &str, said: &StderrTail) -> Error {
    let said = said.text();
    let why = match said.as_str() {
        "" => why.to_owned(),
        said => format!("{why}; it said: {said}"),
    };
    Error::Broken {
        server: server.name.clone(),
        why: text::message(&text::plain(&why)),
    }
}
