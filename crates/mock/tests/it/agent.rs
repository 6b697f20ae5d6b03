//! The scripted agent in the loop of a real one: every turn has a provider of its own, as after a restart.

use crate::turns::play_request;
use outlast_dialect::{Dialect, Message, Part, Request, Role, ToolResult};
use outlast_kernel::event::{Seal, StopReason};

const PLAN: &str = "Please do this:\n\
    call read {\"path\": \"a.txt\"}\n\
    and read {\"path\": \"b.txt\"}\n\
    call bash {\"command\": \"echo one two\"}\n\
    Thank you.";

/// What was called, with ids, and what was said at the end, when every tool says its arguments.
async fn converse(dialect: Dialect, request: &mut Request) -> (Vec<String>, String) {
    let mut called = Vec::new();
    loop {
        let ended = play_request(dialect, request, "session").await.ended;
        assert_eq!(ended.seal, Seal::Completed, "{dialect:?}");
        let calls: Vec<_> = ended.message.tool_calls().cloned().collect();
        request.messages.push(ended.message.clone());
        if ended.stop_reason != Some(StopReason::ToolUse) {
            assert!(calls.is_empty(), "{dialect:?}: {calls:?}");
            return (called, ended.message.text());
        }
        let said = ended.message.text();
        called.extend(calls.iter().map(|call| {
            let (id, name, arguments) = (&call.id, &call.name, &call.arguments);
            format!("{said} {id} {name} {arguments}")
        }));
        let result = |call: &outlast_kernel::event::ToolCall| {
            Part::ToolResult(ToolResult {
                id: call.id.clone(),
                output: call.arguments.clone(),
                is_error: false,
            })
        };
        request.messages.push(Message {
            role: Role::User,
            parts: calls.iter().map(result).collect(),
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_plan_is_carried_out_step_by_step_in_every_dialect() {
    for dialect in Dialect::ALL {
        let mut request = Request {
            model: "overloaded:2+ok:agent,times=always".to_owned(),
            messages: vec![Message::user(PLAN)],
            ..Request::default()
        };
        let (called, said) = converse(dialect, &mut request).await;
        let expected = [
            r#"Step 1. call_1_0_0 read {"path": "a.txt"}"#,
            r#"Step 1. call_1_0_1 read {"path": "b.txt"}"#,
            r#"Step 2. call_1_1_0 bash {"command": "echo one two"}"#,
        ];
        assert_eq!(called, expected, "{dialect:?}");
        assert_eq!(
            said,
            r#"Done after 2 steps. {"path": "a.txt"} | {"path": "b.txt"} | {"command": "echo one two"}"#,
            "{dialect:?}"
        );

        request.messages.push(Message::user("call read"));
        let (called, said) = converse(dialect, &mut request).await;
        assert_eq!(called, ["Step 1. call_2_0_0 read {}"], "{dialect:?}");
        assert_eq!(said, "Done after 1 steps. {}", "{dialect:?}");

        request.messages.push(Message::user("Thanks"));
        let (called, said) = converse(dialect, &mut request).await;
        assert!(called.is_empty(), "{dialect:?}: {called:?}");
        assert!(said.ends_with("You said: Thanks"), "{dialect:?}: {said}");
    }
}
