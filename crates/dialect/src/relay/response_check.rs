//! Accepts most whole responses without decoding them: those that are plainly fine. The others are decoded as usual.
//!
//! Invariant: a response that is fine here is fine for the decoder. Nothing is copied, and no value is built for unused
//! fields.

use crate::Dialect;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// Returns whether that body is certainly a completion.
pub(super) fn is_valid(dialect: Dialect, body: &[u8]) -> bool {
    match dialect {
        Dialect::OpenaiChat => {
            serde_json::from_slice(body).is_ok_and(|read: Completion<'_>| read.is_valid())
        }
        Dialect::Anthropic => {
            serde_json::from_slice(body).is_ok_and(|read: Message<'_>| read.is_valid())
        }
        Dialect::OpenaiResponses => false,
    }
}

#[derive(Deserialize)]
struct Completion<'a> {
    /// One choice, the usual number.
    #[serde(borrow)]
    choices: (Choice<'a>,),
    error: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(default)]
    index: u64,
    #[serde(borrow)]
    message: ChatMessage<'a>,
    finish_reason: &'a str,
    error: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct ChatMessage<'a> {
    #[serde(borrow)]
    content: &'a RawValue,
    tool_calls: Option<IgnoredAny>,
    function_call: Option<IgnoredAny>,
}

impl Completion<'_> {
    fn is_valid(&self) -> bool {
        let (choice,) = &self.choices;
        let said = &choice.message;
        self.error.is_none()
            && choice.error.is_none()
            && choice.index == 0
            && matches!(choice.finish_reason, "stop" | "length")
            && said.content.get().starts_with('"')
            && said.tool_calls.is_none()
            && said.function_call.is_none()
    }
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    content: &'a RawValue,
    error: Option<IgnoredAny>,
}

impl Message<'_> {
    fn is_valid(&self) -> bool {
        self.content.get().starts_with('[') && self.error.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_kernel::Timestamp;

    const CHAT: [(&str, bool); 12] = [
        (
            r#"{"id":"1","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}],"usage":{}}"#,
            true,
        ),
        (
            r#" {"choices":[{"message":{"content":""},"finish_reason":"length"}],"error":null} "#,
            true,
        ),
        (
            r#"{"choices":[{"message":{"content":"\ud83d"},"finish_reason":"stop"}]}"#,
            true,
        ),
        (
            r#"{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}],"error":{"message":"no"}}"#,
            false,
        ),
        (
            r#"{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop","error":{"code":1}}]}"#,
            false,
        ),
        (
            r#"{"choices":[{"message":{"content":"Hi"},"finish_reason":"error"}]}"#,
            false,
        ),
        (
            r#"{"choices":[{"message":{"content":"Hi"},"finish_reason":null}]}"#,
            false,
        ),
        (
            r#"{"choices":[{"message":{"content":null,"tool_calls":[]},"finish_reason":"tool_calls"}]}"#,
            false,
        ),
        (
            r#"{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]"#,
            false,
        ),
        (r#"{"choices":[]}"#, false),
        (r#"{"error":{"message":"Overloaded"}}"#, false),
        ("", false),
    ];
    const MESSAGES: [(&str, bool); 6] = [
        (
            r#"{"type":"message","content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn","usage":{}}"#,
            true,
        ),
        (r#"{"content":[],"error":null}"#, true),
        (
            r#"{"content":[{"type":"text","text":"Hi"}],"error":{"type":"overloaded_error"}}"#,
            false,
        ),
        (
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            false,
        ),
        (r#"{"content":"Hi"}"#, false),
        (r#"{"content":[{"type":"text"#, false),
    ];

    #[test]
    fn fast_check_accepts_only_decodable_responses() {
        let all = CHAT.map(|case| (Dialect::OpenaiChat, case));
        let all = all.into_iter();
        for (dialect, (body, fine)) in all.chain(MESSAGES.map(|case| (Dialect::Anthropic, case))) {
            assert_eq!(is_valid(dialect, body.as_bytes()), fine, "{body}");
            let read = dialect.decode_response("p", body, Timestamp::default());
            assert!(!fine || read.is_ok(), "{body}: {read:?}");
        }
    }
}
