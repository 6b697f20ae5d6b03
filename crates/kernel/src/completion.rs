//! Detects invalid completions: empty, cut off, refused, or an announced tool call that was never made.
//!
//! Pure: a finished completion goes in, its defect comes out. On a retry, [`InvalidCompletion::correction`] goes to the
//! model; on giving up, [`InvalidCompletion::user_message`] goes to the person.
//! Invariant: a completion with a call that can be run, or with text that was asked for, is never invalid, unless the
//! output limit cut it within a call. In doubt it is valid: a false alarm costs a call.
//! Not here: the number of retries (see the engine's turn), and completions that go in circles (see `loops`).

mod announcement;
mod call_as_text;

use crate::event::{StopReason, ToolCall, Usage};
use crate::verdict::Cause;
use serde::{Deserialize, Serialize};

/// A completion that has ended.
#[derive(Clone, Copy, Debug)]
pub struct FinishedCompletion<'a> {
    /// The model's reason for stopping.
    pub stop_reason: StopReason,
    /// All of its text.
    pub text: &'a str,
    /// The complete calls.
    pub calls: &'a [&'a ToolCall],
    /// The names of the calls that began and are incomplete; a call without a name has an empty one.
    pub incomplete_calls: &'a [&'a str],
    /// The kind of reasoning it contained.
    pub reasoning: ReasoningKind,
    /// The tokens it used.
    pub usage: Usage,
    /// Whether the model had tools to call.
    pub has_tools: bool,
    /// The model's window in tokens, where it is known.
    pub window: Option<u64>,
}

/// The kind of reasoning in a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasoningKind {
    /// No reasoning.
    None,
    /// Reasoning that its provider would not take back.
    NotReplayable,
    /// Reasoning with a proof: it can be sent back.
    Replayable,
}

/// The defect of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum InvalidCompletion {
    /// No content.
    Empty {
        /// Whether output tokens were billed all the same.
        billed: bool,
    },
    /// Reasoning that can be sent back, and nothing after it.
    ReasoningOnly,
    /// It stopped for a call, and there is none.
    NoCall,
    /// It reached the output limit without content, because the window is full.
    OutOfRoom,
    /// It reached the output limit with nothing but reasoning.
    OnlyReasoned,
    /// It reached the output limit with nothing at all.
    LengthEmpty,
    /// A call was cut off before it was complete.
    CutCall,
    /// The model or a filter refused.
    Refused,
    /// A call that names no tool.
    NamelessCall,
    /// A call that is written as text.
    CallAsText,
    /// It announces its next action and stops.
    Announced,
    /// Its reasoning went in circles and was cut off; never detected here, see [`crate::loops::LoopDetector`].
    RepeatedReasoning,
    /// The arguments of a call were endless blanks; never detected here, but by the reader of the stream.
    BlankArguments,
}

/// Returns the defect of a completion, or `None` when it is valid.
///
/// ```
/// use outlast_kernel::event::{StopReason, Usage};
/// use outlast_kernel::completion::{FinishedCompletion, InvalidCompletion, ReasoningKind, check_completion};
///
/// let answer = FinishedCompletion {
///     stop_reason: StopReason::EndTurn,
///     text: "Now I'll run the tests:",
///     calls: &[],
///     incomplete_calls: &[],
///     reasoning: ReasoningKind::None,
///     usage: Usage::default(),
///     has_tools: true,
///     window: None,
/// };
/// assert_eq!(check_completion(&answer), Some(InvalidCompletion::Announced));
/// ```
pub fn check_completion(answer: &FinishedCompletion<'_>) -> Option<InvalidCompletion> {
    match answer.stop_reason {
        StopReason::Refusal => Some(InvalidCompletion::Refused),
        StopReason::Length => check_output_limit(answer),
        _ if answer.calls.iter().any(|call| !call.name.is_empty()) => None,
        _ if answer.has_nameless_call() => Some(InvalidCompletion::NamelessCall),
        _ if !answer.incomplete_calls.is_empty() => Some(InvalidCompletion::CutCall),
        StopReason::ToolUse => check_missing_call(answer),
        _ if answer.is_blank() => Some(empty_completion(answer)),
        StopReason::EndTurn if answer.has_tools => check_unmade_call(answer.text),
        _ => None,
    }
}

fn check_output_limit(answer: &FinishedCompletion<'_>) -> Option<InvalidCompletion> {
    let is_blank = answer.is_blank();
    if is_blank && answer.calls.is_empty() && answer.fills_window() {
        return Some(InvalidCompletion::OutOfRoom);
    }
    if !answer.calls.is_empty() || !answer.incomplete_calls.is_empty() {
        return Some(InvalidCompletion::CutCall);
    }
    // Content that was delivered is kept; the cut is reported elsewhere.
    is_blank.then_some(match answer.reasoning {
        ReasoningKind::None => InvalidCompletion::LengthEmpty,
        ReasoningKind::NotReplayable | ReasoningKind::Replayable => InvalidCompletion::OnlyReasoned,
    })
}

fn check_missing_call(answer: &FinishedCompletion<'_>) -> Option<InvalidCompletion> {
    if answer.has_tools && call_as_text::ends_text(answer.text) {
        return Some(InvalidCompletion::CallAsText);
    }
    // Without tools of ours it may have been a call that the provider runs itself.
    (answer.has_tools || answer.is_blank()).then_some(InvalidCompletion::NoCall)
}

fn empty_completion(answer: &FinishedCompletion<'_>) -> InvalidCompletion {
    match answer.reasoning {
        ReasoningKind::Replayable => InvalidCompletion::ReasoningOnly,
        // The reasoning is what was paid for.
        ReasoningKind::NotReplayable => InvalidCompletion::Empty { billed: false },
        ReasoningKind::None => InvalidCompletion::Empty {
            billed: answer.usage.output > 0,
        },
    }
}

fn check_unmade_call(text: &str) -> Option<InvalidCompletion> {
    if call_as_text::ends_text(text) {
        return Some(InvalidCompletion::CallAsText);
    }
    announcement::ends_text(text).then_some(InvalidCompletion::Announced)
}

impl FinishedCompletion<'_> {
    fn is_blank(&self) -> bool {
        self.text.trim().is_empty()
    }

    fn has_nameless_call(&self) -> bool {
        !self.calls.is_empty() || self.incomplete_calls.contains(&"")
    }

    /// Returns whether the window is full. Servers count a little differently than they cut off, so nearly full is
    /// full.
    fn fills_window(&self) -> bool {
        let Usage {
            input,
            output,
            cache_read,
            cache_write,
        } = self.usage;
        let used = [output, cache_read, cache_write];
        let used = used.into_iter().fold(input, u64::saturating_add);
        let is_reached = |window: u64| used >= window.saturating_sub(window / 50);
        self.window
            .is_some_and(|window| window > 0 && is_reached(window))
    }
}

/// Returns whether a text is a notice to a model about one of its completions, rather than input of a person.
pub fn is_correction(text: &str) -> bool {
    InvalidCompletion::ALL
        .iter()
        .any(|oddity| oddity.correction() == Some(text))
}

impl InvalidCompletion {
    const ALL: [Self; 13] = [
        Self::Empty { billed: false },
        Self::ReasoningOnly,
        Self::NoCall,
        Self::OutOfRoom,
        Self::OnlyReasoned,
        Self::LengthEmpty,
        Self::CutCall,
        Self::Refused,
        Self::NamelessCall,
        Self::CallAsText,
        Self::Announced,
        Self::RepeatedReasoning,
        Self::BlankArguments,
    ];

    /// Returns the cause that is reported when the call is given up.
    pub const fn cause(self) -> Cause {
        match self {
            Self::Empty { .. } | Self::ReasoningOnly | Self::OnlyReasoned | Self::LengthEmpty => {
                Cause::EmptyOutput
            }
            Self::OutOfRoom => Cause::ContextOverflow,
            Self::Refused => Cause::ContentFilter,
            Self::NoCall
            | Self::CutCall
            | Self::NamelessCall
            | Self::CallAsText
            | Self::Announced
            | Self::RepeatedReasoning
            | Self::BlankArguments => Cause::MalformedOutput,
        }
    }

    /// Returns whether the completion stays in the conversation when the model is asked again; if not, it is dropped.
    pub const fn keeps_completion(self) -> bool {
        matches!(
            self,
            Self::ReasoningOnly | Self::CutCall | Self::CallAsText | Self::Announced
        )
    }

    /// Returns the notice to the model before it is asked again; `None` when a notice does not help.
    pub const fn correction(self) -> Option<&'static str> {
        Some(match self {
            Self::Empty { .. } => "Your last answer was empty. Answer in words, or call a tool.",
            Self::ReasoningOnly => {
                "You reasoned and then stopped without an answer. Say your answer, or call a tool."
            }
            Self::NoCall => {
                "You stopped to call a tool, but no call arrived. Make the call again, or answer in words."
            }
            Self::OnlyReasoned => {
                "Your reasoning used up the output limit and was discarded. Think less, and go on in smaller steps."
            }
            Self::LengthEmpty => {
                "Your last answer reached the output limit before any of it arrived. Go on in smaller steps."
            }
            Self::CutCall => {
                "Your last tool call was cut off before its arguments were complete, and it was not run. Split the work \
                 into smaller calls."
            }
            Self::NamelessCall => {
                "Your last tool call named no tool, and it was not run. Call a tool by its name."
            }
            Self::CallAsText => {
                "You wrote a tool call as text, and it was not run. Make it as a tool call."
            }
            Self::Announced => {
                "You said what you will do next, and stopped. Do it now, or say that you are done."
            }
            Self::RepeatedReasoning => {
                "Your reasoning repeated itself and was cut off. Take another approach, or answer with what you know."
            }
            Self::BlankArguments => {
                "The arguments of your last tool call were only blanks, and it was not run. Call it again with complete \
                 arguments."
            }
            Self::OutOfRoom | Self::Refused => return None,
        })
    }

    /// Returns the message to the person on giving up: what came, the likely cause and a remedy.
    pub const fn user_message(self) -> &'static str {
        match self {
            Self::Empty { billed: true } => {
                "the provider counts output tokens but sent no content: most likely a content filter or a proxy that \
                 loses parts of the answer; try another model or ask the provider directly"
            }
            Self::Empty { billed: false } => {
                "the model answered with nothing; try another model or put the question differently"
            }
            Self::ReasoningOnly => {
                "the model reasons and stops without an answer; try another model or less reasoning"
            }
            Self::NoCall => {
                "the model stops to call a tool, but no call arrives: most likely the server does not understand the \
                 model's tool calls; try another model or server"
            }
            Self::OutOfRoom => {
                "the conversation fills the model's window and leaves no room for an answer; shorten it or take a model \
                 with a larger window"
            }
            Self::OnlyReasoned => {
                "the model's reasoning uses up the whole output limit; raise max_tokens, ask for less reasoning or for \
                 smaller steps"
            }
            Self::LengthEmpty => {
                "the output limit is reached before anything arrives; raise max_tokens or ask for smaller steps"
            }
            Self::CutCall => {
                "the model's tool calls do not fit the output limit; raise max_tokens or ask for smaller steps"
            }
            Self::Refused => {
                "the model or a content filter refused to answer; put the question differently or try another model"
            }
            Self::NamelessCall => {
                "the model called a tool without a name: most likely the server garbles its calls; try another \
                 model or server"
            }
            Self::CallAsText => {
                "the model wrote its tool calls as text: most likely the server does not understand them; try \
                 another model or server"
            }
            Self::Announced => {
                "the model said what it will do next, and did not do it; tell it to go on, or try another model"
            }
            Self::RepeatedReasoning => {
                "the model's reasoning goes in circles; put the question differently or try another model"
            }
            Self::BlankArguments => {
                "the arguments of the model's tool calls are blanks without end; try another model or server"
            }
        }
    }
}

#[cfg(test)]
#[path = "completion_tests.rs"]
mod tests;
