//! The accept loop: takes connections and their requests, and lets them end.

use crate::auth::{self, AccessDenied, Exposure};
use crate::call::Call;
use crate::control;
use crate::inbound_request::InboundRequest;
use crate::observe::log::EventKind;
use crate::observe::metrics::GaugeGuard;
use crate::problem::Problem;
use crate::server::request_reader::{self, ReceivedRequest, invalid};
use crate::server::response_writer::ResponseWriter;
use crate::server::socket::Socket;
use crate::shared::Shared;
use crate::upstreams::Upstreams;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

/// The wait before the next accept when the machine has no room for a connection.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Accepts connections until the gateway stops; responses in progress then have some time to end.
pub(crate) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let places = Arc::new(Semaphore::new(shared.limits.max_connections));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = shared.stopping.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        while connections.try_join_next().is_some() {}
        let Ok((stream, _)) = accepted else {
            // The machine has no room for it; a moment later it may.
            tokio::time::sleep(ACCEPT_BACKOFF).await;
            continue;
        };
        match Arc::clone(&places).try_acquire_owned() {
            Ok(place) => {
                drop(connections.spawn(serve_connection(stream, Arc::clone(&shared), place)))
            }
            Err(_) => drop(connections.spawn(reject_connection(stream))),
        }
    }
    drop(listener);
    drain(connections, &shared).await;
}

async fn drain(mut connections: JoinSet<()>, shared: &Shared) {
    shared.emit(EventKind::Drain {
        in_flight: shared.metrics.counters().in_flight,
        held: u64::try_from(shared.holds.waiting_count()).unwrap_or(u64::MAX),
    });
    let all_ended = async { while connections.join_next().await.is_some() {} };
    tokio::select! {
        () = all_ended => {}
        () = shared.clock.sleep_until(shared.now() + shared.limits.drain_timeout) => {}
    }
    connections.shutdown().await;
}

/// Rejects a connection because the limit of connections is reached.
async fn reject_connection(stream: TcpStream) {
    let message = "too many connections; raise gateway.max_connections and the limit of open files, or come back later";
    let body = auth::error_body("overloaded_error", message);
    let (parts, ()) = http::Request::new(()).into_parts();
    let mut reply = ResponseWriter::new(Socket::new(stream), &parts);
    // Its request is not read.
    reply.mark_truncated();
    let headers = HeaderMap::from_iter([
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        ),
        (header::RETRY_AFTER, HeaderValue::from(5)),
    ]);
    let status = StatusCode::SERVICE_UNAVAILABLE;
    // A client that is gone misses nothing.
    reply.whole(status, &headers, body.into()).await.ok();
}

/// Answers the requests of one connection, one after the other.
async fn serve_connection(stream: TcpStream, shared: Arc<Shared>, _place: OwnedSemaphorePermit) {
    let _counted = GaugeGuard::new(&shared.metrics.connections, 1);
    let mut socket = Socket::new(stream);
    loop {
        tokio::select! {
            biased;
            () = socket.readable() => {}
            () = shared.stopping.cancelled() => return,
            () = tokio::time::sleep(shared.limits.idle_timeout) => return,
        }
        let received = Box::pin(request_reader::read_request(socket, &shared)).await;
        let Some((received, rest)) = received else {
            return;
        };
        // The state that is needed only until a request is parsed is dropped: the request may be held for long.
        let answered = match Box::pin(accept_request(&shared, received, rest)).await {
            Ok(call) => {
                let _counted = GaugeGuard::new(&shared.metrics.in_flight, 1);
                Box::pin(call.run()).await
            }
            Err(answered) => answered,
        };
        match answered {
            Some(next) => socket = next,
            None => return,
        }
    }
}

/// Returns the call to a provider. Other requests are answered at once; then the error is the connection, if it can be
/// used again.
async fn accept_request(
    shared: &Arc<Shared>,
    received: ReceivedRequest,
    socket: Socket,
) -> Result<Box<Call>, Option<Socket>> {
    let ReceivedRequest { parts, body } = received;
    let path = parts.uri.path();
    let mut reply = ResponseWriter::new(socket, &parts);
    if shared.stopping.is_cancelled() {
        reply.disable_keep_alive();
    }
    let body = match body {
        Ok(body) => body,
        Err(problem) => {
            reply.mark_truncated();
            return Err(respond_problem(shared, reply, path, problem).await);
        }
    };
    if let Err(problem) = check(&parts) {
        return Err(respond_problem(shared, reply, path, problem).await);
    }
    if control::is_control_path(path) {
        let Ok(bytes) = body.bytes().await else {
            return Err(None);
        };
        let answered = control::respond(&**shared, &parts, &bytes);
        return Err(send(reply, answered).await);
    }
    let upstreams = shared.upstreams();
    let asked = match InboundRequest::new(parts, body, &upstreams, shared.now()).await {
        Ok(asked) => match &shared.access.client_keys {
            // The gateway's own key is not for the provider.
            Some(keys) if shared.requires_client_key(&upstreams) => {
                asked.without_gateway_keys(keys)
            }
            _ => asked,
        },
        Err(problem) => {
            return Err(respond_problem(shared, reply, "", invalid(problem.to_string())).await);
        }
    };
    Ok(Call::new(Arc::clone(shared), upstreams, asked, reply))
}

impl Shared {
    /// Checks whether a request is allowed.
    pub(crate) fn check_access(&self, parts: &http::request::Parts) -> Result<(), AccessDenied> {
        match auth::check(&parts.headers, &parts.uri, &self.access.allowed_names) {
            // A link on another site's page may lead to the gateway's page.
            Err(AccessDenied::CrossSite)
                if control::is_page(parts) && auth::is_navigation(&parts.headers) => {}
            checked => checked?,
        }
        if control::is_control_path(parts.uri.path())
            || !self.requires_client_key(&self.upstreams())
        {
            return Ok(());
        }
        match &self.access.client_keys {
            Some(keys) => keys.check(&parts.headers),
            None => Err(AccessDenied::ClientKeyRequired),
        }
    }

    /// Returns whether clients must send a client key: if other machines can connect, and stored accounts are used.
    fn requires_client_key(&self, upstreams: &Upstreams) -> bool {
        let both = [&upstreams.anthropic, &upstreams.openai];
        let uses_ours = both.iter().any(|upstream| upstream.accounts.is_some());
        uses_ours && self.access.exposure == Exposure::Network
    }
}

/// Returns whether a path has a segment that means the parent folder, in any spelling.
fn has_parent_segment(path: &str) -> bool {
    let spellings = ["..", ".%2e", "%2e.", "%2e%2e"];
    let mut segments = path.split(['/', '\\']);
    segments.any(|segment| {
        let is = |spelling: &&str| segment.eq_ignore_ascii_case(spelling);
        spellings.iter().any(is)
    })
}

fn is_websocket_upgrade(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(header::UPGRADE);
    upgrade.is_some_and(|upgrade| upgrade.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Refuses requests that are invalid wherever they go.
fn check(parts: &http::request::Parts) -> Result<(), Problem> {
    if is_websocket_upgrade(&parts.headers) {
        let message = "this gateway speaks HTTP only; send the request as a POST";
        let status = StatusCode::UPGRADE_REQUIRED;
        return Err(Problem::new(status, "upgrade_required", message));
    }
    if parts.method == Method::CONNECT {
        let message = "this is a gateway to providers, not a proxy; set it as the base URL";
        let status = StatusCode::METHOD_NOT_ALLOWED;
        return Err(Problem::new(status, "method_not_allowed", message));
    }
    if has_parent_segment(parts.uri.path()) {
        let message = "a path may not climb with `..`: it would leave the provider's address";
        return Err(invalid(message));
    }
    Ok(())
}

/// Responds with the reason for which a request for that path is refused.
async fn respond_problem(
    shared: &Shared,
    reply: ResponseWriter,
    path: &str,
    problem: Problem,
) -> Option<Socket> {
    shared.emit(EventKind::Refused {
        status: problem.status.as_u16(),
        kind: problem.code,
        message: &problem.detail,
    });
    send(reply, control::error_response(path, &problem)).await
}

async fn send(reply: ResponseWriter, answered: control::Response) -> Option<Socket> {
    let (parts, body) = answered.into_parts();
    reply.whole(parts.status, &parts.headers, body).await.ok()?
}
