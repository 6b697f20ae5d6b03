//! A sink that writes events as lines, on a thread of its own.
//!
//! Invariants: a line is written whole; reporting an event never waits for the reader; unread events take at most
//! [`WAITING_LIMIT`], beyond which events are dropped and their number is reported.

use super::{Event, EventKind, Level, Sink, clean_option};
use outlast_kernel::Timestamp;
use parking_lot::{Condvar, Mutex};
use serde::Serialize;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

/// Maximum size of the lines that wait to be written, in bytes.
const WAITING_LIMIT: usize = 1024 * 1024;
/// Lines within this interval are written together: waking a thread for each line costs more than the line.
const BATCH_INTERVAL: Duration = Duration::from_millis(20);
/// The time that the end of the program waits for a slow reader.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// A format of lines: appends an event as a line, or nothing.
pub type LineFormat = fn(&Event<'_>, &mut Vec<u8>);

/// A sink that writes a line for each event.
pub struct LineSink {
    shared: Arc<Shared>,
    min_level: Level,
    format: LineFormat,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Signals that there is something to write, or that the sink ends.
    filled: Condvar,
    /// Signals that everything is written.
    emptied: Condvar,
}

#[derive(Default)]
struct State {
    buffered: Vec<u8>,
    dropped_events: u64,
    is_writing: bool,
    is_over: bool,
}

impl LineSink {
    /// Creates a sink that writes events of at least the given level in the given format. One thread uses the writer;
    /// it ends with this sink.
    pub fn new(
        writer: impl Write + Send + 'static,
        min_level: Level,
        format: LineFormat,
    ) -> std::io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let write = {
            let shared = Arc::clone(&shared);
            move || shared.write_all(writer)
        };
        let name = "gateway log".to_owned();
        std::thread::Builder::new().name(name).spawn(write)?;
        Ok(Self {
            shared,
            min_level,
            format,
        })
    }
}

impl Sink for LineSink {
    fn emit(&self, event: &Event<'_>) {
        if event.kind.level() >= Some(self.min_level) {
            self.shared.put(event, self.format);
        }
    }
}

impl Drop for LineSink {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.is_over = true;
        self.shared.filled.notify_one();
        let is_busy = |state: &mut State| !state.buffered.is_empty() || state.is_writing;
        // A reader that has stopped reading must not keep the program from ending.
        let emptied = &self.shared.emptied;
        emptied.wait_while_for(&mut state, is_busy, SHUTDOWN_TIMEOUT);
    }
}

impl Shared {
    fn put(&self, event: &Event<'_>, form: LineFormat) {
        let mut state = self.state.lock();
        if state.buffered.len() >= WAITING_LIMIT || state.is_over {
            state.dropped_events += 1;
            return;
        }
        let was_empty = state.buffered.is_empty();
        if state.dropped_events > 0 {
            let events = std::mem::take(&mut state.dropped_events);
            let dropped = Event {
                at: event.at,
                request: None,
                kind: EventKind::EventsDropped { events },
            };
            form(&dropped, &mut state.buffered);
        }
        form(event, &mut state.buffered);
        let is_filled = was_empty && !state.buffered.is_empty();
        drop(state);
        if is_filled {
            self.filled.notify_one();
        }
    }

    /// Writes lines until the end, or until the writer fails.
    fn write_all(&self, mut writer: impl Write) {
        let mut taken = Vec::new();
        loop {
            let mut state = self.state.lock();
            state.is_writing = false;
            if state.buffered.is_empty() {
                self.emptied.notify_all();
            }
            let has_nothing = |state: &mut State| state.buffered.is_empty() && !state.is_over;
            self.filled.wait_while(&mut state, has_nothing);
            let goes_on = |state: &mut State| !state.is_over;
            self.filled
                .wait_while_for(&mut state, goes_on, BATCH_INTERVAL);
            if state.buffered.is_empty() {
                return;
            }
            taken.clear();
            std::mem::swap(&mut taken, &mut state.buffered);
            state.is_writing = true;
            drop(state);
            let written = writer.write_all(&taken).and_then(|()| writer.flush());
            if written.is_err() {
                self.give_up();
                return;
            }
        }
    }

    /// Discards everything, because nobody reads any more.
    fn give_up(&self) {
        let mut state = self.state.lock();
        state.buffered = Vec::new();
        state.is_writing = false;
        state.is_over = true;
        self.emptied.notify_all();
    }
}

/// One line of JSON. `time` and `level` come first, so that people can read the lines.
#[derive(Serialize)]
struct Line<'a> {
    time: Timestamp,
    level: Option<Level>,
    #[serde(
        serialize_with = "clean_option",
        skip_serializing_if = "Option::is_none"
    )]
    request: Option<&'a str>,
    #[serde(flatten)]
    kind: &'a EventKind<'a>,
    /// The name that the event had before 0.2; written until 0.3.
    #[serde(skip_serializing_if = "Option::is_none")]
    formerly: Option<&'static str>,
}

/// Formats an event as one JSON object per line.
pub fn json(event: &Event<'_>, out: &mut Vec<u8>) {
    let line = Line {
        time: event.at,
        level: event.kind.level(),
        request: event.request.map(|request| request.id),
        kind: &event.kind,
        formerly: match event.kind {
            EventKind::Resumed { .. } => Some("taken_up"),
            EventKind::EventsDropped { .. } => Some("left_out"),
            _ => None,
        },
    };
    let before = out.len();
    match serde_json::to_writer(&mut *out, &line) {
        Ok(()) => out.push(b'\n'),
        Err(_) => out.truncate(before),
    }
}
