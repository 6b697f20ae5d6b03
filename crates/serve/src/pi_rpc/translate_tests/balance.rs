//! Property test: whatever the sequence of events, everything that begins ends.

use super::script::{Step, frames_of};
use outlast_kernel::Timestamp;
use outlast_kernel::event::{
    Body, CompactionReason, Reasoning, StopReason, ToolCall, TurnStatus, Usage,
};
use outlast_kernel::model_info::ContinueBy;
use outlast_kernel::verdict::{Cause, Class};
use proptest::prelude::*;
use serde_json::Value;

/// The items that are open after the frames so far.
#[derive(Default)]
struct Open {
    run: bool,
    turn: bool,
    message: Option<String>,
    block: Option<(String, u64)>,
    tools: Vec<String>,
}

impl Open {
    fn check(&mut self, frame: &Value) {
        match frame["type"].as_str().unwrap() {
            "agent_start" => assert!(!std::mem::replace(&mut self.run, true), "{frame}"),
            "agent_end" => {
                assert!(!self.turn, "{frame}");
                assert!(std::mem::take(&mut self.run), "{frame}");
            }
            "agent_settled" => assert!(!self.run, "{frame}"),
            "turn_start" => {
                assert!(self.run, "{frame}");
                assert!(!std::mem::replace(&mut self.turn, true), "{frame}");
            }
            "turn_end" => {
                assert!(self.message.is_none(), "{frame}");
                assert!(std::mem::take(&mut self.turn), "{frame}");
            }
            "message_start" => {
                assert!(self.turn && self.message.is_none(), "{frame}");
                self.message = Some(frame["message"]["role"].to_string());
            }
            "message_end" => {
                assert_eq!(
                    self.message.take(),
                    Some(frame["message"]["role"].to_string())
                );
                assert_eq!(self.block, None, "{frame}");
            }
            "message_update" => self.update(&frame["assistantMessageEvent"]),
            "tool_execution_start" => self.tools.push(frame["toolCallId"].to_string()),
            "tool_execution_end" => {
                let id = frame["toolCallId"].to_string();
                let started = self.tools.iter().position(|tool| *tool == id);
                self.tools.remove(started.unwrap());
            }
            _ => {}
        }
    }

    fn update(&mut self, update: &Value) {
        assert_eq!(self.message.as_deref(), Some("\"assistant\""), "{update}");
        let (kind, what) = update["type"].as_str().unwrap().split_once('_').unwrap();
        let block = (kind.to_owned(), update["contentIndex"].as_u64().unwrap());
        match what {
            "start" => assert_eq!(self.block.replace(block), None, "{update}"),
            "delta" => assert_eq!(self.block, Some(block), "{update}"),
            _ => assert_eq!(self.block.take(), Some(block), "{update}"),
        }
        let blocks = update["partial"]["content"].as_array().unwrap().len();
        assert_eq!(update["contentIndex"].as_u64().unwrap() + 1, blocks as u64);
    }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[a-c\n\"\u{2028}]{1,3}"]
}

fn id() -> impl Strategy<Value = String> {
    "[ab]"
}

const UNTIL: Timestamp = Timestamp::from_millis(1_800_000_001_000);

fn content() -> impl Strategy<Value = Body> {
    prop_oneof![
        text().prop_map(|text| Body::TextDelta { text }),
        text().prop_map(|text| Body::ReasoningDelta { text }),
        text().prop_map(|text| Body::ReasoningDone(Reasoning {
            text,
            ..Reasoning::default()
        })),
        (id(), text()).prop_map(|(id, arguments)| Body::ToolCall(ToolCall {
            id,
            name: "read".to_owned(),
            arguments,
        })),
        id().prop_map(|id| Body::ToolStarted {
            id,
            name: "read".to_owned(),
        }),
        (id(), text()).prop_map(|(id, output)| Body::ToolResult {
            id,
            output,
            is_error: false,
        }),
        Just(Body::Usage(Usage::default())),
    ]
}

fn progress_events() -> impl Strategy<Value = Body> {
    let stop = prop_oneof![
        Just(StopReason::EndTurn),
        Just(StopReason::ToolUse),
        Just(StopReason::Refusal)
    ];
    let status = prop_oneof![
        Just(TurnStatus::Completed),
        Just(TurnStatus::Error),
        Just(TurnStatus::Aborted)
    ];
    prop_oneof![
        Just(Body::Start {
            provider: "mock".to_owned(),
            model: "m1".to_owned(),
        }),
        text().prop_map(|text| Body::Input { text }),
        Just(Body::AttemptStarted { attempt: 1 }),
        stop.prop_map(|stop_reason| Body::StepComplete {
            model: "m1".to_owned(),
            stop_reason,
        }),
        status.prop_map(|status| Body::Sealed { status }),
        Just(Body::Retracted { attempt: 1 }),
        Just(Body::Seam {
            by: ContinueBy::Prompt,
        }),
    ]
}

fn failure_events() -> impl Strategy<Value = Body> {
    let (cause, until) = (Cause::Overloaded, UNTIL);
    let reason = CompactionReason::Overflow;
    prop_oneof![
        text().prop_map(move |message| Body::RetryScheduled {
            attempt: 1,
            max_attempts: None,
            delay_ms: 1,
            retry_at: until,
            cause,
            message,
            code: None,
        }),
        Just(Body::RetryEnded {
            success: true,
            attempt: 1,
            error: None,
        }),
        text().prop_map(move |message| Body::Error {
            class: Class::Transient,
            cause,
            message,
            code: None,
            reason: String::new(),
        }),
        Just(Body::Held { until, cause: None }),
        Just(Body::Account {
            name: "a".to_owned(),
        }),
        Just(Body::ModelSwitched {
            from: "m1".to_owned(),
            to: "m2".to_owned(),
            cause: None,
            until: None,
        }),
        Just(Body::AutoCompactionStarted { reason, tokens: 1 }),
        Just(Body::AutoCompactionEnded {
            reason,
            before: 1,
            after: 1,
            will_retry: true,
            summary: None,
            error: None,
        }),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let event = prop_oneof![content(), progress_events(), failure_events()].prop_map(Step::Event);
    let step = prop_oneof![12 => event, 1 => any::<bool>().prop_map(Step::RunEnded)];
    proptest::collection::vec(step, 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_started_frame_is_ended_for_any_events(mut steps in steps(), aborted: bool) {
        let runs = steps.iter().filter(|step| matches!(step, Step::RunEnded(_))).count() + 1;
        steps.push(Step::RunEnded(aborted));
        let frames = frames_of(steps);
        let mut open = Open::default();
        frames.iter().for_each(|frame| open.check(frame));
        prop_assert!(!open.run && !open.turn && open.message.is_none());
        let settled = frames.iter().filter(|frame| frame["type"] == "agent_settled");
        prop_assert_eq!(settled.count(), runs);
    }
}
