//! What becomes of each fault of the provider, in each dialect, streamed and not.

use super::rig::{Answer, Rig};
use outlast_dialect::Dialect;
use std::time::Duration;

/// The words of the answer, put together from its pieces; `None` when it is not whole.
fn said(dialect: Dialect, streamed: bool, text: &str) -> Option<String> {
    let end = match (dialect, streamed) {
        (Dialect::Anthropic, true) => "message_stop",
        (Dialect::OpenaiChat, true) => "[DONE]",
        (Dialect::OpenaiResponses, true) => "response.completed",
        _ => "usage",
    };
    text.contains(end).then(|| text.to_owned())
}

/// Every kind of request under that script, so many at once.
async fn ask_all(script: &str, each: usize) -> Vec<(Dialect, bool, Answer)> {
    let mut answers = Vec::new();
    for dialect in Dialect::ALL {
        for streamed in [true, false] {
            let rig = Rig::new(script).await;
            let asking = (0..each).map(|_| rig.ask(dialect, streamed));
            let all = futures_util::future::join_all(asking);
            let Ok(all) = tokio::time::timeout(Duration::from_secs(8), all).await else {
                panic!(
                    "{script} {dialect:?} {streamed} hangs; asked {:?}",
                    rig.asked().await
                );
            };
            for answer in all {
                answers.push((dialect, streamed, answer));
            }
        }
    }
    answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_fails_before_content_is_not_seen_by_the_client() {
    let mut bad = 0;
    for script in [
        "ok",
        "error:429,times=3",
        "error:503,times=3",
        "error:529,times=3",
        "reset:times=2",
        "close",
        "rate-limited:retry-after=90",
        "drop-after:0",
        "cut:20",
        "cut:20,clean",
        "in-band:overloaded,after=0",
        "json-error",
        "stall:0",
        "pings:0,every=10",
        "page:503",
        "garbage",
        "outage:900",
    ] {
        for (dialect, streamed, answer) in ask_all(script, 1).await {
            let text = answer.text();
            let what = format!("{script} {dialect:?} {streamed}: {} {text}", answer.status);
            if !(answer.status == 200
                && answer.is_whole
                && said(dialect, streamed, &text).is_some())
            {
                println!("BAD {what}");
                bad += 1;
            }
        }
    }
    assert_eq!(bad, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_fails_after_content_ends_with_one_error_and_nothing_twice() {
    for script in [
        "drop-after:2",
        "stall:2",
        "malformed:2",
        "in-band:overloaded,after=2",
        "no-finish",
    ] {
        for dialect in Dialect::ALL {
            let rig = Rig::new(script).await;
            let answer = rig.ask(dialect, true).await;
            println!(
                "{script} {dialect:?} {} whole={}\n{}",
                answer.status,
                answer.is_whole,
                answer.text()
            );
            println!("asked {}", rig.asked().await.len());
        }
    }
}
