//! Asks the user of the chat whether a tool may run.

use crate::tui::driver::Message;
use outlast_engine::BoxFuture;
use outlast_session::tools::{ApprovalDecision, ApprovalRequest, Approver};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

pub(in crate::tui) struct ChatApprover(pub(in crate::tui) UnboundedSender<Message>);

impl Approver for ChatApprover {
    fn request_approval<'a>(
        &'a self,
        question: &'a ApprovalRequest,
    ) -> BoxFuture<'a, ApprovalDecision> {
        let (sender, answer) = oneshot::channel();
        let asked = Message::QuestionAsked(question.clone(), sender);
        let withdrawn = WithdrawOnDrop(&self.0);
        let is_asked = self.0.send(asked).is_ok();
        Box::pin(async move {
            let _withdrawn = withdrawn;
            // Without an answer the tool is not approved.
            match is_asked {
                true => answer.await.unwrap_or(ApprovalDecision::Deny),
                false => ApprovalDecision::Deny,
            }
        })
    }
}

/// Removes the question from the screen when its answer is no longer needed.
struct WithdrawOnDrop<'a>(&'a UnboundedSender<Message>);

impl Drop for WithdrawOnDrop<'_> {
    fn drop(&mut self) {
        self.0.send(Message::QuestionWithdrawn).ok();
    }
}
