//! A turn with a model switch, a compaction, a correction and a continuation, cut off after each of its entries: the next
//! process completes it, and runs no tool twice.

use crate::notes::{Notes, note};
use crate::pieces::assert_well_formed;
use crate::support::{START, TestJournal};
use outlast_dialect::{Dialect, Message};
use outlast_engine::Clock;
use outlast_engine::clock::TimerClock;
use outlast_engine::journal::Entry;
use outlast_engine::provider::Adapter;
use outlast_engine::strategy::PolicyRetry;
use outlast_engine::target::ModelTarget;
use outlast_kernel::Timestamp;
use outlast_kernel::decision::AfterContent;
use outlast_kernel::event::{ToolCall, TurnStatus};
use outlast_kernel::policy::Policy;
use outlast_mock::ScriptedTransport;
use outlast_session::Session;
use outlast_session::Setup;
use outlast_session::compaction::{Compaction, Settings};
use outlast_store::journal::{Page, StoredEntry};
use std::sync::Arc;
use std::time::Duration;

const PROMPT: &str =
    "call note {\"number\": 1}\nand note {\"number\": 2}\ncall note {\"number\": 3}";
const GOOD: &str = "ok:thinking-agent,times=always";
/// A summary, a completion that breaks off in its text, the two steps, an invalid completion, and the end.
const FAULTY_SCRIPT: &str = "ok:agent+drop-after:12,of=thinking-agent+ok:thinking-agent,times=2+ok:empty+ok:thinking-agent,times=always";

/// Creates a setup with two scripted models; the second one has a small window, and summarises.
fn setup(scripts: [&str; 2], tools: &Arc<Notes>, now: Timestamp) -> Setup {
    let clock: Arc<dyn Clock> = Arc::new(TimerClock::new(now));
    let [first, second] = scripts.map(|script| {
        let transport = Arc::new(ScriptedTransport::new(
            script.parse().unwrap(),
            Arc::clone(&clock),
        ));
        Arc::new(Adapter::new(
            Dialect::Anthropic,
            transport,
            Arc::clone(&clock),
        ))
    });
    let mut second = ModelTarget::new(second, "second");
    (second.traits.window, second.max_tokens) = (Some(9600), Some(500));
    let policy = Policy::named("session").unwrap();
    let retry = Arc::new(PolicyRetry::new(policy, Arc::clone(&clock)));
    let summarisers = vec![second.clone()];
    let settings = Settings::default();
    let compaction = Compaction::new(summarisers, retry.clone(), Arc::clone(&clock), settings);
    Setup {
        fallbacks: vec![second],
        compaction: Some(Arc::new(compaction)),
        after_content: AfterContent::Continue,
        retry: Some(retry),
        tools: Some(tools.clone()),
        tool_definitions: vec![note()],
        ..Setup::new(first, "first", clock)
    }
}

/// Returns the entries of a long turn and of the one that meets all the failures.
async fn whole_turn() -> Vec<StoredEntry> {
    let (kept, tools) = (TestJournal::new(), Arc::new(Notes::default()));
    let trouble = ["ok:long+overloaded:9", FAULTY_SCRIPT];
    let session = kept.begin(setup(trouble, &tools, START)).await;
    session.prompt("Say a lot".into()).await.unwrap();
    let ended = session.prompt(PROMPT.into()).await.unwrap();
    assert_eq!(ended.seal, TurnStatus::Completed, "{:?}", ended.error);
    assert_eq!(tools.noted().len(), 3);
    let page = Page {
        after: 0,
        limit: 1000,
        kinds: None,
    };
    kept.journal.read(session.id(), page).await.unwrap()
}

fn entries(stored: &[StoredEntry]) -> Vec<Entry> {
    let read = |line| outlast_session::parse_entry("s", line).unwrap();
    stored.iter().map(read).collect()
}

/// Returns the arguments of the calls that began.
fn started_tools(entries: &[Entry]) -> Vec<String> {
    let mut calls: Vec<ToolCall> = Vec::new();
    let mut begun = Vec::new();
    for entry in entries {
        match entry {
            Entry::Message { message, .. } => calls = message.tool_calls().cloned().collect(),
            Entry::ToolStarted { index, .. } => begun.push(calls[*index].arguments.clone()),
            _ => {}
        }
    }
    begun
}

async fn resume_from(prefix: &[StoredEntry]) -> (Arc<Session>, TestJournal, Vec<String>) {
    let kept = TestJournal::new();
    let restarted = prefix.last().unwrap().entry.time + Duration::from_millis(500);
    kept.write_down("s", prefix).await;
    let tools = Arc::new(Notes::default());
    let session = kept.open("s", setup([GOOD, GOOD], &tools, restarted)).await;
    let ended = session.resume().await.unwrap();
    assert_eq!(ended.seal, TurnStatus::Completed, "{:?}", ended.error);
    let ran = tools.noted();
    (session, kept, ran)
}

#[tokio::test(start_paused = true)]
async fn turn_with_remedies_completes_after_cut_at_any_entry() {
    let stored = whole_turn().await;
    let all = entries(&stored);
    for kind in ["switched", "compacted", "noticed", "wait_scheduled"] {
        assert!(all.iter().any(|entry| entry.kind() == kind), "no {kind}");
    }
    let is_kept = |entry: &Entry| matches!(entry, Entry::AttemptFailed { kept: true, .. });
    assert!(all.iter().any(is_kept), "nothing is kept");
    let second = all
        .iter()
        .rposition(|entry| entry.kind() == "prompt")
        .unwrap();
    // The last completion is settled in one write.
    for length in second + 1..stored.len() - 1 {
        let (session, kept, ran) = resume_from(&stored[..length]).await;
        let at = format!("cut off after {length}: {}", all[length - 1].kind());
        let mut tools = started_tools(&all[..length]);
        tools.extend(ran);
        let every: Vec<String> = (1..=3)
            .map(|number| format!("{{\"number\": {number}}}"))
            .collect();
        assert_eq!(tools, every, "{at}");
        assert_well_formed(&session.messages());
        let last = session.messages().last().map(Message::text);
        assert!(last.is_some_and(|text| !text.is_empty()), "{at}");
        let settled = kept.entries("s").await;
        let settled = settled.iter().filter(|entry| entry.kind() == "settled");
        assert_eq!(settled.count(), 2, "{at}");
    }
}
