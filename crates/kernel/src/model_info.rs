//! The capabilities of models, as data: their windows, and the ways to continue a completion that was cut off.
//!
//! A model is found by the longest name in the table that its own name begins with. The table holds only certain facts:
//! an unknown model has no window, and its partial completion is quoted to it.
//! Not here: a server's own statement about its window (see `overflow`), which has precedence.

pub mod overflow;

use serde::{Deserialize, Serialize};

/// The capabilities of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// The maximum number of tokens of the conversation and the completion together, where it is known.
    pub window: Option<u64>,
    /// The way to continue a completion that was cut off.
    pub continues_by: ContinueBy,
}

impl Default for Capabilities {
    /// Returns the capabilities of an unknown model.
    fn default() -> Self {
        Self {
            window: None,
            continues_by: ContinueBy::Prompt,
        }
    }
}

/// The way to continue an answer that was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ContinueBy {
    /// The provider continues the answer without a connection, and its stream is resumed at the cut.
    Resume,
    /// The partial answer is sent back as the beginning of the answer, and the model continues after its last
    /// character.
    Prefill,
    /// The partial answer is sent back as an answer, and a prompt asks the model to continue.
    Prompt,
    /// The partial answer is dropped, and the request is sent again.
    Restart,
}

impl ContinueBy {
    /// All ways, the one that loses the least first.
    pub const ALL: [Self; 4] = [Self::Resume, Self::Prefill, Self::Prompt, Self::Restart];

    /// Returns the name, as it is written down and configured.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Resume => "resume",
            Self::Prefill => "prefill",
            Self::Prompt => "prompt",
            Self::Restart => "restart",
        }
    }

    /// Returns the way in words, for a person who reads on where a completion was cut off.
    pub const fn phrase(self) -> &'static str {
        match self {
            Self::Resume => "its stream is taken up",
            Self::Prefill => "after its own words",
            Self::Prompt => "as the model was asked to",
            Self::Restart => "from the beginning",
        }
    }

    /// Returns the way with that name.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.as_str() == word)
    }
}

/// One model, or a family whose names begin alike.
struct ModelFamily {
    name: &'static str,
    window: Option<u64>,
    /// The best way to continue, and the dialect in which it works; in any other dialect only the prompt works.
    best_continuation: Option<(&'static str, ContinueBy)>,
}

const fn row(
    name: &'static str,
    window: u64,
    best_continuation: Option<(&'static str, ContinueBy)>,
) -> ModelFamily {
    let window = if window == 0 { None } else { Some(window) };
    ModelFamily {
        name,
        window,
        best_continuation,
    }
}

const PREFILL: Option<(&str, ContinueBy)> = Some(("anthropic", ContinueBy::Prefill));
const RESUME: Option<(&str, ContinueBy)> = Some(("openai-responses", ContinueBy::Resume));
const UNKNOWN: u64 = 0;

/// Names in lower case, with dashes in those of Claude.
#[rustfmt::skip]
const MODELS: &[ModelFamily] = &[
    row("claude-2", 100_000, PREFILL),
    row("claude-2-1", 200_000, PREFILL),
    row("claude-3", 200_000, PREFILL),
    row("claude-sonnet-4-0", 200_000, PREFILL),
    row("claude-sonnet-4-20250514", 200_000, PREFILL),
    row("claude-sonnet-4-5", 200_000, PREFILL),
    row("claude-opus-4-0", 200_000, PREFILL),
    row("claude-opus-4-20250514", 200_000, PREFILL),
    row("claude-opus-4-1", 200_000, PREFILL),
    row("claude-opus-4-5", 200_000, PREFILL),
    row("claude-haiku-4-5", 200_000, PREFILL),
    // From here on the API refuses a last message of the assistant.
    row("claude-sonnet-4-6", 1_000_000, None),
    row("claude-opus-4-6", 1_000_000, None),
    row("claude-opus-4-7", 1_000_000, None),
    row("claude-opus-4-8", 1_000_000, None),
    row("claude-sonnet-5", 1_000_000, None),
    row("claude-opus-5", 1_000_000, None),

    row("gpt", UNKNOWN, RESUME),
    row("gpt-3.5-turbo", 16_385, RESUME),
    row("gpt-4", 8_192, RESUME),
    row("gpt-4-32k", 32_768, RESUME),
    row("gpt-4-turbo", 128_000, RESUME),
    row("gpt-4-1106", 128_000, RESUME),
    row("gpt-4-0125", 128_000, RESUME),
    row("gpt-4-vision", 128_000, RESUME),
    row("gpt-4o", 128_000, RESUME),
    row("gpt-4.1", 1_047_576, RESUME),
    row("gpt-4.5", 128_000, RESUME),
    row("gpt-5", 400_000, RESUME),
    row("gpt-5-chat", 128_000, RESUME),
    row("gpt-5.1", 400_000, RESUME),
    row("gpt-5.1-chat", 128_000, RESUME),
    row("gpt-5.2", 400_000, RESUME),
    row("gpt-5.2-chat", 128_000, RESUME),
    row("gpt-5.3", 400_000, RESUME),
    row("gpt-5.3-chat", 128_000, RESUME),
    row("gpt-5.4", 1_050_000, RESUME),
    row("gpt-5.4-mini", 400_000, RESUME),
    row("gpt-5.4-nano", 400_000, RESUME),
    row("gpt-oss", 131_072, None),
    row("o1", 200_000, RESUME),
    row("o1-mini", 128_000, RESUME),
    row("o1-preview", 128_000, RESUME),
    row("o3", 200_000, RESUME),
    row("o4-mini", 200_000, RESUME),

    row("deepseek-chat", 131_072, None),
    row("deepseek-reasoner", 131_072, None),
    row("mistral-large", 131_072, None),
    row("gemini-1.5-flash", 1_048_576, None),
    row("gemini-1.5-pro", 2_097_152, None),
    row("gemini-2.0-flash", 1_048_576, None),
    row("gemini-2.5", 1_048_576, None),
    row("gemini-3", 1_048_576, None),
    row("llama-3.1", 131_072, None),
    row("llama-3.3", 131_072, None),
];

/// Returns the capabilities of a model in that dialect (`anthropic`, `openai`, `openai-responses`).
///
/// ```
/// use outlast_kernel::model_info::{ContinueBy, capabilities};
///
/// let old = capabilities("anthropic", "claude-sonnet-4-5-20250929");
/// assert_eq!((old.window, old.continues_by), (Some(200_000), ContinueBy::Prefill));
/// assert_eq!(capabilities("anthropic", "claude-opus-4-6").continues_by, ContinueBy::Prompt);
/// ```
pub fn capabilities(provider: &str, model: &str) -> Capabilities {
    let name = plain_name(model);
    let known = MODELS.iter().filter(|row| is_in_family(&name, row.name));
    let known = known.max_by_key(|row| row.name.len());
    let best = known.and_then(|row| row.best_continuation);
    Capabilities {
        window: known.and_then(|row| row.window),
        continues_by: match best {
            Some((dialect, way)) if dialect == provider => way,
            _ => ContinueBy::Prompt,
        },
    }
}

/// Returns the name in the form of the table: gateways put the maker in front, and some write versions of Claude with
/// a dot.
fn plain_name(model: &str) -> String {
    let name = model.rsplit('/').next().unwrap_or(model);
    let name = name.to_ascii_lowercase();
    match name.starts_with("claude") {
        true => name.replace('.', "-"),
        false => name,
    }
}

/// Returns whether a name is that of a family, or continues it: `gpt-4` is not the beginning of `gpt-4o`.
fn is_in_family(name: &str, family: &str) -> bool {
    let rest = name.strip_prefix(family);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', ':', '@']))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The dialect, the model, its window (0 is none) and the way to continue.
    #[rustfmt::skip]
    const TABLE: &[(&str, &str, u64, ContinueBy)] = &[
        ("anthropic", "claude-3-haiku-20240307", 200_000, ContinueBy::Prefill),
        ("anthropic", "claude-3-5-sonnet-latest", 200_000, ContinueBy::Prefill),
        ("anthropic", "claude-sonnet-4-20250514", 200_000, ContinueBy::Prefill),
        ("anthropic", "claude-opus-4-0", 200_000, ContinueBy::Prefill),
        ("anthropic", "claude-opus-4-1@20250805", 200_000, ContinueBy::Prefill),
        ("anthropic", "claude-sonnet-4-5", 200_000, ContinueBy::Prefill),
        ("anthropic", "claude-haiku-4-5-20251001", 200_000, ContinueBy::Prefill),
        ("anthropic", "claude-opus-4-6", 1_000_000, ContinueBy::Prompt),
        ("anthropic", "claude-sonnet-4-6", 1_000_000, ContinueBy::Prompt),
        ("anthropic", "claude-opus-4-7-20260101", 1_000_000, ContinueBy::Prompt),
        ("anthropic", "claude-sonnet-5-5", 1_000_000, ContinueBy::Prompt),
        ("anthropic", "claude-opus-4-9", 0, ContinueBy::Prompt),
        ("anthropic", "claude-something-new", 0, ContinueBy::Prompt),
        ("anthropic", "claude-21", 0, ContinueBy::Prompt),
        ("openai", "anthropic/claude-sonnet-4.5", 200_000, ContinueBy::Prompt),
        ("openai", "anthropic/Claude-Sonnet-4.6", 1_000_000, ContinueBy::Prompt),
        ("openai", "gpt-4", 8_192, ContinueBy::Prompt),
        ("openai", "gpt-4-0613", 8_192, ContinueBy::Prompt),
        ("openai", "gpt-4-turbo-2024-04-09", 128_000, ContinueBy::Prompt),
        ("openai", "gpt-4o-mini", 128_000, ContinueBy::Prompt),
        ("openai", "gpt-4.1-nano", 1_047_576, ContinueBy::Prompt),
        ("openai", "gpt-3.5-turbo-0125", 16_385, ContinueBy::Prompt),
        ("openai-responses", "gpt-5-codex", 400_000, ContinueBy::Resume),
        ("openai-responses", "gpt-5.2", 400_000, ContinueBy::Resume),
        ("openai-responses", "gpt-5-chat-latest", 128_000, ContinueBy::Resume),
        ("openai-responses", "gpt-5.4-pro", 1_050_000, ContinueBy::Resume),
        ("openai-responses", "gpt-5.9", 0, ContinueBy::Resume),
        ("openai-responses", "gpt-6", 0, ContinueBy::Resume),
        ("openai-responses", "o3-mini", 200_000, ContinueBy::Resume),
        ("openai-responses", "o4-mini", 200_000, ContinueBy::Resume),
        ("openai-responses", "gpt-oss-120b", 131_072, ContinueBy::Prompt),
        ("openai-responses", "some-local-model", 0, ContinueBy::Prompt),
        ("openai", "deepseek-chat", 131_072, ContinueBy::Prompt),
        ("openai", "meta-llama/llama-3.1-8b-instruct", 131_072, ContinueBy::Prompt),
        ("openai", "google/gemini-2.5-pro", 1_048_576, ContinueBy::Prompt),
        ("openai", "o1x", 0, ContinueBy::Prompt),
        ("openai", "", 0, ContinueBy::Prompt),
    ];

    #[test]
    fn model_matches_longest_name_prefix() {
        for (provider, model, window, continues_by) in TABLE {
            let expected = Capabilities {
                window: Some(*window).filter(|window| *window > 0),
                continues_by: *continues_by,
            };
            assert_eq!(
                capabilities(provider, model),
                expected,
                "{provider} {model}"
            );
        }
    }

    #[test]
    fn every_table_name_matches_itself() {
        for row in MODELS {
            assert_eq!(
                capabilities("", row.name).window,
                row.window,
                "{}",
                row.name
            );
            assert_eq!(plain_name(row.name), row.name);
        }
    }

    #[test]
    fn continue_by_name_is_its_serialized_form() {
        for way in ContinueBy::ALL {
            let written = serde_json::to_string(&way).unwrap();
            assert_eq!(written, format!("\"{}\"", way.as_str()));
            assert_eq!(ContinueBy::named(way.as_str()), Some(way));
        }
        assert_eq!(ContinueBy::named("hope"), None);
    }
}
