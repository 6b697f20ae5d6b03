//! Sessions that begin with the entries of others, change their title, or are removed when they are empty.

use super::{ALL, TestFolder, append, begin, line, told};
use crate::at;
use outlast_store::Error;
use outlast_store::journal::{Availability, Journal, NewSession, SessionLock};

fn new(id: &str) -> NewSession {
    NewSession {
        title: "A copy".to_owned(),
        id: id.to_owned(),
        directory: "/elsewhere".to_owned(),
        now: at(9),
    }
}

/// A session of two turns that are over and one that is not.
async fn three_turns(journal: &Journal) -> SessionLock {
    let hold = begin(journal, "s").await;
    append(
        journal,
        &hold,
        &[(0, "said"), (1, "prompt"), (1, "settled")],
    )
    .await;
    append(journal, &hold, &[(1, "queued"), (2, "prompt")]).await;
    append(journal, &hold, &[(2, "message"), (2, "settled")]).await;
    append(journal, &hold, &[(3, "prompt"), (3, "message")]).await;
    hold
}

#[tokio::test]
async fn fork_has_entries_before_prompt_and_continues() {
    let place = TestFolder::new();
    let journal = place.open();
    let _hold = three_turns(&journal).await;
    let all = journal.read("s", ALL).await.unwrap();
    let copy = journal.fork("s", Some(8), new("t")).await.unwrap();
    let copied = place.open().read("t", ALL).await.unwrap();
    assert_eq!(copied, all[..7]);
    let summary = journal.summary("t").await.unwrap();
    assert_eq!(
        (summary.turns, summary.entries, summary.open_turn),
        (2, 7, None)
    );
    assert_eq!((summary.created, summary.title.as_str()), (at(9), "A copy"));
    assert_eq!(summary.availability, Availability::InUse);
    append(&journal, &copy, &[(3, "prompt"), (3, "settled")]).await;
    let last = journal.read("t", ALL).await.unwrap();
    assert_eq!(told(&last[7..]), ["8 3 prompt", "9 3 settled"]);
    assert_eq!(
        journal.read("s", ALL).await.unwrap(),
        all,
        "it is as it was"
    );
}

#[tokio::test]
async fn fork_in_open_turn_is_refused() {
    let place = TestFolder::new();
    let journal = place.open();
    let hold = three_turns(&journal).await;
    for (before, turns) in [
        (Some(1), Some(0)),
        (Some(2), Some(0)),
        (Some(3), None),
        (Some(4), Some(1)),
        (Some(5), Some(1)),
        (Some(6), None),
        (Some(7), None),
        (Some(8), Some(2)),
        (Some(9), None),
        (None, None),
    ] {
        let id = format!("t{}", before.unwrap_or_default());
        let copy = journal.fork("s", before, new(&id)).await;
        match turns {
            Some(turns) => {
                drop(copy.unwrap());
                assert_eq!(journal.summary(&id).await.unwrap().turns, turns);
            }
            None => {
                assert!(matches!(copy, Err(Error::OpenTurn(session)) if session == "s"));
                let nothing = journal.summary(&id).await;
                assert!(matches!(nothing, Err(Error::NoSuchSession { .. })));
            }
        }
    }
    append(&journal, &hold, &[(3, "settled")]).await;
    let _copy = journal.fork("s", None, new("all")).await.unwrap();
    assert_eq!(journal.summary("all").await.unwrap().entries, 10);
}

#[tokio::test]
async fn fork_needs_existing_session_and_new_id() {
    let place = TestFolder::new();
    let journal = place.open();
    let nothing = journal.fork("s", None, new("t")).await;
    assert!(matches!(nothing, Err(Error::NoSuchSession { .. })));
    let _hold = begin(&journal, "s").await;
    let taken = journal.fork("s", None, new("s")).await;
    assert!(matches!(taken, Err(Error::SessionExists { .. })));
}

#[tokio::test]
async fn only_its_owner_renames_a_session() {
    let place = TestFolder::new();
    let journal = place.open();
    let hold = begin(&journal, "s").await;
    journal.rename(&hold, "A title").await.unwrap();
    assert_eq!(journal.summary("s").await.unwrap().title, "A title");
    place.kill();
    let _taken = place.open().claim("s").await.unwrap();
    let refused = journal.rename(&hold, "Another").await;
    assert!(matches!(refused, Err(Error::Fenced { .. })));
    assert_eq!(journal.summary("s").await.unwrap().title, "A title");
}

#[tokio::test]
async fn release_or_remove_deletes_only_empty_session() {
    let place = TestFolder::new();
    let journal = place.open();
    let (empty, used) = (begin(&journal, "s").await, begin(&journal, "t").await);
    journal
        .append(&used, vec![line(0, "queued")])
        .await
        .unwrap();
    let lost = begin(&journal, "u").await;
    journal.release_or_remove(empty).await.unwrap();
    journal.release_or_remove(used).await.unwrap();
    let nothing = journal.summary("s").await;
    assert!(matches!(nothing, Err(Error::NoSuchSession { .. })));
    assert_eq!(
        journal.summary("t").await.unwrap().availability,
        Availability::Free
    );
    place.kill();
    let _taken = place.open().claim("u").await.unwrap();
    let refused = journal.release_or_remove(lost).await;
    assert!(matches!(refused, Err(Error::Fenced { .. })));
    journal.summary("u").await.unwrap();
}
