//! The scripted agent in the loop of a real one: every turn has its own provider, as after a restart.

use crate::answers::{provider, send};
use crate::turns::play_request;
use outlast_dialect::{Dialect, Message, Part, Request, Role, ToolResult};
use outlast_kernel::event::{StopReason, TurnStatus};

const PLAN: &str = "Please do this:\n\
    call read {\"path\": \"a.txt\"}\n\
    and read {\"path\": \"b.txt\"}\n\
    call bash {\"command\": \"echo one two\"}\n\
    Thank you.";

/// Returns the calls with their ids, and the final text, when every tool returns its arguments.
async fn converse(dialect: Dialect, request: &mut Request) -> (Vec<String>, String) {
    let mut called = Vec::new();
    loop {
        let ended = play_request(dialect, request, "session").await.outcome;
        assert_eq!(ended.seal, TurnStatus::Completed, "{dialect:?}");
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
async fn agent_runs_plan_step_by_step_in_every_dialect() {
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

/// Returns the scripted agent's summary of a transcript.
async fn summarise(dialect: Dialect, transcript: &str) -> String {
    let mut request = Request {
        model: "ok:agent,times=always".to_owned(),
        system: Some("Summarise the conversation, briefly.".to_owned()),
        messages: vec![Message::user(transcript)],
        ..Request::default()
    };
    let (called, said) = converse(dialect, &mut request).await;
    assert!(called.is_empty(), "{dialect:?}: {called:?}");
    said
}

#[tokio::test(start_paused = true)]
async fn agent_resumes_remaining_steps_from_summary() {
    let transcript = "What was said:\n\
        | user: Please do this:\n\
        | call read {\"path\": \"a.txt\"}\n\
        | call read {\"path\": \"b.txt\"}\n\
        | call read {\"path\": \"c.txt\"}\n\
        | call read {\"path\": \"d.txt\"}\n\
        | and read {\"path\": \"e.txt\"}\n\
        | assistant: Step 1.\n\
        | tool read {\"path\": \"a.txt\"}: hello\n";
    for dialect in Dialect::ALL {
        let summary = summarise(dialect, transcript).await;
        assert!(summary.starts_with("Summary of 2 messages.\ncall read"));
        let mut request = Request {
            model: "ok:agent,times=always".to_owned(),
            messages: vec![Message::user(format!(
                "So far:\n{summary}\n\nThe prompt was:\ncall read {{\"path\": \"a.txt\"}}"
            ))],
            ..Request::default()
        };
        let (called, said) = converse(dialect, &mut request).await;
        let arguments: Vec<&str> = called
            .iter()
            .filter_map(|call| Some(call.split_once(" read ")?.1))
            .collect();
        let expected = ["b", "c", "d", "e"].map(|name| format!("{{\"path\": \"{name}.txt\"}}"));
        assert_eq!(arguments, expected, "{dialect:?}");
        assert!(said.starts_with("Done after 3 steps."), "{said}");
        // Ids from before the summary are not repeated.
        assert!(
            called.iter().all(|call| !call.contains(" call_1_")),
            "{called:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn steps_kept_after_summary_count_as_done() {
    for dialect in Dialect::ALL {
        let mut request = Request {
            model: "ok:agent,times=always".to_owned(),
            messages: vec![Message::user(
                "Summary of 9 messages.\ncall read {\"path\": \"z.txt\"}",
            )],
            ..Request::default()
        };
        let (called, _) = converse(dialect, &mut request).await;
        assert_eq!(called.len(), 1, "{dialect:?}");
        // The last completion is missing: all steps are done, so the final text is sent again.
        request.messages.pop();
        let (called, said) = converse(dialect, &mut request).await;
        assert!(called.is_empty(), "{dialect:?}: {called:?}");
        assert!(said.starts_with("Done after 1 steps."), "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn non_agent_completion_ignores_summary_request() {
    let mut request = Request {
        model: "ok".to_owned(),
        system: Some("Summarise the conversation.".to_owned()),
        messages: vec![Message::user("| user: Hi")],
        ..Request::default()
    };
    let (_, said) = converse(Dialect::Anthropic, &mut request).await;
    assert!(
        said.starts_with("Hello from the scripted provider"),
        "{said}"
    );
}

#[tokio::test(start_paused = true)]
async fn agent_follows_system_script_for_each_prompt() {
    let system = "You write plans.\nscript:\nsay a draft\nthen\ncall look {}\nsay a plan\n";
    for dialect in Dialect::ALL {
        let mut request = Request {
            model: "ok:agent,times=always".to_owned(),
            system: Some(system.to_owned()),
            ..Request::default()
        };
        for (expected, looks) in [("a draft", 0), ("a plan", 1), ("a plan", 1)] {
            request.messages.push(Message::user("say nothing of this"));
            let (called, said) = converse(dialect, &mut request).await;
            assert_eq!(said, expected, "{dialect:?}");
            assert_eq!(called.len(), looks, "{dialect:?}");
        }
        request.system = None;
        request.messages.push(Message::user("call look\nsay done"));
        let (_, said) = converse(dialect, &mut request).await;
        assert_eq!(said, "done", "{dialect:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn completions_of_a_conversation_have_unique_ids() {
    let script = "ok:agent,times=always";
    let mut request = Request {
        model: script.to_owned(),
        messages: vec![Message::user("call look")],
        ..Request::default()
    };
    let mut ids = Vec::new();
    for _ in 0..2 {
        let (_, body) = send(&provider(script), Dialect::Anthropic, &request).await;
        let (_, id) = body.split_once("\"id\":\"").unwrap();
        ids.push(id.split('"').next().unwrap().to_owned());
        let (_, said) = converse(Dialect::Anthropic, &mut request).await;
        assert!(!said.is_empty());
        request.messages.push(Message::user("call look"));
    }
    assert_ne!(ids[0], ids[1]);
}
