//! Completions: any text is judged, loops are found however the text is split into pieces, and any text may state a
//! window.

use outlast_kernel::Timestamp;
use outlast_kernel::completion::{FinishedCompletion, ReasoningKind, check_completion};
use outlast_kernel::event::{StopReason, ToolCall, Usage};
use outlast_kernel::failure::Failure;
use outlast_kernel::loops::{LoopDetector, RepeatedCallCounter};
use outlast_kernel::model_info::overflow::stated_window;

const REASONS: [StopReason; 5] = [
    StopReason::EndTurn,
    StopReason::ToolUse,
    StopReason::Length,
    StopReason::Refusal,
    StopReason::Other,
];

pub(super) fn run(number: u64, choice: u8, text: &str) {
    let call = ToolCall {
        id: String::new(),
        name: text.chars().take(3).collect(),
        arguments: text.to_owned(),
    };
    let calls = [&call];
    let oddity = check_completion(&FinishedCompletion {
        stop_reason: REASONS[usize::from(choice) % REASONS.len()],
        text,
        calls: &calls[..usize::from(choice >> 7)],
        incomplete_calls: &[],
        reasoning: ReasoningKind::NotReplayable,
        usage: Usage {
            input: number,
            output: number,
            ..Usage::default()
        },
        has_tools: choice & 8 > 0,
        window: (choice & 16 > 0).then_some(number),
    });
    if let Some(oddity) = oddity {
        assert!(!oddity.user_message().is_empty());
    }
    stated_window(&Failure::http("p", 400, text, Timestamp::default()));
    RepeatedCallCounter::default().record(&[(&call, text)]);
    let mut whole = LoopDetector::default();
    let at_once = whole.push(text).is_some();
    let mut pieces = LoopDetector::default();
    let mut found = false;
    for character in text.chars() {
        found |= pieces.push(character.encode_utf8(&mut [0; 4])).is_some();
    }
    assert_eq!(at_once, found);
}
