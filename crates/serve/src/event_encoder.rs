//! How events are said to a client: one line of JSON or several for each, or none.
//!
//! A voice is asked when its line is about to be written, not when the event happens: a client that reads slowly costs
//! no more than the events that wait for it.

use outlast_kernel::event::Event;
use serde::Serialize;
use std::io;

/// How events are said in one protocol.
pub trait EventEncoder: Send {
    /// Says an event.
    fn say(&mut self, event: Event, out: &mut JsonLines);

    /// Everything that followed from what was asked is over: no turn is running, and none follows by itself.
    fn end_run(&mut self, aborted: bool, out: &mut JsonLines);

    /// From how many waiting bytes on pieces of one text are put together. The number of such a piece is that of its last
    /// part.
    fn merges_above(&self) -> usize;
}

/// Lines of JSON that are to be written.
#[derive(Debug, Default)]
pub struct JsonLines {
    bytes: Vec<u8>,
}

impl JsonLines {
    /// One more line.
    pub fn push(&mut self, frame: &impl Serialize) {
        let start = self.bytes.len();
        // Only maps with other keys than texts cannot be written, and there are none.
        if serde_json::to_writer(&mut self.bytes, frame).is_err() {
            self.bytes.truncate(start);
            return;
        }
        self.bytes.push(b'\n');
    }

    /// What is to be written.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Forgets what was written.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(1 << 20);
    }
}

/// How many bytes something has as it is written; nothing that cannot be written has any.
pub(crate) fn written(frame: &impl Serialize) -> usize {
    let mut count = Count(0);
    serde_json::to_writer(&mut count, frame).map_or(0, |()| count.0)
}

/// Counts what is written to it.
struct Count(usize);

impl io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
