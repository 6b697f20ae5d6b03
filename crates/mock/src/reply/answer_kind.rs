//! The kinds of completions.

use super::Keyword;

/// The kind of a completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnswerKind {
    /// A sentence.
    #[default]
    Text,
    /// Reasoning with its proof, then a sentence.
    Reasoning,
    /// Reasoning with its proof, and nothing else.
    ReasoningOnly,
    /// Reasoning that repeats itself, then a sentence.
    ReasoningLoop,
    /// A tool call.
    Tool,
    /// Two tool calls with interleaved arguments.
    Tools,
    /// Reasoning with its proof, a few words, then two tool calls.
    Mixed,
    /// A refusal in words.
    Refusal,
    /// A sentence that the output limit cut.
    Length,
    /// Reasoning that the output limit cut, and nothing else.
    LengthReasoning,
    /// A tool call, and a second one whose arguments the output limit cut.
    LengthCall,
    /// Nothing, because the output limit was reached before.
    LengthEmpty,
    /// Nothing.
    Empty,
    /// Nothing visible, but billed.
    BilledEmpty,
    /// An announcement of the next step, without a tool call.
    Announced,
    /// A tool call that is written as text.
    TextCall,
    /// The stop reason of tool calls, without a call.
    ToolStop,
    /// A tool call without a name and an id.
    Nameless,
    /// A tool call whose arguments are only blanks.
    BlankArguments,
    /// A description of the images in the request.
    ImageSeen,
    /// A sentence with terminal escapes.
    Escapes,
    /// A sentence between frames of unknown types.
    UnknownFrames,
    /// Thousands of pieces.
    Long,
    /// The prompt, twice: a summary that is longer than the original.
    LongSummary,
    /// The tool calls that the prompt names, step by step, then a report of the results or the text that the prompt
    /// specifies. Given a request to summarise a conversation, it lists the remaining steps; given criteria to judge
    /// by, it judges.
    Agent,
    /// The same, with reasoning before each step.
    ThinkingAgent,
}

impl AnswerKind {
    pub(crate) const KEYWORDS: [Keyword<Self>; 26] = [
        ("text", Self::Text, "a sentence"),
        (
            "reasoning",
            Self::Reasoning,
            "reasoning with its proof, then a sentence",
        ),
        (
            "reasoning-only",
            Self::ReasoningOnly,
            "reasoning with its proof, and nothing else",
        ),
        (
            "reasoning-loop",
            Self::ReasoningLoop,
            "the same thought 400 times, then a sentence",
        ),
        ("tool", Self::Tool, "a call of the first tool offered"),
        ("tools", Self::Tools, "two calls whose arguments take turns"),
        (
            "mixed",
            Self::Mixed,
            "reasoning, a few words, then two such calls",
        ),
        ("refusal", Self::Refusal, "a refusal in words"),
        ("length", Self::Length, "a sentence cut by the output limit"),
        (
            "length-reasoning",
            Self::LengthReasoning,
            "reasoning cut by the output limit, and nothing else",
        ),
        (
            "length-call",
            Self::LengthCall,
            "a call, and a second one cut by the output limit",
        ),
        (
            "length-empty",
            Self::LengthEmpty,
            "nothing, at the output limit",
        ),
        ("empty", Self::Empty, "nothing"),
        ("billed-empty", Self::BilledEmpty, "nothing, for 50 tokens"),
        (
            "announced",
            Self::Announced,
            "what would be done next, without a call",
        ),
        ("text-call", Self::TextCall, "a call written as text"),
        (
            "tool-stop",
            Self::ToolStop,
            "an end that promises a call, without a call",
        ),
        (
            "nameless",
            Self::Nameless,
            "a call without a name and an id",
        ),
        (
            "blank-arguments",
            Self::BlankArguments,
            "a call whose arguments are 100,000 blanks",
        ),
        (
            "image-seen",
            Self::ImageSeen,
            "what images came with the request",
        ),
        ("escapes", Self::Escapes, "a sentence with terminal escapes"),
        (
            "unknown-frames",
            Self::UnknownFrames,
            "a sentence between frames that nobody knows",
        ),
        ("long", Self::Long, "thousands of pieces"),
        ("long-summary", Self::LongSummary, "the prompt, twice"),
        (
            "agent",
            Self::Agent,
            "calls and words that the prompt names",
        ),
        (
            "thinking-agent",
            Self::ThinkingAgent,
            "the same, with reasoning before each step",
        ),
    ];

    /// Returns whether the output limit ends a completion of this kind.
    pub(crate) fn hits_output_limit(self) -> bool {
        matches!(
            self,
            Self::Length | Self::LengthReasoning | Self::LengthCall | Self::LengthEmpty
        )
    }
}
