//! Counts the machine instructions of a decision, with valgrind.
//!
//! `cargo bench -p outlast-kernel` fails when a case passes its limit or its baseline by more than a quarter.
//! Not here: the counting (see `support/callgrind.rs`).
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a bench is a program of its own: it reads arguments, runs valgrind and may stop at once"
)]

#[path = "support/callgrind.rs"]
mod callgrind;

use callgrind::Case;
use outlast_kernel::Timestamp;
use outlast_kernel::attempt::{Event, State, step};
use outlast_kernel::budget::{Chain, Prompt};
use outlast_kernel::classify::classify;
use outlast_kernel::decision::{Remedies, RetryRules, Situation, decide};
use outlast_kernel::failure::{ClassifiedFailure, Failure};
use outlast_kernel::gate::{
    Action, Call, Gate, GateFailure, Pass, ProcessQueue, RequestId, RequestRecord, SyncReply,
};
use outlast_kernel::policy::Policy;
use outlast_kernel::verdict::{Authority, Cause, Hint, Scope, Verdict};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

const CASES: [Case; 10] = [
    Case {
        name: "decide",
        baseline: 209,
        limit: 500,
        run: decide_plain,
    },
    Case {
        name: "decide_with_hint",
        baseline: 246,
        limit: 500,
        run: decide_with_hint,
    },
    Case {
        name: "delay_for",
        baseline: 384,
        limit: 500,
        run: delay_for,
    },
    // Two steps of the reducer: into the wait, and out of it.
    Case {
        name: "fail_wait_wake",
        baseline: 946,
        limit: 1000,
        run: fail_wait_wake,
    },
    // A request passes a gate at which calls succeed.
    Case {
        name: "gate_flowing",
        baseline: 552,
        limit: 1000,
        run: gate_flowing,
    },
    // One of five thousand queued requests gets its slot, succeeds, and another one joins.
    Case {
        name: "gate_with_5000_waiting",
        baseline: 2605,
        limit: 5000,
        run: gate_with_5000_waiting,
    },
    Case {
        name: "verdict_by_code",
        baseline: 3162,
        limit: 3500,
        run: verdict_by_code,
    },
    Case {
        name: "verdict_by_status",
        baseline: 2803,
        limit: 3500,
        run: verdict_by_status,
    },
    Case {
        name: "verdict_by_text",
        baseline: 64_500,
        limit: 70_000,
        run: verdict_by_text,
    },
    // Every third byte is a mark: far worse than any body that was seen, and still linear.
    Case {
        name: "verdict_by_quotes",
        baseline: 83_700,
        limit: 95_000,
        run: verdict_by_quotes,
    },
];

const ROUNDS: u64 = 2_000;
const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn main() {
    callgrind::run(&CASES, ROUNDS);
}

// --- cases ---

fn judged() -> Arc<ClassifiedFailure> {
    ClassifiedFailure::new(Failure::http("p", 529, "Overloaded", NOW).with_verdict(overloaded()))
}

fn decide_rounds(rounds: u64, verdict: &Verdict) {
    let rules = RetryRules::from(&Policy::named("overnight").expect("a named policy"));
    let (chain, prompt) = (Chain::default(), Prompt::default());
    for round in 0..rounds {
        let situation = Situation {
            verdict,
            retryable: None,
            committed: false,
            scheduled_delay: Some(Duration::from_secs(round)),
            remedies: Remedies::NONE,
            now: NOW,
        };
        black_box(decide(
            black_box(&rules),
            black_box(&chain),
            black_box(&prompt),
            black_box(&situation),
        ));
    }
}

fn overloaded() -> Verdict {
    Verdict::new(Cause::Overloaded, Scope::Model)
}

fn decide_plain(rounds: u64) {
    decide_rounds(rounds, &overloaded());
}

fn decide_with_hint(rounds: u64) {
    let hint = Hint {
        not_before: NOW + Duration::from_secs(20_000),
        source: "retry-after".to_owned(),
        authority: Authority::Stated,
    };
    decide_rounds(
        rounds,
        &Verdict {
            hint: Some(hint),
            ..Verdict::new(Cause::RateLimited, Scope::Credential)
        },
    );
}

fn delay_for(rounds: u64) {
    let overnight = Policy::named("overnight").expect("a named policy");
    for round in 0..rounds {
        let retry = u32::try_from(round % 21).expect("small");
        black_box(black_box(&overnight).delay_for(black_box(retry)));
    }
}

fn gate_flowing(rounds: u64) {
    let mut queue = ProcessQueue::new(Gate::default(), true);
    for round in 0..rounds {
        let now = NOW + Duration::from_millis(round);
        let pass = queue.arrive_open(black_box(now)).expect("an open gate");
        let call = Call {
            request: RequestId(round),
            began: now,
            pass,
        };
        queue.started(&call);
        queue.succeeded(&call, now);
    }
    black_box(queue);
}

fn gate_with_5000_waiting(rounds: u64) {
    let mut queue = ProcessQueue::new(Gate::default(), false);
    let mut now = NOW;
    // Eight requests prove an outage; the others arrive during it.
    for number in 0..8 {
        let (request, mut record) = (RequestId(number), RequestRecord::new(now));
        let pass = queue.arrive_open(now).expect("an open gate");
        for _ in 0..8 {
            let call = Call {
                request,
                began: now,
                pass,
            };
            queue.started(&call);
            queue.failed(&call, &mut record, &GateFailure::default(), now);
        }
        queue.leave(request);
    }
    let mut served = 0;
    let mut arrived = 8;
    exchange(&mut queue, now);
    let mut arrive = |queue: &mut ProcessQueue, now| {
        queue.arrive(RequestId(arrived), &RequestRecord::new(now), now);
        arrived += 1;
    };
    (0..5000).for_each(|_| arrive(&mut queue, now));
    while served < rounds {
        serve_next(&mut queue, &mut now);
        arrive(&mut queue, now);
        served += 1;
    }
    black_box(queue);
}

/// Carries out what is due; returns the calls that start.
fn exchange(queue: &mut ProcessQueue, now: Timestamp) -> Vec<(RequestId, Pass)> {
    let mut started = Vec::new();
    let mut actions = queue.poll(now);
    while let Some(action) = actions.pop() {
        match action {
            Action::Start(request, pass) => started.push((request, pass)),
            Action::Sync(sync) => {
                let mut gate = queue.gate().clone();
                let grant = gate.sync(&sync.report, &sync.queue, now);
                let reply = SyncReply {
                    gate,
                    grant,
                    fleet_oldest: None,
                };
                actions.extend(queue.synced(reply, now));
            }
        }
    }
    started
}

/// Lets time pass until calls start; they succeed.
fn serve_next(queue: &mut ProcessQueue, now: &mut Timestamp) {
    loop {
        let started = exchange(queue, *now);
        for (request, pass) in &started {
            let call = Call {
                request: *request,
                began: *now,
                pass: *pass,
            };
            queue.started(&call);
            queue.succeeded(&call, *now);
        }
        if !started.is_empty() {
            return;
        }
        *now = queue.next_wake().expect("something is due").max(*now);
    }
}

fn fail_wait_wake(rounds: u64) {
    let failure = judged();
    let mut state = State::new(RetryRules::BY_SCHEDULE, Prompt::default());
    step(&mut state, Event::Started);
    for _ in 0..rounds {
        let scheduled_delay = Some(Duration::from_secs(5));
        let failed = Event::Failed {
            failure: Arc::clone(&failure),
            scheduled_delay,
            is_quick: false,
            remedies: Remedies::NONE,
            now: NOW,
        };
        black_box(step(&mut state, black_box(failed)));
        black_box(step(
            &mut state,
            black_box(Event::Woke {
                now: NOW + Duration::from_secs(5),
            }),
        ));
    }
}

fn classify_rounds(rounds: u64, failure: &Failure) {
    for _ in 0..rounds {
        black_box(classify(black_box(failure)));
    }
}

fn verdict_by_code(rounds: u64) {
    let failure = Failure::http("anthropic", 529, "Overloaded", NOW).with_code("overloaded_error");
    classify_rounds(
        rounds,
        &failure.with_headers([("retry-after", "7"), ("request-id", "req_1")]),
    );
}

fn verdict_by_status(rounds: u64) {
    classify_rounds(
        rounds,
        &Failure::http("openai", 503, "Service Unavailable", NOW),
    );
}

/// Two KiB of ordinary words with the decisive ones at the end.
fn verdict_by_text(rounds: u64) {
    let filler = "the request that you sent could not be handled by the service at this time for a reason that follows. ";
    let telling = "You have hit your usage limit. Please try again in 1h2m3s.";
    let mut message = filler.repeat(20);
    message.truncate(2048 - telling.len());
    message.push_str(telling);
    classify_rounds(rounds, &Failure::thrown("openai", &message, NOW));
}

/// Two KiB of escaped JSON, with marks that open and never close.
fn verdict_by_quotes(rounds: u64) {
    let mut message = r#"{\"role\": \"user\", \"text\": "it's 'so } "#.repeat(60);
    message.truncate(2048);
    classify_rounds(rounds, &Failure::thrown("openai", &message, NOW));
}
