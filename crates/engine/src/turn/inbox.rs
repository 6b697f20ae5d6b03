//! What others want to be said to the model while the turn runs.
//!
//! Invariants: it is said at the start of a call, never into the middle of an answer that is gone on with; it is written
//! down before anybody hears of it; what cannot be written down is said all the same, once.

use super::Runner;
use crate::journal::Entry;
use outlast_kernel::event::Body;

impl Runner<'_> {
    /// Says what waits; `false` when nothing does.
    pub(super) async fn say_waiting(&mut self) -> bool {
        let inbox = self.turn.inbox.filter(|_| self.kept.is_none());
        let letters = inbox.map(|inbox| inbox.take()).unwrap_or_default();
        if letters.is_empty() {
            return false;
        }
        let entries = Entry::said(letters);
        // Nothing is waited for between taking it and noting it.
        for entry in &entries {
            self.scribe.note(entry.clone());
        }
        self.commit().await;
        for entry in entries {
            let Entry::Said { messages, note, .. } = entry else {
                continue;
            };
            for message in messages {
                let text = message.text();
                self.say_message(message);
                if !note {
                    self.emitter.emit(Body::Input { text });
                }
            }
        }
        true
    }
}
