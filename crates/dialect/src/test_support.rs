//! Reads streams to their end, for tests.

use crate::{Delta, Dialect, StreamActivity, sse};
use outlast_kernel::Timestamp;
use outlast_kernel::event::ToolCall;
use outlast_kernel::failure::Failure;

pub(crate) const NOW: Timestamp = Timestamp::from_millis(1);

/// Returns the deltas of a stream, and its failure, if any. A stream that ends too early adds nothing at its end.
pub(crate) fn read_all(dialect: Dialect, wire: &str) -> (Vec<Delta>, Option<Failure>) {
    let mut decoder = sse::Decoder::new(1 << 20);
    let mut reader = dialect.decoder("p");
    let mut deltas = Vec::new();
    decoder.push(wire.as_bytes());
    while let Some(event) = decoder.next_event().unwrap() {
        if let Err(failure) = reader.decode(&event, NOW, &mut deltas) {
            return (deltas, Some(*failure));
        }
    }
    deltas.extend(reader.finish());
    (deltas, None)
}

/// Returns the activity of each of these frames.
pub(crate) fn signs(dialect: Dialect, data: &[&str]) -> Vec<StreamActivity> {
    let mut reader = dialect.decoder("p");
    let sign = |data: &&str| {
        let (name, data) = (String::new(), (*data).to_owned());
        let event = sse::Event { name, data };
        reader.decode(&event, NOW, &mut Vec::new()).unwrap()
    };
    data.iter().map(sign).collect()
}

/// Returns the failure of one event with that name.
pub(crate) fn read_named(dialect: Dialect, name: &str, data: &str) -> Option<Failure> {
    read_all(dialect, &format!("event: {name}\ndata: {data}\n\n")).1
}

/// Builds a stream of these data lines.
pub(crate) fn wire(data: &[&str]) -> String {
    data.iter()
        .map(|data| format!("data: {data}\n\n"))
        .collect()
}

pub(crate) fn text(text: &str) -> Delta {
    Delta::Text(text.to_owned())
}

pub(crate) fn cut(name: &str) -> Delta {
    let name = name.to_owned();
    Delta::IncompleteToolCall { name }
}

pub(crate) fn call(id: &str, name: &str, arguments: &str) -> Delta {
    Delta::ToolCall(ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
    })
}
