//! What an answer is like.

use super::Keyword;

/// What an answer is like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnswerKind {
    /// A sentence.
    #[default]
    Text,
    /// Reasoning with its proof, then a sentence.
    Reasoning,
    /// Reasoning with its proof, and nothing else.
    ReasoningOnly,
    /// Reasoning that says the same again and again, then a sentence.
    ReasoningLoop,
    /// A tool call.
    Tool,
    /// Two tool calls whose arguments take turns.
    Tools,
    /// Reasoning with its proof, a few words, then two tool calls.
    Mixed,
    /// A refusal in words.
    Refusal,
    /// A sentence that the output limit cut.
    Length,
    /// Reasoning that the output limit cut, and nothing else.
    LengthReasoning,
    /// A tool call, and a second one that the output limit cut in its arguments.
    LengthCall,
    /// Nothing: the output limit was reached before.
    LengthEmpty,
    /// Nothing.
    Empty,
    /// Nothing that can be seen, but paid for.
    BilledEmpty,
    /// What would be done next, without a call that does it.
    Announced,
    /// A tool call that is written into the text.
    TextCall,
    /// The end of an answer with tool calls, without a call.
    ToolStop,
    /// A tool call without a name and an id.
    Nameless,
    /// A tool call whose arguments are nothing but blanks.
    BlankArguments,
    /// What images came with the request.
    ImageSeen,
    /// A sentence with terminal escapes.
    Escapes,
    /// A sentence between frames that nobody knows.
    UnknownFrames,
    /// Thousands of pieces.
    Long,
    /// The prompt, twice: a summary that is longer than what it sums up.
    LongSummary,
    /// Calls of the tools that the prompt names, one step after the other, then what came of them or what the prompt
    /// has it say. Asked to summarise a conversation, it tells which of its steps are left; asked to judge, it judges.
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

    /// Whether the output limit ends such an answer.
    pub(crate) fn hits_output_limit(self) -> bool {
        matches!(
            self,
            Self::Length | Self::LengthReasoning | Self::LengthCall | Self::LengthEmpty
        )
    }
}
