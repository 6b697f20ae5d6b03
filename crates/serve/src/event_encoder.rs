//! The interface between the outbox and a protocol: encodes each event as lines of JSON, one, several or none.
//!
//! An event is encoded when it is about to be written, not when it happens: a slow client costs no more than the events
//! that wait for it.

use outlast_kernel::event::Event;
use serde::Serialize;

/// Encodes events in one protocol.
pub trait EventEncoder: Send {
    /// Encodes an event.
    fn encode(&mut self, event: Event, out: &mut JsonLines);

    /// Encodes the end of a run: no turn is running, and none follows by itself.
    fn encode_run_end(&mut self, aborted: bool, out: &mut JsonLines);

    /// Returns the number of waiting bytes above which deltas of one text are merged. A merged delta has the sequence
    /// number of its last part.
    fn merge_threshold(&self) -> usize;
}

/// Lines of JSON to write.
#[derive(Debug, Default)]
pub struct JsonLines {
    bytes: Vec<u8>,
}

impl JsonLines {
    /// Appends a line.
    pub fn push(&mut self, frame: &impl Serialize) {
        let start = self.bytes.len();
        // Only maps with keys other than strings cannot be serialized, and there are none.
        if serde_json::to_writer(&mut self.bytes, frame).is_err() {
            self.bytes.truncate(start);
            return;
        }
        self.bytes.push(b'\n');
    }

    /// Returns the bytes to write.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Drops the written bytes.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(1 << 20);
    }
}
