//! Elides parts of a conversation without asking a model.
//!
//! Order: tool outputs, long texts, images; within each the oldest first. A shortened text keeps its beginning and end.
//! Earlier summaries and the newest prompt come last and are only shortened. Invariants: no message, tool call or
//! result is dropped; nothing is touched once the goal is reached. Not here: reasoning, which its provider wants back unchanged.

use super::shorten::{shorten_arguments, shortened};
use super::summary;
use outlast_dialect::{Message, Part, Role};
use outlast_engine::turn::is_correction_notice;

/// The lengths in bytes to which texts are shortened, one pass after the other.
const LIMITS: [usize; 4] = [8192, 2048, 512, 128];
const PROTECTED_LIMITS: [usize; 4] = [16_384, 4096, 1024, 512];
const LEFT_OUT: &str = "[an image was left out]";

/// The target size of a conversation.
#[derive(Clone, Copy)]
pub(super) struct Goal {
    /// Maximum total weight of the messages.
    pub(super) max_weight: u64,
    /// Returns the weight of one message.
    pub(super) weigh: fn(&Message) -> u64,
}

/// Returns the conversation with parts left out until the goal is reached, or as close to it as possible.
pub(super) fn elide(messages: &[Message], goal: Goal) -> Vec<Message> {
    let weight = messages.iter().map(goal.weigh).sum();
    let messages = messages.to_vec();
    let mut elision = Elision {
        messages,
        weight,
        goal,
    };
    elision.run();
    elision.messages
}

struct Elision {
    messages: Vec<Message>,
    weight: u64,
    goal: Goal,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    Older,
    /// Earlier summaries and the newest prompt.
    Protected,
}

impl Elision {
    fn run(&mut self) {
        let newest = self.messages.iter().rposition(is_prompt);
        let dear = |(index, message): (usize, &Message)| {
            Some(index) == newest || summary::is_summary(message)
        };
        let dearest: Vec<bool> = self.messages.iter().enumerate().map(dear).collect();
        let images_weigh_most = self.weight_of_images() > self.weight / 2;
        if images_weigh_most {
            self.each(&dearest, Scope::Older, leave_image_out);
        }
        self.shorten(&dearest, Scope::Older, LIMITS);
        self.each(&dearest, Scope::Older, leave_image_out);
        self.shorten(&dearest, Scope::Protected, PROTECTED_LIMITS);
        self.each(&dearest, Scope::Protected, leave_image_out);
    }

    fn shorten(&mut self, dearest: &[bool], which: Scope, limits: [usize; 4]) {
        for limit in limits {
            self.each(dearest, which, |part| shorten_output(part, limit));
        }
        for limit in limits {
            self.each(dearest, which, |part| shorten_text(part, limit));
        }
    }

    /// Applies `change` to the parts of the messages in scope, the oldest first, until the goal is reached.
    fn each(&mut self, dearest: &[bool], which: Scope, change: impl Fn(&mut Part)) {
        let wanted = which == Scope::Protected;
        let messages = self.messages.iter_mut().zip(dearest);
        for (message, _) in messages.filter(|(_, dear)| **dear == wanted) {
            if self.weight <= self.goal.max_weight {
                return;
            }
            let before = (self.goal.weigh)(message);
            message.parts.iter_mut().for_each(&change);
            let after = (self.goal.weigh)(message);
            self.weight = self.weight.saturating_sub(before).saturating_add(after);
        }
    }

    fn weight_of_images(&self) -> u64 {
        let images = self.messages.iter().filter_map(|message| {
            let images = message.parts.iter().filter(|part| is_image(part));
            let parts: Vec<Part> = images.cloned().collect();
            let role = message.role;
            (!parts.is_empty()).then(|| (self.goal.weigh)(&Message { role, parts }))
        });
        images.sum()
    }
}

/// Returns whether the user wrote the message, as opposed to a tool or the turn.
pub(super) fn is_prompt(message: &Message) -> bool {
    let says = |part: &Part| match part {
        Part::Text { text } => !is_correction_notice(text),
        part => is_image(part),
    };
    message.role == Role::User && message.parts.iter().any(says)
}

const fn is_image(part: &Part) -> bool {
    matches!(part, Part::Image(_))
}

fn shorten_output(part: &mut Part, limit: usize) {
    match part {
        Part::ToolResult(result) => {
            if let Some(shorter) = shortened(&result.output, limit) {
                result.output = shorter;
            }
        }
        Part::ToolCall(call) => shorten_arguments(call, limit),
        Part::Text { .. } | Part::Image(_) | Part::Reasoning(_) => {}
    }
}

fn shorten_text(part: &mut Part, limit: usize) {
    if let Part::Text { text } = part
        && let Some(shorter) = shortened(text, limit)
    {
        *text = shorter;
    }
}

fn leave_image_out(part: &mut Part) {
    if is_image(part) {
        let text = LEFT_OUT.to_owned();
        *part = Part::Text { text };
    }
}
