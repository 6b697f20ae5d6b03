//! Counts the machine instructions of a gate decision through the store, while two hundred wait and another process
//! writes.
//!
//! `cargo bench -p outlast-store` fails when it passes its limit (see the kernel's `benches/support/callgrind.rs`).
#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench is a program of its own: it reads arguments, runs valgrind and may stop at once"
)]

#[path = "../../kernel/benches/support/callgrind.rs"]
mod callgrind;

use callgrind::Case;
use outlast_kernel::Timestamp;
use outlast_kernel::gate::{GateReply, Report, Waiter, WaiterId};
use outlast_kernel::verdict::Cause;
use outlast_store::Store;

const WAITERS: u64 = 200;
const ROUNDS: u64 = 200;
const GATE: &str = "p/a/m";

const CASES: [Case; 1] = [Case {
    name: "gate_decision_with_200_waiting",
    baseline: 491_000,
    limit: 700_000,
    run: decide,
}];

fn main() {
    callgrind::run(&CASES, ROUNDS);
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

fn waiter(number: u64) -> Waiter {
    Waiter {
        id: WaiterId(format!("waiter-{number}")),
        since: at(number),
        own_wake: at(100_000),
        deadline: None,
        batch: None,
    }
}

#[tokio::main(flavor = "current_thread")]
async fn decide(rounds: u64) {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("outlast.db");
    let (store, other) = (
        Store::open(&path).unwrap().store,
        Store::open(&path).unwrap().store,
    );
    let (answer, _) = store.request_pass(GATE, waiter(0), at(1)).await.unwrap();
    let GateReply::Proceed(pass) = answer else {
        panic!("{answer:?}")
    };
    let failed = Report::Failed {
        pass,
        cause: Cause::Overloaded,
        stated: Some(at(90_000)),
        waiter: Some(waiter(0)),
    };
    store.report(GATE, failed, at(1)).await.unwrap();
    for number in 0..WAITERS {
        let joins = Report::MissedFailure(waiter(number));
        store.report(GATE, joins, at(2)).await.unwrap();
    }
    for round in 0..rounds {
        other.renew_waiter(GATE, waiter(1), at(2)).await.unwrap();
        store
            .request_pass(GATE, waiter(round % WAITERS), at(3))
            .await
            .unwrap();
    }
}
