//! Counts the machine instructions of an exchange with a gate through the store, while two hundred processes wait, and of
//! the read with which another process learns of it.
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
use outlast_kernel::gate::{
    Action, Call, Gate, GateFailure, Pass, ProcessQueue, RequestId, RequestRecord, Sync,
};
use outlast_store::{GateExchange, Store};

const PROCESSES: u64 = 200;
const ROUNDS: u64 = 200;
const GATE: &str = "p@/a/m";

const CASES: [Case; 1] = [Case {
    name: "gate_exchange_of_200_processes",
    baseline: 720_000,
    limit: 900_000,
    run: exchange,
}];

fn main() {
    callgrind::run(&CASES, ROUNDS);
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

fn exchange_of(process: u64, sync: Sync) -> GateExchange {
    GateExchange {
        key: GATE.to_owned(),
        process: process.to_string(),
        sync,
        cause: None,
        own_gate: None,
    }
}

fn next_sync(queue: &mut ProcessQueue, now: Timestamp) -> Sync {
    let Some(Action::Sync(sync)) = queue.poll(now).pop() else {
        panic!("no exchange is due")
    };
    *sync
}

/// Returns the news of a process whose request waits: it has met a usage limit that everybody shares.
async fn news_of_waiting_process(store: &Store) -> Sync {
    let mut queue = ProcessQueue::new(Gate::default(), true);
    let call = Call {
        request: RequestId(0),
        began: at(1),
        pass: Pass::Open,
    };
    let mut record = RequestRecord::new(at(1));
    queue.arrive(call.request, &record, at(1));
    assert_eq!(queue.poll(at(1)).len(), 1);
    queue.started(&call);
    let limit = GateFailure {
        is_refusal: true,
        stated: Some(at(90_000)),
        binds_account: true,
    };
    queue.failed(&call, &mut record, &limit, at(1));
    let report = exchange_of(0, next_sync(&mut queue, at(1)));
    let (reply, _) = store.sync_gate(report, at(1)).await.unwrap();
    queue.synced(reply, at(1));
    queue.requeue(call.request, &record, at(1));
    let sync = next_sync(&mut queue, at(2));
    assert_eq!(sync.queue.wanted, 1);
    sync
}

#[tokio::main(flavor = "current_thread")]
async fn exchange(rounds: u64) {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("outlast.db");
    let (store, other) = (
        Store::open(&path).unwrap().store,
        Store::open(&path).unwrap().store,
    );
    let sync = news_of_waiting_process(&store).await;
    let exchange = |process| exchange_of(process, sync.clone());
    for process in 0..PROCESSES {
        store.sync_gate(exchange(process), at(2)).await.unwrap();
    }
    for round in 0..rounds {
        let process = exchange(round % PROCESSES);
        other.sync_gate(process, at(3)).await.unwrap();
        store.has_external_changes().await.unwrap();
        store.gate_snapshots(at(3)).await.unwrap();
    }
}
