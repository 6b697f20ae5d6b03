//! What is answered from the whole history of a session. It is read beside the lane: a long one takes its time.

use super::command::{Caller, Command};
use super::desk::Desk;
use super::lane::Answer;
use outlast_agent::Session;
use std::sync::Arc;

impl Desk {
    /// Reads the history and answers from it.
    pub(super) fn tell_history(
        self: &Arc<Self>,
        (session, caller): (Arc<Session>, Caller),
        command: Command,
    ) {
        let desk = Arc::clone(self);
        self.tasks.spawn(async move {
            let answer = desk.from_history(&session, command).await;
            desk.answer(&caller, answer);
        });
    }
}

impl Desk {
    async fn from_history(&self, session: &Session, command: Command) -> Answer {
        Err("not yet".to_owned())
    }
}
