//! Many calls of one process at one gate.

use outlast_engine::Clock;
use outlast_engine::admission::{Admission, QueuePosition, Ticket};
use outlast_engine::clock::TimerClock;
use outlast_engine::shared_state::SharedState;
use outlast_kernel::Timestamp;
use outlast_kernel::failure::{ClassifiedFailure, Failure};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

struct Fixture {
    clock: Arc<dyn Clock>,
    admission: Admission,
    gate: Arc<str>,
}

impl Fixture {
    fn new() -> Self {
        let clock: Arc<dyn Clock> = Arc::new(TimerClock::new(Timestamp::from_millis(1_000_000)));
        let knowledge = SharedState::process_local(Arc::clone(&clock));
        Self {
            admission: Admission::new(knowledge, Arc::clone(&clock)),
            clock,
            gate: "p@/a/m".into(),
        }
    }

    fn try_admit(&self) -> Result<Ticket, QueuePosition> {
        self.admission.try_admit(&self.gate, self.clock.now())
    }

    fn enqueue(&self) -> QueuePosition {
        self.admission.enqueue(&self.gate, self.clock.now())
    }

    async fn fail(&self, admission: Ticket) {
        admission.report_failure(&overloaded(&*self.clock)).await;
    }

    /// Makes the first call, which fails.
    async fn fail_first_call(&self) {
        let Ok(first) = self.try_admit() else {
            panic!("nothing is wrong yet")
        };
        self.fail(first).await;
    }
}

fn overloaded(clock: &dyn Clock) -> Arc<ClassifiedFailure> {
    ClassifiedFailure::new(Failure::http("p", 529, "Overloaded", clock.now()))
}

#[tokio::test(start_paused = true)]
async fn open_gate_admits_all_calls_at_once() {
    let rig = Fixture::new();
    for _ in 0..100 {
        let Ok(admission) = rig.try_admit() else {
            panic!("held for no reason")
        };
        admission.report_success().await;
    }
}

#[tokio::test(start_paused = true)]
async fn thousand_waiters_probe_singly_then_ramp_up_in_order() {
    let rig = Fixture::new();
    rig.fail_first_call().await;
    let (probes, is_up) = (
        Arc::new(AtomicUsize::new(0)),
        rig.clock.now() + Duration::from_secs(600),
    );
    let served: Arc<Mutex<Vec<(usize, Timestamp)>>> = Arc::default();
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..1000 {
        let mut place = rig.enqueue();
        let (desk, gate, clock) = (
            rig.admission.clone(),
            Arc::clone(&rig.gate),
            Arc::clone(&rig.clock),
        );
        let (probes, served) = (Arc::clone(&probes), Arc::clone(&served));
        let since = clock.now();
        calls.spawn(async move {
            loop {
                let admission = place.await;
                if clock.now() >= is_up {
                    served.lock().unwrap().push((number, clock.now()));
                    return admission.report_success().await;
                }
                probes.fetch_add(1, Ordering::Relaxed);
                admission.report_failure(&overloaded(&*clock)).await;
                place = desk.enqueue(&gate, since);
            }
        });
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    calls.join_all().await;
    let served = served.lock().unwrap();
    // At most one every fifteen seconds, whatever the number of calls.
    let probes = probes.load(Ordering::Relaxed);
    assert!((30..60).contains(&probes), "{probes} probes");
    let first = served[0].1;
    assert!(first.since(is_up) < Duration::from_secs(20));
    let in_first_second = served
        .iter()
        .filter(|(_, at)| at.since(first) < Duration::from_secs(1));
    assert!(in_first_second.count() < 10, "a stampede");
    let numbers: Vec<usize> = served.iter().skip(1).map(|(number, _)| *number).collect();
    assert!(numbers.is_sorted(), "not in order");
}

#[tokio::test(start_paused = true)]
async fn enqueue_waits_for_stated_retry_after() {
    let rig = Fixture::new();
    let Ok(first) = rig.try_admit() else { panic!() };
    let stated = Failure::http("p", 429, "Slow down", rig.clock.now());
    let stated = stated.with_headers([("retry-after", "90")]);
    let begun = rig.clock.now();
    first.report_failure(&ClassifiedFailure::new(stated)).await;
    let admission = rig.enqueue().await;
    let waited = rig.clock.now().since(begun);
    assert!(
        waited >= Duration::from_secs(90) && waited < Duration::from_secs(95),
        "{waited:?}"
    );
    admission.report_success().await;
}

#[tokio::test(start_paused = true)]
async fn dropped_waiter_is_skipped_and_dropped_probe_returned() {
    let rig = Fixture::new();
    rig.fail_first_call().await;
    let gone = rig.enqueue();
    tokio::time::advance(Duration::from_millis(5)).await;
    let (second, third) = (rig.enqueue(), rig.enqueue());
    drop(gone);
    let begun = rig.clock.now();
    drop(second.await);
    third.await.report_success().await;
    assert!(rig.clock.now().since(begun) < Duration::from_secs(6));
    let Ok(after) = rig.try_admit() else {
        panic!("nobody is left, and nothing is wrong any more")
    };
    after.report_success().await;
}
