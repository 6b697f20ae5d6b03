//! Written entries are read back, in order and once.

use super::{ALL, TestFolder, append, begin, is_pending, line, told};
use crate::at;
use outlast_store::Error;
use outlast_store::journal::{Page, Summary};
use std::pin::pin;

#[tokio::test]
async fn entries_are_read_back_in_order_and_pages() {
    let place = TestFolder::new();
    let journal = place.open();
    let hold = begin(&journal, "s").await;
    append(&journal, &hold, &[(1, "prompt"), (1, "retry")]).await;
    append(&journal, &hold, &[(1, "message"), (1, "settled")]).await;
    let all = place.open().read("s", ALL).await.unwrap();
    assert_eq!(
        told(&all),
        ["1 1 prompt", "2 1 retry", "3 1 message", "4 1 settled"]
    );
    assert_eq!(all[2].entry, line(1, "message"));
    let page = |after, limit, kinds| {
        let read = journal.read(
            "s",
            Page {
                after,
                limit,
                kinds,
            },
        );
        async { told(&read.await.unwrap()) }
    };
    assert_eq!(page(1, 2, None).await, ["2 1 retry", "3 1 message"]);
    let kinds: Option<&[&str]> = Some(&["settled", "prompt"]);
    assert_eq!(page(0, 9, kinds).await, ["1 1 prompt", "4 1 settled"]);
    assert_eq!(page(1, 9, kinds).await, ["4 1 settled"]);
    assert_eq!(page(4, 9, None).await, Vec::<String>::new());
}

#[tokio::test]
async fn context_has_messages_and_full_last_turn() {
    let place = TestFolder::new();
    let journal = place.open();
    let (hold, other) = (begin(&journal, "s").await, begin(&journal, "t").await);
    append(&journal, &other, &[(2, "prompt"), (2, "noise")]).await;
    let first = [
        "prompt",
        "noise",
        "message",
        "tool_started",
        "tool_finished",
    ];
    append(&journal, &hold, &first.map(|kind| (1, kind))).await;
    append(&journal, &hold, &[(1, "compacted"), (1, "settled")]).await;
    let beside = ["queued", "said", "unqueued"];
    append(&journal, &hold, &beside.map(|kind| (1, kind))).await;
    append(&journal, &hold, &[(2, "prompt"), (2, "noise")]).await;
    let context = told(&journal.context("s", 0, u32::MAX).await.unwrap());
    let expected = [
        "1 1 prompt",
        "3 1 message",
        "5 1 tool_finished",
        "6 1 compacted",
        "7 1 settled",
        "8 1 queued",
        "9 1 said",
        "10 1 unqueued",
        "11 2 prompt",
        "12 2 noise",
    ];
    assert_eq!(context, expected);
    let page = journal.context("s", 3, 2).await.unwrap();
    assert_eq!(told(&page), expected[2..4]);
}

#[tokio::test]
async fn summary_has_counts_times_and_open_turn() {
    let place = TestFolder::new();
    let journal = place.open();
    let hold = begin(&journal, "s").await;
    let summary = async || journal.summary("s").await.unwrap();
    let fresh = summary().await;
    assert_eq!((fresh.turns, fresh.entries, fresh.open_turn), (0, 0, None));
    assert_eq!((fresh.created, fresh.changed), (at(1), at(1)));
    assert_eq!(
        (fresh.directory.as_str(), fresh.title.as_str()),
        ("/somewhere", "")
    );
    append(&journal, &hold, &[(1, "prompt"), (1, "message")]).await;
    let open = summary().await;
    assert_eq!((open.turns, open.entries, open.open_turn), (1, 2, Some(1)));
    assert_eq!(open.changed, at(101));
    append(&journal, &hold, &[(1, "settled")]).await;
    assert_eq!(summary().await.open_turn, None);
    append(&journal, &hold, &[(2, "prompt")]).await;
    assert_eq!(
        (summary().await.turns, summary().await.open_turn),
        (2, Some(2))
    );
}

#[tokio::test]
async fn late_entry_of_old_turn_keeps_last_turn_open() {
    let place = TestFolder::new();
    let journal = place.open();
    let hold = begin(&journal, "s").await;
    append(&journal, &hold, &[(1, "message"), (2, "prompt")]).await;
    append(&journal, &hold, &[(1, "settled")]).await;
    let summary = journal.summary("s").await.unwrap();
    assert_eq!((summary.turns, summary.open_turn), (2, Some(2)));
    append(&journal, &hold, &[(2, "settled"), (1, "prompt")]).await;
    assert_eq!(journal.summary("s").await.unwrap().turns, 2);
}

#[tokio::test]
async fn sessions_list_by_last_change_unfinished_separately() {
    let place = TestFolder::new();
    let journal = place.open();
    let (old, new) = (begin(&journal, "old").await, begin(&journal, "new").await);
    append(&journal, &new, &[(2, "prompt"), (2, "settled")]).await;
    append(&journal, &old, &[(1, "prompt")]).await;
    let names = |found: Vec<Summary>| -> Vec<String> {
        found.into_iter().map(|summary| summary.id).collect()
    };
    // Its clock was behind, but it is the most recently changed one.
    assert_eq!(names(journal.sessions().await.unwrap()), ["old", "new"]);
    assert_eq!(names(journal.unfinished().await.unwrap()), ["old"]);
    append(&journal, &new, &[(2, "message")]).await;
    assert_eq!(names(journal.sessions().await.unwrap()), ["new", "old"]);
}

#[tokio::test]
async fn session_is_found_by_id_prefix() {
    let place = TestFolder::new();
    let journal = place.open();
    for id in ["abc", "abd", "ab", "é1", "xé"] {
        drop(begin(&journal, id).await);
    }
    for (prefix, id) in [("abc", "abc"), ("ab", "ab"), ("é", "é1"), ("x", "xé")] {
        assert_eq!(journal.summary(prefix).await.unwrap().id, id);
    }
    let many = journal.summary("a").await.unwrap_err();
    assert!(matches!(&many, Error::Ambiguous { prefix, count: 3 } if prefix == "a"));
    for unknown in ["abe", "b", "%"] {
        let none = journal.summary(unknown).await.unwrap_err();
        assert!(matches!(&none, Error::NoSuchSession(session) if session == unknown));
    }
}

#[tokio::test]
async fn missing_session_is_an_error_for_every_operation() {
    let place = TestFolder::new();
    let journal = place.open();
    let errors = [
        journal.read("s", ALL).await.unwrap_err(),
        journal.context("s", 0, u32::MAX).await.unwrap_err(),
        journal.claim("s").await.unwrap_err(),
        journal.delete("s").await.unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, Error::NoSuchSession { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_turn_is_begun_once_and_settled_once() {
    let place = TestFolder::new();
    let journal = place.open();
    let hold = begin(&journal, "s").await;
    append(&journal, &hold, &[(1, "prompt"), (1, "settled")]).await;
    for kind in ["settled", "prompt"] {
        let lines = vec![line(1, "message"), line(1, kind)];
        let refused = journal.append(&hold, lines).await.unwrap_err();
        let Error::DuplicateEntry {
            turn: 1, kind: of, ..
        } = &refused
        else {
            panic!("{refused}");
        };
        assert_eq!(of, kind);
    }
    // Nothing of the refused entries is there, and the numbers go on.
    append(
        &journal,
        &hold,
        &[(2, "prompt"), (1, "message"), (1, "message")],
    )
    .await;
    let all = told(&journal.read("s", ALL).await.unwrap());
    let expected = [
        "1 1 prompt",
        "2 1 settled",
        "3 2 prompt",
        "4 1 message",
        "5 1 message",
    ];
    assert_eq!(all, expected);
    assert_eq!(journal.summary("s").await.unwrap().open_turn, Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ten_writers_leave_no_gaps() {
    let place = TestFolder::new();
    let shared = place.open();
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..10 {
        // Half of them share a thread, half have one of their own.
        let journal = match number % 2 {
            0 => shared.clone(),
            _ => place.open(),
        };
        writers.spawn(async move {
            let hold = begin(&journal, &format!("s{number}")).await;
            for turn in 1..=20 {
                let lines = ["prompt", "message", "settled"].map(|kind| line(turn, kind));
                journal.append(&hold, lines.to_vec()).await.unwrap();
            }
        });
    }
    while let Some(done) = writers.join_next().await {
        done.unwrap();
    }
    let journal = place.open();
    for number in 0..10 {
        let all = journal.read(&format!("s{number}"), ALL).await.unwrap();
        let numbers: Vec<u64> = all.iter().map(|entry| entry.seq).collect();
        assert_eq!(numbers, (1..=60).collect::<Vec<u64>>());
        assert!(all.is_sorted_by_key(|entry| entry.entry.turn));
    }
}

#[tokio::test]
async fn dropped_append_is_written_exactly_once() {
    let place = TestFolder::new();
    let journal = place.open();
    let hold = begin(&journal, "s").await;
    for turn in 1..=50 {
        let writing = pin!(journal.append(&hold, vec![line(turn, "prompt")]));
        if turn % 2 == 0 {
            is_pending(writing);
        }
    }
    drop(hold);
    let hold = journal.claim("s").await.unwrap();
    append(&journal, &hold, &[(51, "prompt")]).await;
    let turns: Vec<u64> = journal
        .read("s", ALL)
        .await
        .unwrap()
        .iter()
        .map(|entry| entry.entry.turn)
        .collect();
    assert_eq!(turns, (1..=51).collect::<Vec<u64>>());
}
