//! What becomes of each fault of the provider, in each dialect, streamed and not.

use super::rig::Rig;
use outlast_dialect::Dialect;

/// Whether the answer is the one that the scripted provider gives.
fn is_answered(dialect: Dialect, streamed: bool, text: &str) -> bool {
    match (dialect, streamed) {
        (Dialect::Anthropic, true) => text.contains("message_stop"),
        (Dialect::OpenaiChat, true) => text.contains("[DONE]"),
        (Dialect::OpenaiResponses, true) => text.contains("response.completed"),
        _ => text.contains("usage"),
    }
}

async fn succeeds(script: &str) {
    for dialect in Dialect::ALL {
        for streamed in [true, false] {
            let rig = Rig::new(script).await;
            let answer = rig.ask(dialect, streamed).await;
            let text = answer.text();
            let what = format!("{script} {dialect:?} {streamed}: {answer:?}\n{text}");
            assert_eq!(answer.status, 200, "{what}");
            assert!(
                answer.is_whole && is_answered(dialect, streamed, &text),
                "{what}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_fails_before_content_is_not_seen_by_the_client() {
    for script in [
        "ok",
        "error:429,times=3",
        "error:503,times=3",
        "error:529,times=3",
        "reset:times=2",
        "close",
        "rate-limited:retry-after=90",
    ] {
        succeeds(script).await;
    }
}
