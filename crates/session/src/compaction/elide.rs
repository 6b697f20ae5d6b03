//! Leaves parts of a conversation out, nobody being asked.
//!
//! The outputs of tools go first, then long texts, then images; the oldest of each before the newer ones, and what is
//! shortened keeps its beginning and its end. Earlier summaries and the newest prompt come last and are only shortened.
//! Invariants: no message and no tool call or result is dropped; nothing is touched once the goal is reached.
//! Not here: what a model thought, which its provider wants back as it was.

use super::shorten::{shorten_arguments, shortened};
use super::summary;
use outlast_dialect::{Message, Part, Role};
use outlast_engine::turn::is_notice;

/// To how many bytes things are shortened, harder and harder.
const LIMITS: [usize; 4] = [8192, 2048, 512, 128];
const PROTECTED_LIMITS: [usize; 4] = [16_384, 4096, 1024, 512];
const LEFT_OUT: &str = "[an image was left out]";

/// How small a conversation is wanted.
#[derive(Clone, Copy)]
pub(super) struct Goal {
    /// What its messages may weigh together.
    pub(super) most: u64,
    /// What one weighs.
    pub(super) weigh: fn(&Message) -> u64,
}

/// The conversation with parts left out until the goal is reached, or as near as it comes to that.
pub(super) fn elided(messages: &[Message], goal: Goal) -> Vec<Message> {
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
    Dearest,
}

impl Elision {
    fn run(&mut self) {
        let newest = self.messages.iter().rposition(is_prompt);
        let dear =
            |(index, message): (usize, &Message)| Some(index) == newest || summary::is_one(message);
        let dearest: Vec<bool> = self.messages.iter().enumerate().map(dear).collect();
        let images_weigh_most = self.weight_of_images() > self.weight / 2;
        if images_weigh_most {
            self.each(&dearest, Scope::Older, leave_image_out);
        }
        self.shorten(&dearest, Scope::Older, LIMITS);
        self.each(&dearest, Scope::Older, leave_image_out);
        self.shorten(&dearest, Scope::Dearest, PROTECTED_LIMITS);
        self.each(&dearest, Scope::Dearest, leave_image_out);
    }

    fn shorten(&mut self, dearest: &[bool], which: Scope, limits: [usize; 4]) {
        for limit in limits {
            self.each(dearest, which, |part| shorten_output(part, limit));
        }
        for limit in limits {
            self.each(dearest, which, |part| shorten_text(part, limit));
        }
    }

    /// Changes the parts of such messages, the oldest first, until the goal is reached.
    fn each(&mut self, dearest: &[bool], which: Scope, change: impl Fn(&mut Part)) {
        let wanted = which == Scope::Dearest;
        let messages = self.messages.iter_mut().zip(dearest);
        for (message, _) in messages.filter(|(_, dear)| **dear == wanted) {
            if self.weight <= self.goal.most {
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

/// Whether the user says something in it, rather than a tool or the turn.
pub(super) fn is_prompt(message: &Message) -> bool {
    let says = |part: &Part| match part {
        Part::Text { text } => !is_notice(text),
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
