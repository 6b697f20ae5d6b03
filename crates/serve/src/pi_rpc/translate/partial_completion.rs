//! A completion in progress: its start, its blocks and its end.
//!
//! Invariants: no frame is written for a completion before it has content or an end; a block ends before the next one
//! begins and before the completion ends.

use super::frame::{Frame, MessageRef, Update};
use crate::event_encoder::JsonLines;
use crate::pi_rpc::message::{Assistant, Block, ErrorDetails, Stop};
use outlast_kernel::event::{Reasoning, ToolCall};

/// The end of a completion.
pub(super) struct CompletionEnd {
    pub(super) stop: Stop,
    pub(super) problem: Option<String>,
    pub(super) details: Option<ErrorDetails>,
}

impl CompletionEnd {
    pub(super) const fn without_error(stop: Stop) -> Self {
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
    /// Whether the start of the message was written.
    is_started: bool,
    /// Whether the last block may still grow.
    is_block_open: bool,
    /// Whether the completion was retracted.
    pub(super) is_retracted: bool,
}

impl PartialCompletion {
    pub(super) const fn new(message: Assistant) -> Self {
        Self {
            message,
            is_started: false,
            is_block_open: false,
            is_retracted: false,
        }
    }

    pub(super) fn text(&mut self, piece: &str, out: &mut JsonLines) {
        if piece.is_empty() {
            return;
        }
        let goes_on =
            self.is_block_open && matches!(self.message.content.last(), Some(Block::Text { .. }));
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
        let goes_on = self.is_block_open && matches!(last, Some(Block::Thinking { .. }));
        if !goes_on {
            let index = self.begin(Block::from_reasoning(Reasoning::default()), out);
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

    /// Adds complete reasoning. Its deltas came before, if it has any.
    pub(super) fn finish_thinking(&mut self, reasoning: Reasoning, out: &mut JsonLines) {
        let last = self.message.content.last();
        let goes_on = self.is_block_open && matches!(last, Some(Block::Thinking { .. }));
        if !goes_on && reasoning.text.is_empty() && reasoning.proof.is_none() {
            return;
        }
        if !goes_on {
            let index = self.begin(Block::from_reasoning(Reasoning::default()), out);
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

    /// Adds a complete tool call.
    pub(super) fn call(&mut self, call: ToolCall, out: &mut JsonLines) {
        let block = Block::from_tool_call(call);
        let index = self.begin(block, out);
        self.is_block_open = false;
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

    /// Starts with the content of an interrupted completion, whose last text continues.
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

    /// Returns the content that another completion could continue: everything but incomplete reasoning.
    pub(super) fn resumable_blocks(&self) -> Vec<Block> {
        let mut blocks = self.message.content.clone();
        let is_thought = matches!(blocks.last(), Some(Block::Thinking { .. }));
        if self.is_block_open && is_thought {
            blocks.pop();
        }
        blocks
    }

    /// Writes the end of the message. If its start was not written yet, the start has the final state too.
    pub(super) fn end(mut self, ending: CompletionEnd, out: &mut JsonLines) -> Assistant {
        self.end_block(out);
        let message = &mut self.message;
        message.stop_reason = ending.stop;
        (message.error_message, message.outlast) = (ending.problem, ending.details);
        self.emit_start(out);
        let message = MessageRef::Assistant(&self.message);
        out.push(&Frame::MessageEnd { message });
        self.message
    }

    // --- Blocks ---

    /// Starts a new block and returns its index.
    fn begin(&mut self, block: Block, out: &mut JsonLines) -> usize {
        self.end_block(out);
        self.emit_start(out);
        self.message.content.push(block);
        self.is_block_open = true;
        self.last()
    }

    fn last(&self) -> usize {
        self.message.content.len().saturating_sub(1)
    }

    fn emit_start(&mut self, out: &mut JsonLines) {
        if !std::mem::replace(&mut self.is_started, true) {
            let message = MessageRef::Assistant(&self.message);
            out.push(&Frame::MessageStart { message });
        }
    }

    fn end_block(&mut self, out: &mut JsonLines) {
        if !std::mem::take(&mut self.is_block_open) {
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

/// Completes a reasoning block with the details that only its end has.
fn finish(block: &mut Block, mut reasoning: Reasoning) {
    if let (Block::Thinking { thinking, .. }, true) = (&mut *block, reasoning.text.is_empty()) {
        reasoning.text = std::mem::take(thinking);
    }
    *block = Block::from_reasoning(reasoning);
}

fn emit_message_update(message: &Assistant, update: Update<'_>, out: &mut JsonLines) {
    out.push(&Frame::MessageUpdate {
        usage: &message.usage,
        assistant_message_event: update,
        message,
    });
}
