use super::*;
use crate::pi_rpc::models::ModelRef;
use crate::pi_rpc::translate::tests::golden::{is_within, recorded, shape};
use crate::pi_rpc::translate::tests::script::model;
use outlast_dialect::{Message as Said, Part, Role};
use outlast_engine::journal::{Entry as Written, ModelSwitch, Spent};
use outlast_engine::tools::Effect;
use outlast_kernel::Timestamp;
use outlast_kernel::budget::{Limits, Prompt};
use outlast_kernel::event::{CompactionReason, StopReason, ToolCall, TurnStatus, Usage};
use outlast_kernel::failure::{ClassifiedFailure, Failure};
use outlast_kernel::verdict::Cause;
use outlast_store::journal::RawEntry;
use serde_json::{Value, json};

const START: u64 = 1_800_000_000_000;

const USAGE: Usage = Usage {
    input: 10,
    output: 3,
    cache_read: 0,
    cache_write: 0,
};

fn stored(entries: impl IntoIterator<Item = Written>) -> Vec<StoredEntry> {
    let line = |(seq, entry): (u64, Written)| StoredEntry {
        seq,
        entry: RawEntry {
            turn: 1,
            kind: entry.kind().to_owned(),
            time: Timestamp::from_millis(START + seq),
            body: serde_json::to_string(&entry).unwrap(),
        },
    };
    (1..).zip(entries).map(line).collect()
}

fn history(entries: impl IntoIterator<Item = Written>) -> History {
    let models = Models::from(vec![model("m1"), model("m2")]);
    History::from_entries(&stored(entries), &models)
}

fn value(of: &(impl Serialize + ?Sized)) -> Value {
    serde_json::to_value(of).unwrap()
}

fn prompt(text: &str) -> Written {
    Written::Prompt {
        turn_id: "t".to_owned(),
        message: Some(Said::user(text)),
        budget: Prompt::new(Limits::default()),
        chosen: false,
        options: Value::Null,
    }
}

fn message(parts: Vec<Part>, stop_reason: StopReason) -> Written {
    let role = Role::Assistant;
    Written::Message {
        message: Said { role, parts },
        stop_reason,
        usage: USAGE,
        model: "m1".to_owned(),
    }
}

fn text(text: &str) -> Part {
    let text = text.to_owned();
    Part::Text { text }
}

fn call(id: &str, name: &str) -> Part {
    Part::ToolCall(ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: "{\n\"path\": \"x\"}".to_owned(),
    })
}

fn answer(said: &str) -> Written {
    message(vec![text(said)], StopReason::EndTurn)
}

fn settled() -> Written {
    Written::Settled {
        seal: TurnStatus::Completed,
        usage: USAGE,
        error: None,
    }
}

fn failed(said: &str, is_cancelled: bool) -> Written {
    let failure = Failure::http("mock", 529, "busy", Timestamp::from_millis(START));
    Written::AttemptFailed {
        attempt: 1,
        judged: (!is_cancelled).then(|| (*ClassifiedFailure::new(failure)).clone()),
        message: Said {
            role: Role::Assistant,
            parts: vec![text(said)],
        },
        usage: USAGE,
        kept: false,
        place: None,
    }
}

fn result(index: usize, id: &str, output: &str) -> Written {
    Written::ToolFinished {
        index,
        id: id.to_owned(),
        output: output.to_owned(),
        is_error: false,
    }
}

fn compacted(messages: Vec<Said>, is_summarised: bool) -> Written {
    Written::Compacted {
        reason: CompactionReason::Manual,
        messages,
        before: 900,
        after: 100,
        model: is_summarised.then(|| "m1".to_owned()),
        usage: USAGE,
        spent: None,
    }
}

/// Formats a message or an entry in short form.
fn brief(value: &Value) -> String {
    let message = value.get("message").unwrap_or(value);
    let words = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if message.get("summary").is_some() {
        let kept = words(&message["firstKeptEntryId"]);
        return format!("summary {} {kept}", words(&message["summary"]));
    }
    if message["type"] == "model_change" {
        return format!("model {}", words(&message["modelId"]));
    }
    let content = message["content"].as_array().unwrap().iter().map(|block| {
        match block["type"].as_str().unwrap() {
            "text" => words(&block["text"]),
            _ => format!("{}{}", words(&block["name"]), block["arguments"]),
        }
    });
    let content = content.collect::<Vec<_>>().join("+");
    let more: Vec<String> = ["stopReason", "errorMessage", "toolName"]
        .iter()
        .filter_map(|key| message.get(key).map(words))
        .collect();
    let more = more.join(" ");
    format!("{} {content} {more}", words(&message["role"]))
        .trim()
        .to_owned()
}

fn brief_all(values: &Value) -> Vec<String> {
    values.as_array().unwrap().iter().map(brief).collect()
}

#[test]
fn history_replies_match_recorded_shapes() {
    let history = history([prompt("hello there"), answer("hello"), settled()]);
    let messages = json!({"messages": history.messages()});
    let stats = value(&history.stats("id", Some("/home/user/s")));
    let forks = json!({"messages": history.fork_messages()});
    let text = json!({"text": history.last_assistant_text()});
    let ours = [
        ("get_messages", messages),
        ("get_session_stats", stats),
        ("get_fork_messages", forks),
        ("get_last_assistant_text", text),
    ];
    for (command, ours) in ours {
        let all = recorded();
        let mut wanted = all
            .iter()
            .find(|frame| frame["command"] == command)
            .unwrap()["data"]
            .clone();
        if command == "get_session_stats" {
            // The recording was made right after a compaction, when these numbers are unknown.
            assert_eq!(wanted["contextUsage"]["tokens"].take(), Value::Null);
            wanted["contextUsage"] = json!({"tokens": 1, "contextWindow": 1, "percent": 1});
        }
        assert!(is_within(&shape(&wanted), &shape(&ours)), "{wanted} {ours}");
    }
}

#[test]
fn session_stats_count_all_billed_attempts() {
    let entries = [
        prompt("look"),
        failed("Hel", false),
        message(
            vec![text("I look."), call("c1", "read"), call("c2", "bash")],
            StopReason::ToolUse,
        ),
        result(0, "c1", "a"),
        result(1, "c2", "b"),
        answer("Done."),
        settled(),
    ];
    let stats = history(entries.clone()).stats("id", None);
    let expected = json!({
        "sessionId": "id", "userMessages": 1, "assistantMessages": 3, "toolCalls": 2, "toolResults": 2,
        "totalMessages": 6,
        "tokens": {"input": 30, "output": 9, "cacheRead": 0, "cacheWrite": 0, "total": 39},
        "cost": 0.0, "contextUsage": {"tokens": 13, "contextWindow": 128_000, "percent": 0.010_156_25},
    });
    assert_eq!(value(&stats), expected);
    let smaller = compacted(vec![Said::user("s")], true);
    let stats = history(entries.into_iter().chain([smaller])).stats("id", None);
    assert_eq!(
        (stats.context_usage.tokens, stats.context_usage.percent),
        (None, None)
    );
    assert_eq!(stats.tokens.total, 52);
}

#[test]
fn failed_attempts_are_entries_but_not_messages() {
    let entries = [
        prompt("hello"),
        Written::AttemptStarted { attempt: 1 },
        failed("Hel", false),
        failed("He", true),
        answer("Hello"),
        settled(),
    ];
    let history = history(entries);
    let messages = brief_all(&value(history.messages()));
    assert_eq!(messages, ["user hello", "assistant Hello stop"]);
    let entries = value(history.entries(None).unwrap());
    let expected = [
        "user hello",
        "assistant Hel error busy",
        "assistant He aborted Request was aborted.",
        "assistant Hello stop",
    ];
    assert_eq!(brief_all(&entries), expected);
    let details = &entries[1]["message"]["outlast"];
    let expected = json!({
        "class": "transient", "cause": "overloaded", "code": "529", "retryable": true,
    });
    assert_eq!(*details, expected);
}

#[test]
fn entries_link_to_parent_and_read_from_cursor() {
    let history = history([
        prompt("one"),
        answer("1"),
        settled(),
        prompt("two"),
        answer("2"),
    ]);
    let entries = value(history.entries(None).unwrap());
    let links: Vec<_> = entries
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| {
            (
                entry["id"].clone(),
                entry["parentId"].clone(),
                entry["type"].clone(),
            )
        })
        .collect();
    let expected = [
        (json!("00000001"), Value::Null, json!("message")),
        (json!("00000002"), json!("00000001"), json!("message")),
        (json!("00000004"), json!("00000002"), json!("message")),
        (json!("00000005"), json!("00000004"), json!("message")),
    ];
    assert_eq!(links, expected);
    assert_eq!(entries[0]["timestamp"], "2027-01-15T08:00:00.001Z");
    assert_eq!(history.leaf_id(), Some("00000005"));
    let rest = value(history.entries(Some("00000002")).unwrap());
    assert_eq!(brief_all(&rest), ["user two", "assistant 2 stop"]);
    assert_eq!(value(history.entries(Some("00000005")).unwrap()), json!([]));
    let error = history.entries(Some("x")).unwrap_err();
    assert_eq!(error.to_string(), "Entry not found: x");
    assert_eq!(history.seq_of("00000004").unwrap(), 4);
    assert!(history.seq_of("00000003").is_err());
    let forks = value(&history.fork_messages());
    let expected = json!([
        {"entryId": "00000001", "text": "one"}, {"entryId": "00000004", "text": "two"},
    ]);
    assert_eq!(forks, expected);
    assert_eq!(history.last_assistant_text().as_deref(), Some("2"));
}

#[test]
fn tool_results_are_messages_even_if_interrupted() {
    let calls = vec![call("c1", "read"), call("c2", "bash")];
    let started = Written::ToolStarted {
        index: 1,
        id: "c2".to_owned(),
        effect: Effect::AtMostOnce,
    };
    let entries = [
        prompt("look"),
        message(calls, StopReason::ToolUse),
        result(0, "c1", "a"),
        started,
        prompt("and?"),
    ];
    let history = history(entries);
    let expected = [
        "user look",
        "assistant read{\"path\":\"x\"}+bash{\"path\":\"x\"} toolUse",
        "toolResult a read",
        "toolResult it was interrupted and may have partly run bash",
        "user and?",
    ];
    assert_eq!(brief_all(&value(history.messages())), expected);
    let entries = value(history.entries(None).unwrap());
    assert_eq!(brief_all(&entries)[2..], ["toolResult a read", "user and?"]);
}

#[test]
fn compacted_history_is_summary_and_kept_messages() {
    let kept = [
        Said::user("two"),
        Said {
            role: Role::Assistant,
            parts: vec![text("2")],
        },
    ];
    let smaller: Vec<Said> = std::iter::once(Said::user("SUM")).chain(kept).collect();
    let begin = [
        prompt("one"),
        answer("1"),
        settled(),
        prompt("two"),
        answer("2"),
        settled(),
    ];
    let entries = begin
        .clone()
        .into_iter()
        .chain([compacted(smaller, true), prompt("three")]);
    let history = history(entries);
    let messages = value(history.messages());
    let expected = ["summary SUM ", "user two", "assistant 2 stop", "user three"];
    assert_eq!(brief_all(&messages), expected);
    assert_eq!(messages[0]["tokensBefore"], 900);
    // The details of a kept message are still known.
    assert_eq!(
        (&messages[2]["model"], &messages[2]["usage"]["totalTokens"]),
        (&json!("m1"), &json!(13))
    );
    assert_eq!(messages[2]["timestamp"], START + 5);
    let entries = value(history.entries(None).unwrap());
    assert_eq!(brief(&entries[4]), "summary SUM 00000004");
    let all = self::history(
        begin
            .into_iter()
            .chain([compacted(vec![Said::user("SUM")], true)]),
    );
    let entries = value(all.entries(None).unwrap());
    assert_eq!(brief(&entries[4]), "summary SUM 00000007");
}

#[test]
fn elided_compaction_keeps_every_message() {
    let shorter = vec![
        Said::user("o…"),
        Said {
            role: Role::Assistant,
            parts: vec![text("1")],
        },
    ];
    let history = history([
        prompt("one"),
        answer("1"),
        settled(),
        compacted(shorter, false),
    ]);
    let messages = brief_all(&value(history.messages()));
    assert_eq!(messages, ["user o…", "assistant 1 stop"]);
    let entries = value(history.entries(None).unwrap());
    assert_eq!(
        brief(&entries[2]),
        "summary Parts of the conversation were left out. 00000001"
    );
}

#[test]
fn model_switch_and_notice_are_entries() {
    let switch = ModelSwitch {
        from: "mock@http://h/m1".to_owned(),
        to: "mock@http://h/m2".to_owned(),
        left: None,
    };
    let switched = Written::Switched {
        left: None,
        model: Some(switch),
        spent: Spent::default(),
    };
    let noticed = Written::Noticed {
        message: Said::user("go on"),
        cause: Cause::EmptyOutput,
    };
    let history = history([prompt("hello"), switched, failed("", false), noticed]);
    let entries = value(history.entries(None).unwrap());
    assert_eq!(
        brief_all(&entries),
        [
            "user hello",
            "model m2",
            "assistant  error busy",
            "user go on"
        ]
    );
    assert_eq!(entries[2]["message"]["model"], "m2");
    assert_eq!(history.fork_messages().len(), 1);
    assert_eq!(history.last_assistant_text(), None);
}

#[test]
fn unreadable_entries_are_skipped() {
    let mut entries = stored([prompt("hello"), settled(), answer("hi")]);
    entries[1].entry.body = "{\"kind\":\"from_the_future\"}".to_owned();
    let history = History::from_entries(&entries, &Models::default());
    let messages = brief_all(&value(history.messages()));
    assert_eq!(messages, ["user hello", "assistant hi stop"]);
}

#[test]
fn deep_entry_tree_does_not_overflow_stack() {
    let small = history([prompt("one"), answer("1")]);
    let tree: Value = serde_json::from_str(small.tree().get()).unwrap();
    let entries = value(small.entries(None).unwrap());
    let expected = json!([
        {"entry": entries[0], "children": [{"entry": entries[1], "children": []}]},
    ]);
    assert_eq!(tree, expected);
    assert_eq!(history([]).tree().get(), "[]");
    let mut large = entry::Entries::default();
    for seq in 1..=100_000 {
        large.push(
            (seq, Timestamp::default()),
            EntryBody::model_change(&ModelRef::default()),
        );
    }
    let tree = entry::tree(&large.into_vec());
    assert_eq!(tree.get().matches("\"children\"").count(), 100_000);
    assert!(tree.get().ends_with("]}]}]"));
    assert!(!tree.get().contains('\n'));
}

#[test]
fn entries_with_same_sequence_get_unique_ids() {
    let mut entries = entry::Entries::default();
    let what = EntryBody::model_change(&ModelRef::default());
    let at = |seq| (seq, Timestamp::default());
    let ids = [7, 7, 7, 8].map(|seq| entries.push(at(seq), what.clone()));
    assert_eq!(ids, ["00000007", "00000007-1", "00000007-2", "00000008"]);
    assert_eq!(entries.last_id_for(8), "00000008");
    assert_eq!(entries.last_id_for(9), "00000009");
}
