//! Server-sent events: bytes in through `push`, events out through `next_event`.
//!
//! Any chunking gives the same events; lines may end in CR, LF or CRLF; a byte order mark is skipped.
//! Invariants: work is linear in the input; memory is bounded by `max_event_bytes`, and a longer event is an error,
//! never a truncation.
//! Not here: what an event means (see `anthropic`) and how long to wait for one (see the engine).

use memchr::memchr2;

/// One event: its type (empty when none was given) and its data lines, joined by newlines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The `event:` field.
    pub name: String,
    /// The `data:` fields.
    pub data: String,
}

impl Event {
    /// The event as it is sent.
    pub fn to_wire(&self) -> String {
        let mut wire = String::with_capacity(self.name.len() + self.data.len() + 24);
        if !self.name.is_empty() {
            wire.extend(["event: ", &self.name, "\n"]);
        }
        for line in self.data.split('\n') {
            wire.extend(["data: ", line, "\n"]);
        }
        wire.push('\n');
        wire
    }
}

/// An event that is longer than the decoder was told to accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a server-sent event is longer than {limit} bytes")]
pub struct TooLong {
    limit: usize,
}

/// The decoder of one stream.
///
/// ```
/// use outlast_dialect::sse::Decoder;
///
/// let mut decoder = Decoder::new(1024);
/// decoder.push(b"event: ping\nda");
/// assert_eq!(decoder.next_event()?, None);
/// decoder.push(b"ta: {}\n\n");
/// assert_eq!(decoder.next_event()?.unwrap().name, "ping");
/// # Ok::<(), outlast_dialect::sse::TooLong>(())
/// ```
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    buffer: Vec<u8>,
    /// Where the line that is being read begins, and up to where it has been searched for its end.
    line_start: usize,
    searched: usize,
    at_first_line: bool,
    after_cr: bool,
    name: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
}

impl Decoder {
    /// A decoder that accepts events of up to `max_event_bytes`.
    pub fn new(max_event_bytes: usize) -> Self {
        Self {
            limit: max_event_bytes,
            buffer: Vec::new(),
            line_start: 0,
            searched: 0,
            at_first_line: true,
            after_cr: false,
            name: Vec::new(),
            data: Vec::new(),
            has_data: false,
        }
    }

    /// Takes in what was received.
    pub fn push(&mut self, bytes: &[u8]) {
        // What was read is dropped here, once per chunk, so that the cost stays linear.
        self.buffer.drain(..self.line_start);
        self.searched -= self.line_start;
        self.line_start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole event, if there is one.
    pub fn next_event(&mut self) -> Result<Option<Event>, TooLong> {
        while let Some(line) = self.next_line() {
            let (start, end) = line;
            if start == end {
                if let Some(event) = self.dispatch() {
                    return Ok(Some(event));
                }
            } else {
                self.field(start, end);
            }
            self.check_size(end - start)?;
        }
        self.check_size(self.buffer.len() - self.line_start)?;
        Ok(None)
    }

    /// The bounds of the next whole line within the buffer.
    fn next_line(&mut self) -> Option<(usize, usize)> {
        if self.after_cr && self.line_start < self.buffer.len() {
            self.after_cr = false;
            if self.buffer[self.line_start] == b'\n' {
                self.line_start += 1;
                self.searched = self.searched.max(self.line_start);
            }
        }
        let Some(offset) = memchr2(b'\n', b'\r', &self.buffer[self.searched..]) else {
            self.searched = self.buffer.len();
            return None;
        };
        let end = self.searched + offset;
        let mut start = self.line_start;
        self.after_cr = self.buffer[end] == b'\r';
        self.line_start = end + 1;
        self.searched = end + 1;
        if std::mem::take(&mut self.at_first_line)
            && self.buffer[start..end].starts_with(b"\xef\xbb\xbf")
        {
            start += 3;
        }
        Some((start, end))
    }

    fn field(&mut self, start: usize, end: usize) {
        let line = &self.buffer[start..end];
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"event" => {
                self.name.clear();
                self.name.extend_from_slice(value);
            }
            b"data" => {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
                self.has_data = true;
            }
            // Comments, ids and retry times are of no use here.
            _ => {}
        }
    }

    fn dispatch(&mut self) -> Option<Event> {
        let name = std::mem::take(&mut self.name);
        let data = std::mem::take(&mut self.data);
        std::mem::take(&mut self.has_data).then(|| Event {
            name: text(name),
            data: text(data),
        })
    }

    fn check_size(&self, unread: usize) -> Result<(), TooLong> {
        if self.name.len() + self.data.len() + unread > self.limit {
            Err(TooLong { limit: self.limit })
        } else {
            Ok(())
        }
    }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Events = Vec<(String, String)>;

    fn decode(chunks: &[&[u8]]) -> Events {
        let mut decoder = Decoder::new(1 << 20);
        let mut events = Vec::new();
        for chunk in chunks {
            decoder.push(chunk);
            while let Some(event) = decoder.next_event().unwrap() {
                events.push((event.name, event.data));
            }
        }
        events
    }

    fn event(name: &str, data: &str) -> (String, String) {
        (name.to_owned(), data.to_owned())
    }

    #[test]
    fn the_forms_of_the_standard_are_read() {
        let table: [(&[u8], Events); 9] = [
            (b"data: a\n\n", vec![event("", "a")]),
            (b"data:a\r\n\r\n", vec![event("", "a")]),
            (b"event: x\rdata: a\r\r", vec![event("x", "a")]),
            (b"data: a\ndata:\ndata: b\n\n", vec![event("", "a\n\nb")]),
            (b"\xef\xbb\xbfdata: a\n\n", vec![event("", "a")]),
            (b": ping\n\ndata: a\n\n", vec![event("", "a")]),
            (b"event: lonely\n\ndata: a\n\n", vec![event("", "a")]),
            (b"data\n\n", vec![event("", "")]),
            (b"data: cut off", vec![]),
        ];
        for (bytes, events) in table {
            assert_eq!(
                decode(&[bytes]),
                events,
                "{:?}",
                String::from_utf8_lossy(bytes)
            );
        }
    }

    #[test]
    fn characters_survive_a_cut_in_their_middle() {
        let bytes = "data: é漢🦀\n\n".as_bytes();
        for cut in 0..=bytes.len() {
            assert_eq!(
                decode(&[&bytes[..cut], &bytes[cut..]]),
                [event("", "é漢🦀")]
            );
        }
    }

    #[test]
    fn too_long_an_event_is_an_error_with_or_without_an_end() {
        let mut decoder = Decoder::new(100);
        decoder.push(&[b'x'; 101]);
        assert_eq!(decoder.next_event(), Err(TooLong { limit: 100 }));

        let mut decoder = Decoder::new(100);
        decoder.push("data: 0123456789\n".repeat(12).as_bytes());
        assert_eq!(decoder.next_event(), Err(TooLong { limit: 100 }));
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_events(
            pieces in prop::collection::vec(prop::sample::select(vec![
                "data: a", "data:", "event: e", ":c", "\n", "\r", "\r\n", "\n\n", "é", "id: 1", "\u{feff}", "retry: 5",
            ]), 0..40),
            size in 1_usize..9,
        ) {
            let bytes = pieces.concat().into_bytes();
            let whole = decode(&[&bytes]);
            let chunks: Vec<&[u8]> = bytes.chunks(size).collect();
            prop_assert_eq!(decode(&chunks), whole);
        }

        #[test]
        fn garbage_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..2000), size in 1_usize..64) {
            let mut decoder = Decoder::new(200);
            for chunk in bytes.chunks(size) {
                decoder.push(chunk);
                while let Ok(Some(_)) = decoder.next_event() {}
            }
        }
    }
}
