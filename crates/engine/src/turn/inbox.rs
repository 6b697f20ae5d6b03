//! Sends the messages that are queued for the model during a turn.
//!
//! Invariants: messages are sent at the start of a call, never in the middle of a completion that is being continued;
//! they are journaled before any listener receives them; if the journal fails, they are still sent, once.

use super::Runner;
use crate::journal::Entry;
use outlast_kernel::event::Body;

impl Runner<'_> {
    /// Sends the queued messages; returns `false` when there are none.
    pub(super) async fn deliver_inbox(&mut self) -> bool {
        let inbox = self.turn.inbox.filter(|_| self.continuation.is_none());
        let letters = inbox.map(|inbox| inbox.take()).unwrap_or_default();
        if letters.is_empty() {
            return false;
        }
        let entries = Entry::delivered(letters);
        // There is no await between taking the messages and noting them.
        for entry in &entries {
            self.journal_writer.record(entry.clone());
        }
        self.commit().await;
        for entry in entries {
            let Entry::Delivered { messages, note, .. } = entry else {
                continue;
            };
            for message in messages {
                let text = message.text();
                self.push_message(message);
                if !note {
                    self.emitter.emit(Body::Input { text });
                }
            }
        }
        true
    }
}
