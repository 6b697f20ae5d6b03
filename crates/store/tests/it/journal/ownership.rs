//! A session has one owner, and no other process writes to it.

use super::{ALL, TestFolder, append, begin, is_pending, line};
use crate::at;
use outlast_store::Error;
use outlast_store::journal::{Availability, NewSession};
use std::pin::pin;

#[tokio::test]
async fn session_id_can_be_created_only_once() {
    let place = TestFolder::new();
    let journal = place.open();
    let hold = begin(&journal, "s").await;
    append(&journal, &hold, &[(1, "prompt")]).await;
    let again = NewSession {
        title: String::new(),
        id: "s".to_owned(),
        directory: String::new(),
        now: at(9),
    };
    let error = place.open().create(again).await.unwrap_err();
    assert!(matches!(error, Error::SessionExists { .. }), "{error}");
    append(&journal, &hold, &[(1, "settled")]).await;
}

#[tokio::test]
async fn a_session_has_one_owner_until_it_is_released() {
    let place = TestFolder::new();
    let (one, other) = (place.open(), place.open());
    let hold = begin(&one, "s").await;
    assert_eq!(hold.session(), "s");
    for journal in [&one, &other] {
        let refused = journal.claim("s").await.unwrap_err();
        assert!(matches!(&refused, Error::InUse(session) if session == "s"));
        let refused = journal.delete("s").await.unwrap_err();
        assert!(matches!(refused, Error::InUse { .. }), "{refused}");
        assert_eq!(
            journal.summary("s").await.unwrap().availability,
            Availability::InUse
        );
    }
    one.release(hold).await.unwrap();
    assert_eq!(
        one.summary("s").await.unwrap().availability,
        Availability::Free
    );
    let hold = other.claim("s").await.unwrap();
    append(&other, &hold, &[(1, "prompt")]).await;
    assert!(matches!(one.claim("s").await, Err(Error::InUse { .. })));
    other.release(hold).await.unwrap();
    let _hold = other.claim("s").await.unwrap();
    let file = rusqlite::Connection::open(place.path()).unwrap();
    let fence = file.query_row("SELECT fence FROM sessions", [], |row| row.get(0));
    assert_eq!(fence, Ok(3), "every owner has a fence of its own");
}

#[tokio::test]
async fn dropped_session_lock_is_released() {
    let place = TestFolder::new();
    let journal = place.open();
    drop(begin(&journal, "s").await);
    let hold = journal.claim("s").await.unwrap();
    append(&journal, &hold, &[(1, "prompt")]).await;
}

#[tokio::test]
async fn dropped_claim_leaves_session_free() {
    let place = TestFolder::new();
    let journal = place.open();
    drop(begin(&journal, "s").await);
    let state = async || journal.summary("s").await.unwrap().availability;
    {
        let mut claim = pin!(journal.claim("s"));
        assert!(is_pending(claim.as_mut()));
        // The claim comes first in the queue, so it is done when this is answered.
        assert_eq!(state().await, Availability::InUse);
    }
    assert_eq!(state().await, Availability::Free);
}

#[tokio::test]
async fn fenced_owner_cannot_write() {
    let place = TestFolder::new();
    let (one, other) = (place.open(), place.open());
    let stale = begin(&one, "s").await;
    append(&one, &stale, &[(1, "prompt")]).await;
    // As if its process had died: no process holds its lock any more.
    std::fs::remove_file(&place.owners()[0]).unwrap();
    assert_eq!(
        other.summary("s").await.unwrap().availability,
        Availability::Abandoned
    );
    let hold = other.claim("s").await.unwrap();
    let refusals = [
        one.append(&stale, vec![line(1, "settled")]).await,
        one.append(&stale, Vec::new()).await,
        one.release(stale).await,
    ];
    for refused in refusals {
        let refused = refused.unwrap_err();
        assert!(matches!(&refused, Error::Fenced(session) if session == "s"));
    }
    append(&other, &hold, &[(1, "settled")]).await;
    let summary = other.summary("s").await.unwrap();
    assert_eq!((summary.entries, summary.title.as_str()), (2, ""));
    assert_eq!(summary.availability, Availability::InUse);
}

#[tokio::test]
async fn reclaimed_session_is_in_use_for_others() {
    let place = TestFolder::new();
    let (one, other) = (place.open(), place.open());
    let stale = begin(&one, "s").await;
    std::fs::remove_file(&place.owners()[0]).unwrap();
    let hold = one.claim("s").await.unwrap();
    assert!(matches!(other.claim("s").await, Err(Error::InUse { .. })));
    let refused = one.append(&stale, vec![line(1, "prompt")]).await;
    assert!(matches!(refused, Err(Error::Fenced { .. })));
    append(&one, &hold, &[(1, "prompt")]).await;
}

#[tokio::test]
async fn a_deleted_session_leaves_nothing() {
    let place = TestFolder::new();
    let journal = place.open();
    let (hold, kept) = (begin(&journal, "s").await, begin(&journal, "t").await);
    append(&journal, &hold, &[(1, "prompt")]).await;
    append(&journal, &kept, &[(1, "prompt")]).await;
    journal.release(hold).await.unwrap();
    journal.delete("s").await.unwrap();
    let hold = begin(&journal, "s").await;
    assert_eq!(journal.read("s", ALL).await.unwrap(), []);
    append(&journal, &hold, &[(1, "prompt")]).await;
    assert_eq!(journal.read("t", ALL).await.unwrap().len(), 1);
}

#[tokio::test]
async fn owner_that_dies_without_turn_leaves_session_free() {
    let place = TestFolder::new();
    let journal = place.open();
    let state = || async { place.open().summary("s").await.unwrap().availability };
    let hold = begin(&journal, "s").await;
    append(&journal, &hold, &[(1, "prompt"), (1, "settled")]).await;
    journal.release(hold).await.unwrap();
    // Twice: the first death is no reason to believe that something was not reported.
    for _ in 0..2 {
        let dying = place.open();
        let hold = dying.claim("s").await.unwrap();
        assert!(matches!(journal.claim("s").await, Err(Error::InUse { .. })));
        append(&dying, &hold, &[(1, "compacted")]).await;
        place.kill();
        assert_eq!(state().await, Availability::Free);
        std::mem::forget(hold);
    }
    let dying = place.open();
    let hold = dying.claim("s").await.unwrap();
    append(&dying, &hold, &[(2, "prompt"), (2, "settled")]).await;
    place.kill();
    assert_eq!(state().await, Availability::Abandoned);
    std::mem::forget(hold);
    // A claim does not report for an earlier owner.
    let dying = place.open();
    let hold = dying.claim("s").await.unwrap();
    place.kill();
    assert_eq!(state().await, Availability::Abandoned);
    std::mem::forget(hold);
}
