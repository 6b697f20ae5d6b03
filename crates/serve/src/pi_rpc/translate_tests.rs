//! Sequences of events and their frames: one line for each frame, with its message in short form.

#[path = "translate_tests/balance.rs"]
mod balance;
#[path = "translate_tests/golden.rs"]
pub(in crate::pi_rpc) mod golden;
#[path = "translate_tests/script.rs"]
pub(in crate::pi_rpc) mod script;

use script::{Script, brief};

fn frame_summary(script: Script) -> String {
    let frames = script.frames();
    let lines: Vec<String> = frames.iter().map(brief).collect();
    lines.join("\n")
}

#[test]
fn a_plain_prompt_is_one_turn() {
    let script = Script::prompt("hello")
        .attempt()
        .text("he")
        .text("llo")
        .done();
    insta::assert_snapshot!(frame_summary(script.settle(false)));
}

#[test]
fn failed_attempt_ends_turn_and_run_continues() {
    let script = Script::prompt("hello")
        .attempt()
        .retry(1)
        .attempt()
        .text("hi");
    insta::assert_snapshot!(frame_summary(
        script.step().retry_ended(None).sealed().settle(false)
    ));
}

#[test]
fn spent_retries_end_with_detailed_last_failure() {
    let script = Script::prompt("hello")
        .attempt()
        .retry(1)
        .attempt()
        .retry_ended(Some("529 busy"));
    insta::assert_snapshot!(frame_summary(
        script.error("529 busy").failed().settle(false)
    ));
}

#[test]
fn abort_ends_message_midway() {
    let script = Script::prompt("hello")
        .attempt()
        .think("hm")
        .text("One, tw")
        .aborted();
    insta::assert_snapshot!(frame_summary(script.settle(true)));
}

#[test]
fn abort_before_content_gives_empty_message() {
    insta::assert_snapshot!(frame_summary(
        Script::prompt("hello").attempt().aborted().settle(true)
    ));
}

#[test]
fn abort_during_wait_sends_no_further_message() {
    let script = Script::prompt("hello")
        .attempt()
        .retry(1)
        .retry_ended(Some("Retry cancelled"));
    insta::assert_snapshot!(frame_summary(script.aborted().settle(true)));
}

#[test]
fn cancelled_retry_ends_with_earlier_failure() {
    let script = Script::prompt("hello")
        .attempt()
        .retry(1)
        .retry_ended(Some("Retry cancelled"));
    insta::assert_snapshot!(frame_summary(
        script.error("529 busy").failed().settle(false)
    ));
}

#[test]
fn tools_run_in_turn_of_calling_message() {
    let script = Script::prompt("look")
        .attempt()
        .thought("hm", "sig")
        .text("I look.")
        .call("c1", "read");
    let script = script
        .call("c2", "bash")
        .calls()
        .tool("c1", "read", "a")
        .tool("c2", "bash", "b");
    insta::assert_snapshot!(frame_summary(
        script.attempt().text("Done.").done().settle(false)
    ));
}

#[test]
fn refused_tool_starts_and_ends_at_once() {
    let script = Script::prompt("look")
        .attempt()
        .call("c1", "bash")
        .calls()
        .refused("c1");
    insta::assert_snapshot!(frame_summary(
        script.attempt().text("Pity.").done().settle(false)
    ));
}

#[test]
fn steering_between_steps_starts_own_turn() {
    let script = Script::prompt("look")
        .queue(&["left"], &[])
        .attempt()
        .call("c1", "read")
        .calls();
    let script = script
        .tool("c1", "read", "a")
        .queue(&[], &[])
        .input("left")
        .attempt()
        .text("Left.");
    insta::assert_snapshot!(frame_summary(script.done().settle(false)));
}

#[test]
fn steering_before_retry_joins_retry_turn() {
    let script = Script::prompt("look")
        .attempt()
        .retry(1)
        .input("left")
        .attempt()
        .text("Left.");
    insta::assert_snapshot!(frame_summary(
        script.step().retry_ended(None).sealed().settle(false)
    ));
}

#[test]
fn a_follow_up_is_part_of_the_same_run() {
    let script = Script::prompt("one")
        .attempt()
        .text("1")
        .done()
        .start("m1")
        .input("two");
    insta::assert_snapshot!(frame_summary(
        script.attempt().text("2").done().settle(false)
    ));
}

#[test]
fn retracted_message_ends_with_following_failure() {
    let script = Script::prompt("hello")
        .attempt()
        .text("Hel")
        .retracted(1)
        .retry(1)
        .attempt();
    insta::assert_snapshot!(frame_summary(
        script
            .text("Hello")
            .step()
            .retry_ended(None)
            .sealed()
            .settle(false)
    ));
}

#[test]
fn message_after_seam_starts_with_kept_text() {
    let script = Script::prompt("count")
        .attempt()
        .text("One, ")
        .retry(1)
        .attempt()
        .retry(2);
    let script = script
        .attempt()
        .seam()
        .text("two")
        .step()
        .retry_ended(None)
        .sealed();
    insta::assert_snapshot!(frame_summary(script.settle(false)));
}

#[test]
fn resumed_turn_replays_kept_text_and_tool_calls() {
    let kept = Script::prompt("count")
        .text("One, ")
        .attempt()
        .seam()
        .text("two")
        .done();
    let calls = Script::prompt("look")
        .call("c1", "read")
        .tool("c1", "read", "a")
        .attempt();
    let calls = calls.text("Done.").done();
    insta::assert_snapshot!(
        [
            frame_summary(kept.settle(false)),
            frame_summary(calls.settle(false))
        ]
        .join("\n\n")
    );
}

#[test]
fn an_overflow_is_a_failed_turn_and_then_a_compaction() {
    let script = Script::prompt("hello")
        .attempt()
        .compaction(Some("summary"), None);
    insta::assert_snapshot!(frame_summary(
        script.attempt().text("hi").done().settle(false)
    ));
}

#[test]
fn unsolved_overflow_is_reported_once() {
    let script = Script::prompt("hello")
        .attempt()
        .compaction(None, Some("nobody is there"));
    insta::assert_snapshot!(frame_summary(
        script.overflow("400 too long").failed().settle(false)
    ));
}

#[test]
fn manual_compaction_is_not_a_run() {
    let script = Script::new().by_hand(Some("summary"), None);
    let script = script.by_hand(None, Some("the conversation is as it was: cancelled"));
    insta::assert_snapshot!(frame_summary(script));
}

#[test]
fn fallback_model_runs_in_turn_after_failure() {
    let script = Script::prompt("hello")
        .attempt()
        .switched("m1", "m2")
        .attempt()
        .text("hi");
    insta::assert_snapshot!(frame_summary(script.step_of("m2").sealed().settle(false)));
}

#[test]
fn holds_blocks_and_warnings_are_shown_to_user() {
    let script = Script::prompt("hello")
        .held()
        .held()
        .attempt()
        .blocked()
        .retry(1)
        .attempt();
    let script = script
        .text("ok")
        .warning()
        .unrecorded()
        .step()
        .corrected()
        .attempt()
        .billed_twice();
    insta::assert_snapshot!(frame_summary(script.text("ok").done().settle(false)));
}

#[test]
fn invalid_completion_ends_with_its_problem() {
    let script = Script::prompt("hello")
        .attempt()
        .text("I will")
        .corrected()
        .attempt()
        .text("hi");
    insta::assert_snapshot!(frame_summary(script.done().settle(false)));
}

#[test]
fn failure_without_call_gets_its_own_turn() {
    let script = Script::prompt("look")
        .attempt()
        .call("c1", "read")
        .calls()
        .tool("c1", "read", "a");
    insta::assert_snapshot!(frame_summary(
        script.error("no time is left").failed().settle(false)
    ));
}

#[test]
fn unstarted_prompt_still_completes() {
    insta::assert_snapshot!(frame_summary(Script::new().settle(false).settle(true)));
}

#[test]
fn rename_queue_and_refusal_frames_are_encoded() {
    let script = Script::new()
        .renamed("n1")
        .queue(&["a", "b"], &["c"])
        .refusal()
        .settle(false);
    insta::assert_snapshot!(frame_summary(script));
}

#[test]
fn agent_end_of_failed_run_has_failure_details() {
    let script = Script::prompt("hello")
        .attempt()
        .retry(1)
        .retry_ended(Some("Retry cancelled"));
    let frames = script.error("529 busy").failed().settle(false).frames();
    let end = frames.iter().find(|frame| frame["type"] == "agent_end");
    let last = end.unwrap()["messages"].as_array().unwrap().last().unwrap();
    let expected = serde_json::json!({
        "role": "assistant", "content": [], "api": "openai-completions", "provider": "mock", "model": "m1",
        "usage": {
            "input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0,
            "cost": {"input": 0.0, "output": 0.0, "cacheRead": 0.0, "cacheWrite": 0.0, "total": 0.0},
        },
        "stopReason": "error", "timestamp": 1_800_000_000_003_u64, "errorMessage": "529 busy",
        "outlast": {
            "class": "transient", "cause": "overloaded", "code": "529", "reason": "gave up after 1 retries",
            "retryable": true,
        },
    });
    assert_eq!(*last, expected);
}

/// Returns the content of the last message of a run.
fn last_content(script: Script) -> serde_json::Value {
    let frames = script.settle(false).frames();
    let mut ends = frames.iter().filter(|frame| frame["type"] == "agent_end");
    let messages = ends.next().unwrap()["messages"].as_array().unwrap();
    messages.last().unwrap()["content"].clone()
}

#[test]
fn retracted_text_and_partial_reasoning_are_not_kept() {
    let expected = serde_json::json!([{"type": "text", "text": "two"}]);
    let retracted = Script::prompt("count")
        .attempt()
        .text("One, ")
        .retracted(1)
        .retry(1);
    assert_eq!(
        last_content(retracted.attempt().seam().text("two").done()),
        expected
    );
    let thought = Script::prompt("count").attempt().think("hm").retry(1);
    assert_eq!(
        last_content(thought.attempt().seam().text("two").done()),
        expected
    );
    // The same holds for content kept from an attempt before the retracted one.
    let both = Script::prompt("count")
        .attempt()
        .text("One, ")
        .retry(1)
        .attempt()
        .retracted(1)
        .retracted(2);
    assert_eq!(
        last_content(both.retry(2).attempt().seam().text("two").done()),
        expected
    );
}
