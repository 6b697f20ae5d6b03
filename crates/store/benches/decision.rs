//! What a decision of the gate costs through the store, while two hundred wait and another process writes.
//!
//! A promise in milliseconds, so it is measured in milliseconds: the median may not pass `LIMIT`.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "it is a benchmark"
)]

use outlast_kernel::Timestamp;
use outlast_kernel::gate::{Answer, Report, Waiter, WaiterId};
use outlast_kernel::verdict::Cause;
use outlast_store::Store;
use std::time::{Duration, Instant};

const WAITERS: u64 = 200;
const ROUNDS: usize = 1000;
const LIMIT: Duration = Duration::from_millis(5);
const GATE: &str = "p/a/m";

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

fn waiter(number: u64) -> Waiter {
    Waiter {
        id: WaiterId(format!("waiter-{number}")),
        since: at(number),
        own_wake: at(100_000),
        deadline: None,
        crowd: None,
    }
}

#[tokio::main]
async fn main() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("outlast.db");
    let (store, other) = (
        Store::open(&path).unwrap().store,
        Store::open(&path).unwrap().store,
    );
    let (answer, _) = store.ask(GATE, waiter(0), at(1)).await.unwrap();
    let Answer::Go(pass) = answer else { return };
    let failed = Report::Failed {
        pass,
        cause: Cause::Overloaded,
        stated: Some(at(90_000)),
        waiter: Some(waiter(0)),
    };
    store.report(GATE, failed, at(1)).await.unwrap();
    for number in 0..WAITERS {
        let joins = Report::Missed(waiter(number));
        store.report(GATE, joins, at(2)).await.unwrap();
    }
    let mut took = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS {
        other.renew_place(GATE, waiter(1), at(2)).await.unwrap();
        let begun = Instant::now();
        store
            .ask(GATE, waiter(round as u64 % WAITERS), at(3))
            .await
            .unwrap();
        took.push(begun.elapsed());
    }
    took.sort_unstable();
    let (median, slow) = (took[ROUNDS / 2], took[ROUNDS * 99 / 100]);
    println!(
        "gate decision through the store: median {median:?}, 99 of 100 within {slow:?} (median at most {LIMIT:?})"
    );
    assert!(median <= LIMIT, "the median is {median:?}");
}
