//! The entries that a turn writes to its journal, and when.

use crate::journaled::{Case, retry_then_tools_script, step, write_succeeds};
use crate::scripted_transport::question;
use crate::support::{
    AfterItems, START, ScriptedProvider, clock, failure_item, hello, overloaded, stop, text,
};
use outlast_dialect::Delta;
use outlast_engine::journal::Entry;
use outlast_engine::run_turn;
use outlast_engine::turn::{Handle, Turn};
use outlast_kernel::budget::Limits;
use outlast_kernel::event::{Body, StopReason, TurnStatus};
use std::time::Duration;

// --- Before any action ---

#[tokio::test(start_paused = true)]
async fn journal_write_precedes_action_and_event() {
    let came = Case::new(retry_then_tools_script(), write_succeeds)
        .run()
        .await;
    assert_eq!(
        (came.ended.seal, came.ended.is_recorded),
        (TurnStatus::Completed, true)
    );
    let expected = [
        "say start",
        "write prompt",
        "say input",
        "write attempt_started",
        "say attempt_started",
        "call",
        "write attempt_failed wait_scheduled",
        "say retry_scheduled",
        "sleep 2",
        "write wait_ended attempt_started",
        "say attempt_started",
        "call",
        "say tool_call",
        "say tool_call",
        "write message",
        "say step_complete",
        "say retry_ended",
        "write tool_started",
        "say tool_started",
        "run read",
        "write tool_finished",
        "say tool_result",
        "write tool_started",
        "say tool_started",
        "run send",
        "write tool_finished",
        "say tool_result",
        "write attempt_started",
        "say attempt_started",
        "call",
        "say text_delta",
        "write message settled",
        "say step_complete",
        "say done",
        "say sealed",
    ];
    assert_eq!(came.log, expected);
}

#[tokio::test(start_paused = true)]
async fn every_turn_is_settled_exactly_once_however_it_ends() {
    type React = fn(&Body, &Handle);
    let failing = || vec![failure_item(overloaded())];
    let at_wait: React = |body, handle| {
        if matches!(body, Body::RetryScheduled { .. }) {
            handle.abort();
        }
    };
    let retry_at_wait: React = |body, handle| {
        if matches!(body, Body::RetryScheduled { .. }) {
            handle.abort_retry();
        }
    };
    let at_text: React = |body, handle| {
        if matches!(body, Body::TextDelta { .. }) {
            handle.abort();
        }
    };
    let at_tool: React = |body, handle| {
        if matches!(body, Body::ToolStarted { .. }) {
            handle.abort();
        }
    };
    let at_start: React = |body, handle| {
        if matches!(body, Body::Start { .. }) {
            handle.abort();
        }
    };
    let nothing: React = |_, _| {};
    let (text, end, hang) = (vec![text("Hel")], AfterItems::End, AfterItems::Hang);
    let cut = vec![
        step(&["send"])[0].clone(),
        Ok(Delta::Stopped(StopReason::Length)),
    ];
    for (name, script, react, seal) in [
        (
            "answered",
            vec![(hello(), end)],
            nothing,
            TurnStatus::Completed,
        ),
        (
            "with tools",
            vec![(step(&["read"]), end), (hello(), end)],
            nothing,
            TurnStatus::Completed,
        ),
        (
            "cut short",
            vec![(cut, end)],
            nothing,
            TurnStatus::Completed,
        ),
        ("spent", vec![(failing(), end)], nothing, TurnStatus::Error),
        (
            "after content",
            vec![([text.clone(), failing()].concat(), end)],
            nothing,
            TurnStatus::Error,
        ),
        (
            "too late in a stream",
            vec![(text.clone(), hang)],
            nothing,
            TurnStatus::Error,
        ),
        (
            "too late in a tool",
            vec![(step(&["hang"]), end), (hello(), end)],
            nothing,
            TurnStatus::Error,
        ),
        (
            "aborted at once",
            vec![(hello(), end)],
            at_start,
            TurnStatus::Aborted,
        ),
        (
            "aborted in a stream",
            vec![(text, hang)],
            at_text,
            TurnStatus::Aborted,
        ),
        (
            "aborted in a wait",
            vec![(failing(), end)],
            at_wait,
            TurnStatus::Aborted,
        ),
        (
            "aborted in a tool",
            vec![(step(&["hang", "read"]), end)],
            at_tool,
            TurnStatus::Aborted,
        ),
        (
            "without its retry",
            vec![(failing(), end)],
            retry_at_wait,
            TurnStatus::Error,
        ),
    ] {
        let limits = Limits {
            deadline: Some(START + Duration::from_secs(60)),
            ..Limits::default()
        };
        let case = Case {
            limits,
            react,
            ..Case::new([], write_succeeds)
        };
        let came = Case { script, ..case }.run().await;
        assert_eq!(
            (came.ended.seal, came.ended.is_recorded),
            (seal, true),
            "{name}"
        );
        let kinds = came.kinds();
        let settled = kinds.iter().filter(|kind| **kind == "settled").count();
        assert_eq!(
            (settled, kinds.last()),
            (1, Some(&"settled")),
            "{name}: {kinds:?}"
        );
        assert_eq!(kinds[0], "prompt", "{name}");
        let Some(Entry::Settled {
            seal: written,
            error,
            ..
        }) = came.written.last()
        else {
            panic!("{name}");
        };
        assert_eq!(
            (*written, error.is_some()),
            (seal, seal == TurnStatus::Error),
            "{name}"
        );
        assert_eq!(came.count("say sealed"), 1, "{name}");
        // Each call and each tool that began has an end, too.
        let count = |wanted: &str| kinds.iter().filter(|kind| **kind == wanted).count();
        assert_eq!(
            count("attempt_started"),
            count("attempt_failed") + count("message"),
            "{name}"
        );
        assert_eq!(count("wait_scheduled"), count("wait_ended"), "{name}");
        assert!(count("tool_started") <= count("tool_finished"), "{name}");
    }
}

// --- Further cases ---

#[tokio::test(start_paused = true)]
async fn a_turn_without_a_journal_counts_as_recorded() {
    let provider = ScriptedProvider::new([hello()]);
    let (clock, request) = (clock(), question());
    let turn = Turn::new(&provider, request, &*clock);
    let ended = run_turn(turn, &mut |_| {}).await;
    assert!(ended.is_recorded);
}

#[tokio::test(start_paused = true)]
async fn failed_attempt_is_journaled_with_text_and_verdict() {
    let broken = vec![text("Hel"), failure_item(overloaded())];
    let came = Case::new([broken, vec![stop()]], write_succeeds)
        .run()
        .await;
    let Some(Entry::AttemptFailed {
        attempt,
        judged: Some(judged),
        message,
        ..
    }) = came.written.get(2)
    else {
        panic!("{:?}", came.written);
    };
    assert_eq!((*attempt, message.text().as_str()), (1, "Hel"));
    assert_eq!(judged.failure.message, overloaded().message);
}
