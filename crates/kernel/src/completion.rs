//! Why an answer that ended is no answer: empty, cut off, refused, or a wish that never became a call.
//!
//! Pure: what the answer came to goes in, and what is odd about it goes out. Whoever asks again says [`Oddity::notice`]
//! to the model; whoever gives up says [`Oddity::problem`] to the person.
//! Invariant: an answer with a call that can be run, or with text that was asked for, is never odd, but for one that the
//! output limit cut within a call. Where it is in doubt, it is no oddity: a false alarm costs a call.
//! Not here: how often it is tried again (see the turn), and answers that go in circles (see `repetition`).

mod announcement;
mod call_as_text;

use crate::event::{StopReason, ToolCall, Usage};
use crate::verdict::Cause;
use serde::{Deserialize, Serialize};

/// What an answer that ended came to.
#[derive(Clone, Copy, Debug)]
pub struct FinishedCompletion<'a> {
    /// Why the model stopped.
    pub stop_reason: StopReason,
    /// All of its text.
    pub text: &'a str,
    /// The calls that are whole.
    pub calls: &'a [&'a ToolCall],
    /// The names of the calls that began and are not whole; a call without a name has an empty one.
    pub cut_calls: &'a [&'a str],
    /// What there was of reasoning.
    pub reasoned: ReasoningKind,
    /// What it used.
    pub usage: Usage,
    /// Whether the model had tools to call.
    pub tools: bool,
    /// How many tokens the model holds, where that is known.
    pub window: Option<u64>,
}

/// What there was of reasoning in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasoningKind {
    /// Nothing.
    None,
    /// Some, but nothing that its provider would take back.
    Unproven,
    /// Some, with what proves it: it can be sent back.
    Proven,
}

/// What is odd about an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum InvalidCompletion {
    /// Nothing came.
    Empty {
        /// Whether something was written all the same, and is paid for.
        billed: bool,
    },
    /// Reasoning that can be sent back, and nothing after it.
    ReasoningOnly,
    /// It stopped for a call, and there is none.
    NoCall,
    /// The output limit was reached with nothing delivered, because the window is full.
    OutOfRoom,
    /// The output limit was reached with nothing but reasoning.
    OnlyReasoned,
    /// The output limit was reached with nothing at all.
    LengthEmpty,
    /// A call was cut off before it was whole.
    CutCall,
    /// The model or a filter refused.
    Refused,
    /// A call that names no tool.
    NamelessCall,
    /// A call that is written as text.
    CallAsText,
    /// It says what it will do next, and stops.
    Announced,
    /// Its reasoning went in circles and was cut off; never judged here, see [`crate::repetition::Guard`].
    RepeatedReasoning,
    /// The arguments of a call were blanks without end; never judged here, the stream's reader sees it.
    BlankArguments,
}

/// What is odd about an answer; `None` when nothing is.
///
/// ```
/// use outlast_kernel::event::{StopReason, Usage};
/// use outlast_kernel::stop::{Answered, Oddity, Reasoned, judge};
///
/// let answer = Answered {
///     stop_reason: StopReason::EndTurn,
///     text: "Now I'll run the tests:",
///     calls: &[],
///     cut_calls: &[],
///     reasoned: Reasoned::None,
///     usage: Usage::default(),
///     tools: true,
///     window: None,
/// };
/// assert_eq!(judge(&answer), Some(Oddity::Announced));
/// ```
pub fn judge(answer: &FinishedCompletion<'_>) -> Option<InvalidCompletion> {
    match answer.stop_reason {
        StopReason::Refusal => Some(InvalidCompletion::Refused),
        StopReason::Length => check_output_limit(answer),
        _ if answer.calls.iter().any(|call| !call.name.is_empty()) => None,
        _ if answer.is_nameless() => Some(InvalidCompletion::NamelessCall),
        _ if !answer.cut_calls.is_empty() => Some(InvalidCompletion::CutCall),
        StopReason::ToolUse => check_missing_call(answer),
        _ if answer.is_blank() => Some(empty_completion(answer)),
        StopReason::EndTurn if answer.tools => check_unmade_call(answer.text),
        _ => None,
    }
}

fn check_output_limit(answer: &FinishedCompletion<'_>) -> Option<InvalidCompletion> {
    let is_blank = answer.is_blank();
    if is_blank && answer.calls.is_empty() && answer.fills_window() {
        return Some(InvalidCompletion::OutOfRoom);
    }
    if !answer.calls.is_empty() || !answer.cut_calls.is_empty() {
        return Some(InvalidCompletion::CutCall);
    }
    // What was delivered is kept, and that it was cut is said elsewhere.
    is_blank.then_some(match answer.reasoned {
        ReasoningKind::None => InvalidCompletion::LengthEmpty,
        ReasoningKind::Unproven | ReasoningKind::Proven => InvalidCompletion::OnlyReasoned,
    })
}

fn check_missing_call(answer: &FinishedCompletion<'_>) -> Option<InvalidCompletion> {
    if answer.tools && call_as_text::is_in(answer.text) {
        return Some(InvalidCompletion::CallAsText);
    }
    // Without tools of ours it may have been one that the provider runs itself.
    (answer.tools || answer.is_blank()).then_some(InvalidCompletion::NoCall)
}

fn empty_completion(answer: &FinishedCompletion<'_>) -> InvalidCompletion {
    match answer.reasoned {
        ReasoningKind::Proven => InvalidCompletion::ReasoningOnly,
        // What was paid for was the reasoning.
        ReasoningKind::Unproven => InvalidCompletion::Empty { billed: false },
        ReasoningKind::None => InvalidCompletion::Empty {
            billed: answer.usage.output > 0,
        },
    }
}

fn check_unmade_call(text: &str) -> Option<InvalidCompletion> {
    if call_as_text::is_in(text) {
        return Some(InvalidCompletion::CallAsText);
    }
    announcement::ends_text(text).then_some(InvalidCompletion::Announced)
}

impl FinishedCompletion<'_> {
    fn is_blank(&self) -> bool {
        self.text.trim().is_empty()
    }

    fn is_nameless(&self) -> bool {
        !self.calls.is_empty() || self.cut_calls.contains(&"")
    }

    /// Servers count a little differently than they cut off, so nearly full is full.
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

/// Whether that is what a model is told about one of its answers, and not what a person says.
pub fn is_notice(text: &str) -> bool {
    InvalidCompletion::ALL
        .iter()
        .any(|oddity| oddity.notice() == Some(text))
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

    /// The cause as which it fails when it is given up.
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

    /// Whether the answer stays in the conversation when the model is asked again; if not, it is as if it never came.
    pub const fn keeps_answer(self) -> bool {
        matches!(
            self,
            Self::ReasoningOnly | Self::CutCall | Self::CallAsText | Self::Announced
        )
    }

    /// What the model is told before it is asked again; `None` when asking again in words does not help.
    pub const fn notice(self) -> Option<&'static str> {
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

    /// What the person is told when it is given up: what came, the likely cause and a remedy.
    pub const fn problem(self) -> &'static str {
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
#[path = "stop_tests.rs"]
mod tests;
