//! A WebSocket client: requests with ids, replies, and events.

use super::Serve;
use crate::support::HANG_TIMEOUT;
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::Instant;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue, Response};
use tokio_tungstenite::tungstenite::{self, Message, WebSocket};

/// The server's response to a WebSocket handshake.
type HandshakeResponse = Response<Option<Vec<u8>>>;

/// A client over a WebSocket.
pub(crate) struct Socket {
    socket: WebSocket<TcpStream>,
    ids: u64,
    /// Frames that arrived while a reply was awaited.
    came: Vec<Value>,
}

impl Socket {
    pub(crate) fn open(server: &Serve) -> Self {
        match Self::try_open(server, &[]) {
            Ok((socket, _)) => socket,
            Err(refused) => panic!("{refused:?}"),
        }
    }

    /// Opens a socket with these headers; the error is the response of a server that refuses it.
    pub(crate) fn try_open(
        server: &Serve,
        headers: &[(&str, &str)],
    ) -> Result<(Self, HandshakeResponse), Box<HandshakeResponse>> {
        let mut request = format!("ws://{}/api/ws", server.address)
            .into_client_request()
            .unwrap();
        for (name, value) in headers {
            let name: HeaderName = name.parse().unwrap();
            let value: HeaderValue = value.parse().unwrap();
            request.headers_mut().insert(name, value);
        }
        let stream = TcpStream::connect(&server.address).unwrap();
        stream.set_read_timeout(Some(HANG_TIMEOUT)).unwrap();
        match tungstenite::client(request, stream) {
            Ok((socket, answer)) => {
                let client = Self {
                    socket,
                    ids: 0,
                    came: Vec::new(),
                };
                Ok((client, answer))
            }
            Err(tungstenite::HandshakeError::Failure(tungstenite::Error::Http(answer))) => {
                Err(answer)
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Sends a message unchanged.
    pub(crate) fn send(&mut self, message: Message) {
        self.socket.send(message).unwrap();
    }

    /// Returns the next JSON frame; `None` when the socket was closed.
    pub(crate) fn next(&mut self) -> Option<Value> {
        let until = Instant::now() + HANG_TIMEOUT;
        // Pings arrive as well, so the socket is never silent for that long.
        while Instant::now() < until {
            match self.socket.read() {
                Ok(Message::Text(text)) => return Some(serde_json::from_str(&text).unwrap()),
                Ok(Message::Close(_)) => return None,
                Ok(_) => {}
                Err(tungstenite::Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
        panic!("nothing came after {:?}", self.came);
    }

    /// Reads to the end and returns the close code.
    pub(crate) fn close_code(&mut self) -> Option<u16> {
        loop {
            if let Message::Close(frame) = self.socket.read().ok()? {
                return frame.map(|frame| frame.code.into());
            }
        }
    }

    /// Sends a request and waits for its reply; keeps the frames in between.
    pub(crate) fn ask(&mut self, kind: &str, id: &str, more: Value) -> Value {
        self.ids += 1;
        let mut request = more;
        request["type"] = json!(kind);
        request["id"] = json!(self.ids);
        request["conversationId"] = json!(id);
        self.send(Message::text(request.to_string()));
        self.reply(&json!(self.ids))
    }

    /// Waits for the reply with the given id.
    pub(crate) fn reply(&mut self, id: &Value) -> Value {
        loop {
            let frame = self.next().unwrap();
            if frame["type"] == "reply" && frame["id"] == *id {
                return frame;
            }
            self.came.push(frame);
        }
    }

    /// Sends a request that must succeed, and returns the data of its reply.
    pub(crate) fn done(&mut self, kind: &str, id: &str, more: Value) -> Value {
        let mut reply = self.ask(kind, id, more);
        let (id, data) = (reply["id"].take(), reply["data"].take());
        let expected = json!({ "type": "reply", "id": null, "ok": true, "data": null });
        assert_eq!(reply, expected, "{kind} {id}");
        data
    }

    /// Returns the next frame that is not a reply.
    pub(crate) fn frame(&mut self) -> Value {
        if self.came.is_empty() {
            return self.next().unwrap();
        }
        self.came.remove(0)
    }

    /// Returns all events up to the first of the given type.
    pub(crate) fn until(&mut self, kind: &str) -> Vec<Value> {
        let mut came = Vec::new();
        loop {
            let frame = self.frame();
            let is_last = frame["event"]["type"] == kind;
            came.push(frame);
            if is_last {
                return came;
            }
        }
    }
}
