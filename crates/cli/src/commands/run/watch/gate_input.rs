//! Reads a person's answers to open gates from the terminal.

use outlast_pipeline::entry::Entry;
use outlast_pipeline::run_store::mailbox::RunRequest;
use parking_lot::Mutex;
use std::io::BufRead;
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedSender;

/// An open gate: its step, and the keys that can be typed.
type OpenGate = (String, Vec<String>);

/// Sends lines from stdin to the gate that has waited longest.
pub(super) struct GateInput {
    requests: UnboundedSender<RunRequest>,
    open_gates: Arc<Mutex<Vec<OpenGate>>>,
    /// Messages for the person.
    messages: Arc<Mutex<Vec<String>>>,
    is_reading: bool,
}

impl GateInput {
    pub(super) fn new(requests: UnboundedSender<RunRequest>) -> Self {
        Self {
            requests,
            open_gates: Arc::default(),
            messages: Arc::default(),
            is_reading: false,
        }
    }

    pub(super) fn handle_entry(&mut self, entry: &Entry) {
        match entry {
            Entry::GateOpened { step, choices, .. } if !choices.is_empty() => {
                let keys = choices.iter().filter_map(|choice| choice.split_once(':'));
                let keys: Vec<String> = keys.map(|(key, _)| key.to_owned()).collect();
                self.messages.lock().push(input_hint(step, &keys));
                self.open_gates.lock().push((step.clone(), keys));
                self.start_reading();
            }
            Entry::GateClosed { step, .. } => {
                self.open_gates.lock().retain(|(open, _)| open != step)
            }
            _ => {}
        }
    }

    /// Returns the messages since the last call.
    pub(super) fn take_messages(&self) -> Vec<String> {
        std::mem::take(&mut *self.messages.lock())
    }

    /// Starts to read. Input that was typed before is discarded: it is no answer.
    fn start_reading(&mut self) {
        if std::mem::replace(&mut self.is_reading, true) {
            return;
        }
        crate::output::approval::discard_typed_input();
        let (letters, open) = (self.requests.clone(), Arc::clone(&self.open_gates));
        let said = Arc::clone(&self.messages);
        // This thread may wait for ever; it is left behind at the end.
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                let complaint = submit_answer(line.trim(), &open.lock(), &letters);
                said.lock().extend(complaint);
            }
        });
    }
}

fn input_hint(step: &str, keys: &[String]) -> String {
    format!("  {step}: type {} and Enter", keys.join(" or "))
}

/// Sends an answer to the gate; returns the possible answers if this is none of them.
fn submit_answer(
    typed: &str,
    open: &[OpenGate],
    letters: &UnboundedSender<RunRequest>,
) -> Option<String> {
    let (step, keys) = open.first()?;
    if !keys.iter().any(|key| key == typed) {
        return Some(input_hint(step, keys));
    }
    let letter = RunRequest::Answer {
        step: Some(step.clone()),
        choice: Some(typed.to_owned()),
    };
    // A run that has ended needs no answer.
    letters.send(letter).ok();
    None
}
