//! An HTTP/1.1 client that shows every detail: one request for each connection, and the response as
//! it arrives.

use crate::support::HANG_TIMEOUT;
use serde_json::Value;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// A request that is being built.
pub(crate) struct RequestBuilder {
    address: String,
    method: &'static str,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    says_length: bool,
}

impl RequestBuilder {
    pub(crate) fn new(address: &str, method: &'static str, path: &str) -> Self {
        Self {
            address: address.to_owned(),
            method,
            path: path.to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
            says_length: true,
        }
    }

    /// Omits the content length, so that the body is sent in chunks or by its end.
    pub(crate) fn without_length(mut self) -> Self {
        self.says_length = false;
        self
    }

    /// Adds a header, or replaces `Host`.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn body(mut self, body: &[u8]) -> Self {
        self.body = body.to_vec();
        self
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        let body = body.to_string();
        self.with("content-type", "application/json")
            .body(body.as_bytes())
    }

    /// Builds the head of the request.
    fn head(&self) -> String {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        let names_host = self.headers.iter().any(|(name, _)| name == "host");
        if !names_host {
            head += &format!("host: {}\r\n", self.address);
        }
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        if self.says_length {
            head += &format!("content-length: {}\r\n", self.body.len());
        }
        head + "connection: close\r\n\r\n"
    }

    /// Sends the request and reads the head of the response.
    pub(crate) fn send(self) -> HttpResponse {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        socket.set_read_timeout(Some(HANG_TIMEOUT)).unwrap();
        socket.write_all(self.head().as_bytes()).unwrap();
        // A server that refuses a long body does not read it.
        socket.write_all(&self.body).ok();
        HttpResponse::read(BufReader::new(socket))
    }
}

/// A response whose head was read.
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    body: BufReader<Box<dyn Read>>,
}

impl HttpResponse {
    fn read(mut socket: BufReader<TcpStream>) -> Self {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            socket.read_line(&mut line).unwrap();
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let status = lines
            .first()
            .and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no answer: {lines:?}"));
        let headers = lines.iter().filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
        let headers: Vec<(String, String)> = headers.collect();
        let find = |name: &str| headers.iter().find(|(other, _)| other == name);
        let length = find("content-length").and_then(|(_, length)| length.parse().ok());
        let body: Box<dyn Read> = match (length, find("transfer-encoding")) {
            (Some(length), _) => Box::new(socket.take(length)),
            (None, Some(_)) => Box::new(Chunked { socket, left: 0 }),
            (None, None) => Box::new(socket),
        };
        Self {
            status,
            headers,
            body: BufReader::new(body),
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(mut self) -> String {
        let mut text = String::new();
        self.body.read_to_string(&mut text).unwrap();
        text
    }

    pub(crate) fn value(self) -> Value {
        let text = self.text();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Returns the body of a response that must be successful.
    pub(crate) fn well(self) -> Value {
        let (status, value) = (self.status, self.value());
        assert!((200..300).contains(&status), "{status}: {value}");
        value
    }

    /// Returns the status, code and detail of a response that must be a problem document.
    pub(crate) fn problem(self) -> (u16, String, String) {
        let status = self.status;
        let kind = self.header("content-type").map(str::to_owned);
        assert_eq!(
            kind.as_deref(),
            Some("application/problem+json"),
            "{status}: {}",
            self.text()
        );
        let problem = self.value();
        let fields: Vec<&String> = problem.as_object().unwrap().keys().collect();
        assert_eq!(fields.len(), 5, "{problem}");
        assert_eq!(problem["type"], "about:blank");
        assert_eq!(problem["status"], status);
        assert!(!problem["title"].as_str().unwrap().is_empty());
        let text = |name: &str| problem[name].as_str().unwrap().to_owned();
        (status, text("code"), text("detail"))
    }

    pub(crate) fn lines(self) -> Lines {
        let status = self.status;
        let kind = self.header("content-type").map(str::to_owned);
        if (status, kind.as_deref()) != (200, Some("application/x-ndjson")) {
            panic!("no lines: {status} {kind:?} {}", self.text());
        }
        Lines(self.body)
    }

    pub(crate) fn messages(self) -> Messages {
        assert_eq!(self.status, 200);
        Messages(self.body)
    }
}

/// A chunked body.
struct Chunked {
    socket: BufReader<TcpStream>,
    /// Number of bytes left of the current chunk.
    left: u64,
}

impl Read for Chunked {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            let mut line = String::new();
            self.socket.read_line(&mut line)?;
            let length = u64::from_str_radix(line.trim_end(), 16);
            // Without a last chunk the body was cut off.
            self.left = length.map_err(|_| io::Error::from(io::ErrorKind::UnexpectedEof))?;
            if self.left == 0 {
                return Ok(0);
            }
        }
        let count = (&mut self.socket).take(self.left).read(bytes)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= count as u64;
        if self.left == 0 {
            self.socket.read_line(&mut String::new())?;
        }
        Ok(count)
    }
}

/// Lines of JSON, as they arrive.
pub(crate) struct Lines(BufReader<Box<dyn Read>>);

impl Lines {
    /// Returns the next line; `None` at the end, an error if the stream was cut off.
    pub(crate) fn try_next(&mut self) -> io::Result<Option<Value>> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let value = serde_json::from_str(&line);
        Ok(Some(
            value.unwrap_or_else(|error| panic!("{error}: {line}")),
        ))
    }

    /// Returns all lines up to the first of the given type.
    pub(crate) fn until(&mut self, kind: &str) -> Vec<Value> {
        let mut came = Vec::new();
        loop {
            let next = self.try_next().unwrap();
            let next = next.unwrap_or_else(|| panic!("no {kind} after {came:?}"));
            let is_last = next["type"] == kind || next["event"]["type"] == kind;
            came.push(next);
            if is_last {
                return came;
            }
        }
    }

    /// Returns all lines up to the end, which must be complete.
    pub(crate) fn all(mut self) -> Vec<Value> {
        std::iter::from_fn(|| self.try_next().unwrap()).collect()
    }
}

/// A server-sent event.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Message {
    pub(crate) id: String,
    /// The event name; empty for an event of the turn.
    pub(crate) event: String,
    pub(crate) data: Value,
}

/// Server-sent events, as they arrive.
pub(crate) struct Messages(BufReader<Box<dyn Read>>);

impl Messages {
    /// Returns the next event; `None` when the stream has ended for any reason.
    pub(crate) fn next(&mut self) -> Option<Message> {
        let (mut id, mut event, mut data) = (String::new(), String::new(), String::new());
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).ok()? == 0 {
                return None;
            }
            match line.trim_end_matches('\n').split_once(": ") {
                Some(("id", value)) => value.clone_into(&mut id),
                Some(("event", value)) => value.clone_into(&mut event),
                Some(("data", value)) => data.push_str(value),
                // A keep-alive comment.
                Some(("", _)) => {}
                None if line == "\n" && data.is_empty() => {}
                None if line == "\n" => break,
                other => panic!("{other:?} is no part of an event: {line:?}"),
            }
        }
        let data = serde_json::from_str(&data).unwrap();
        Some(Message { id, event, data })
    }

    /// Returns all events up to the first with the given name.
    pub(crate) fn until(&mut self, kind: &str) -> Vec<Message> {
        let mut came = Vec::new();
        loop {
            let next = self.next();
            let next = next.unwrap_or_else(|| panic!("no {kind} after {came:?}"));
            let is_last = next.data["type"] == kind;
            came.push(next);
            if is_last {
                return came;
            }
        }
    }
}
