//! An answer that grows: its beginning, its blocks and its end.
//!
//! Invariants: nothing is said of an answer before it has content or an end; a block ends before the next one begins
//! and before the answer does.

use super::frame::{Frame, MessageRef, Update};
use crate::event_encoder::JsonLines;
use crate::pi_rpc::message::{Assistant, Block, ErrorDetails, Stop};
use outlast_kernel::event::{Reasoning, ToolCall};

/// What an answer ends with.
pub(super) struct CompletionEnd {
    pub(super) stop: Stop,
    pub(super) problem: Option<String>,
    pub(super) details: Option<ErrorDetails>,
}

impl CompletionEnd {
    pub(super) const fn well(stop: Stop) -> Self {
        let (problem, details) = (None, None);
        Self {
            stop,
            problem,
            details,
        }
    }
}

pub(super) struct PartialCompletion {
    pub(super) message: Assistant,
    /// Whether its beginning was said.
    is_said: bool,
    /// Whether its last block may go on.
    is_open: bool,
    /// Whether it was taken back.
    pub(super) is_retracted: bool,
}

impl PartialCompletion {
    pub(super) const fn new(message: Assistant) -> Self {
        Self {
            message,
            is_said: false,
            is_open: false,
            is_retracted: false,
        }
    }

    pub(super) fn text(&mut self, piece: &str, out: &mut JsonLines) {
        if piece.is_empty() {
            return;
        }
        let goes_on =
            self.is_open && matches!(self.message.content.last(), Some(Block::Text { .. }));
        if !goes_on {
            let text = String::new();
            let index = self.begin(Block::Text { text }, out);
            self.update(out, |partial| Update::TextStart {
                content_index: index,
                partial,
            });
        }
        if let Some(Block::Text { text }) = self.message.content.last_mut() {
            text.push_str(piece);
        }
        let index = self.last();
        self.update(out, |partial| Update::TextDelta {
            content_index: index,
            delta: piece,
            partial,
        });
    }

    pub(super) fn thinking(&mut self, piece: &str, out: &mut JsonLines) {
        if piece.is_empty() {
            return;
        }
        let last = self.message.content.last();
        let goes_on = self.is_open && matches!(last, Some(Block::Thinking { .. }));
        if !goes_on {
            let index = self.begin(Block::thought(Reasoning::default()), out);
            self.update(out, |partial| Update::ThinkingStart {
                content_index: index,
                partial,
            });
        }
        if let Some(Block::Thinking { thinking, .. }) = self.message.content.last_mut() {
            thinking.push_str(piece);
        }
        let index = self.last();
        self.update(out, |partial| Update::ThinkingDelta {
            content_index: index,
            delta: piece,
            partial,
        });
    }

    /// What was thought, as a whole. Its pieces came before, if it has any.
    pub(super) fn thought(&mut self, reasoning: Reasoning, out: &mut JsonLines) {
        let last = self.message.content.last();
        let goes_on = self.is_open && matches!(last, Some(Block::Thinking { .. }));
        if !goes_on && reasoning.text.is_empty() && reasoning.proof.is_none() {
            return;
        }
        if !goes_on {
            let index = self.begin(Block::thought(Reasoning::default()), out);
            self.update(out, |partial| Update::ThinkingStart {
                content_index: index,
                partial,
            });
            self.thinking(&reasoning.text, out);
        }
        if let Some(block) = self.message.content.last_mut() {
            finish(block, reasoning);
        }
        self.end_block(out);
    }

    /// A call, which comes as a whole.
    pub(super) fn call(&mut self, call: ToolCall, out: &mut JsonLines) {
        let block = Block::call(call);
        let index = self.begin(block, out);
        self.is_open = false;
        let Self { message, .. } = &*self;
        let Some(
            tool_call @ Block::ToolCall {
                id,
                name,
                arguments,
            },
        ) = message.content.last()
        else {
            return;
        };
        let (content_index, partial) = (index, message);
        let updates = [
            Update::ToolcallStart {
                content_index,
                id,
                tool_name: name,
                partial,
            },
            Update::ToolcallDelta {
                content_index,
                delta: arguments.get(),
                partial,
            },
            Update::ToolcallEnd {
                content_index,
                tool_call,
                partial,
            },
        ];
        for update in updates {
            emit_message_update(message, update, out);
        }
    }

    /// Begins with what an answer that broke off had said: its last text goes on.
    pub(super) fn continue_from(&mut self, blocks: Vec<Block>, out: &mut JsonLines) {
        for block in blocks {
            match block {
                Block::Text { text } => self.text(&text, out),
                Block::ToolCall {
                    id,
                    name,
                    arguments,
                } => {
                    let arguments = String::from(Box::<str>::from(arguments));
                    let call = ToolCall {
                        id,
                        name,
                        arguments,
                    };
                    self.call(call, out);
                }
                Block::Thinking { thinking, .. } => {
                    self.thinking(&thinking, out);
                    self.end_block(out);
                }
                Block::Image { .. } => {}
            }
        }
    }

    /// What another answer could go on from: half a thought is none of it.
    pub(super) fn beginning(&self) -> Vec<Block> {
        let mut blocks = self.message.content.clone();
        let is_thought = matches!(blocks.last(), Some(Block::Thinking { .. }));
        if self.is_open && is_thought {
            blocks.pop();
        }
        blocks
    }

    /// Says its end; a beginning that was not said yet knows of it already.
    pub(super) fn end(mut self, ending: CompletionEnd, out: &mut JsonLines) -> Assistant {
        self.end_block(out);
        let message = &mut self.message;
        message.stop_reason = ending.stop;
        (message.error_message, message.outlast) = (ending.problem, ending.details);
        self.say_start(out);
        let message = MessageRef::Assistant(&self.message);
        out.push(&Frame::MessageEnd { message });
        self.message
    }

    // --- Blocks ---

    /// A new block after what there is.
    fn begin(&mut self, block: Block, out: &mut JsonLines) -> usize {
        self.end_block(out);
        self.say_start(out);
        self.message.content.push(block);
        self.is_open = true;
        self.last()
    }

    fn last(&self) -> usize {
        self.message.content.len().saturating_sub(1)
    }

    fn say_start(&mut self, out: &mut JsonLines) {
        if !std::mem::replace(&mut self.is_said, true) {
            let message = MessageRef::Assistant(&self.message);
            out.push(&Frame::MessageStart { message });
        }
    }

    fn end_block(&mut self, out: &mut JsonLines) {
        if !std::mem::take(&mut self.is_open) {
            return;
        }
        let (content_index, partial) = (self.last(), &self.message);
        let update = match self.message.content.last() {
            Some(Block::Text { text: content }) => Update::TextEnd {
                content_index,
                content,
                partial,
            },
            Some(Block::Thinking {
                thinking: content, ..
            }) => Update::ThinkingEnd {
                content_index,
                content,
                partial,
            },
            _ => return,
        };
        emit_message_update(partial, update, out);
    }

    fn update<'a>(&'a self, out: &mut JsonLines, of: impl FnOnce(&'a Assistant) -> Update<'a>) {
        emit_message_update(&self.message, of(&self.message), out);
    }
}

/// Adds to a thought what only its end tells.
fn finish(block: &mut Block, mut reasoning: Reasoning) {
    if let (Block::Thinking { thinking, .. }, true) = (&mut *block, reasoning.text.is_empty()) {
        reasoning.text = std::mem::take(thinking);
    }
    *block = Block::thought(reasoning);
}

fn emit_message_update(message: &Assistant, update: Update<'_>, out: &mut JsonLines) {
    out.push(&Frame::MessageUpdate {
        usage: &message.usage,
        assistant_message_event: update,
        message,
    });
}
