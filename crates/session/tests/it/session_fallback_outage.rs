//! Hours in which models fail by turns: all work is done, no model is asked before its cooldown ends, and none without a
//! pause.

use crate::routes::{ByTime, Routes};
use crate::support::{Item, Listener, START, overloaded, stop, text};
use outlast_kernel::event::{Body, Event, StopReason, TurnStatus};
use outlast_kernel::failure::Failure;
use outlast_session::Session;
use std::sync::Arc;
use std::time::Duration;

const HOUR: u64 = 3600;

/// Returns failures during these hours, a completion otherwise.
fn down(hours: &'static [(u64, u64)]) -> impl Fn(Duration) -> Vec<Item> + Clone {
    move |after| {
        let hour = after.as_secs() / HOUR;
        match hours
            .iter()
            .any(|(from, until)| (*from..*until).contains(&hour))
        {
            true => vec![Err(Box::new(overloaded()))],
            false => vec![text("Hello"), stop(StopReason::EndTurn)],
        }
    }
}

fn outage(takes: u64) -> Routes {
    let mut routes = Routes::none();
    let clock = || Arc::clone(&routes.world.clock);
    let takes = Duration::from_secs(takes);
    let one = ByTime {
        clock: clock(),
        takes,
        answer: down(&[(1, 7)]),
    };
    let two = ByTime {
        clock: clock(),
        takes,
        answer: down(&[(2, 4), (5, 6)]),
    };
    routes.push("one", Arc::new(one));
    routes.push("two", Arc::new(two));
    routes
}

/// Sends a prompt each minute, or as soon as the one before is over, for eight hours.
async fn work_through(routes: &Routes) -> (Listener, Arc<Session>) {
    let session = Arc::new(Session::in_memory(routes.setup_by("overnight")));
    let heard = Listener::new(&session);
    while routes.world.elapsed().as_secs() < 8 * HOUR {
        let ended = session.prompt("hi".into()).await.unwrap();
        assert_eq!(ended.seal, TurnStatus::Completed, "{:?}", ended.error);
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    (heard, session)
}

#[tokio::test(start_paused = true)]
async fn long_outage_calls_no_model_before_its_cooldown_ends() {
    // A call takes a while, so that none is made at the moment at which its model is left.
    for takes in [1, 7, 100] {
        let routes = outage(takes);
        let (heard, _session) = work_through(&routes).await;
        let asked = routes.request_times();
        for (left, from, until) in leavings(&heard) {
            let is_early =
                |(time, name): &&(u64, &str)| *name == from && (left..until).contains(time);
            let early: Vec<_> = asked.iter().filter(is_early).collect();
            assert!(early.is_empty(), "{from} left at {left}: {early:?}");
        }
        let recovered = asked
            .iter()
            .find(|(time, name)| *time >= 7 * HOUR && *name == "one");
        let (back, _) = recovered.unwrap();
        // A cooldown, a pause between two prompts and a call that was under way.
        assert!(*back <= 7 * HOUR + 300 + 60 + takes, "back at {back}");
        assert!(asked.len() < 8 * 90, "{} requests", asked.len());
        let failed = heard.count("retry_scheduled");
        assert!(failed < 120, "{failed} retries");
    }
}

/// Returns the models that were left, with the time of leaving and the end of the cooldown, in seconds after the start.
fn leavings(heard: &Listener) -> Vec<(u64, String, u64)> {
    let leaving = |event: &Event| match &event.body {
        Body::ModelSwitched {
            from,
            until: Some(until),
            ..
        } => {
            let (at, until) = (event.time.since(START), until.since(START));
            Some((at.as_secs(), from.clone(), until.as_secs()))
        }
        _ => None,
    };
    heard.events().iter().filter_map(leaving).collect()
}

/// Runs through an outage of three hours at one of two models, with no key for the other.
async fn one_is_down_and_the_other_has_no_key(down_first: bool) -> (Routes, TurnStatus) {
    let mut routes = Routes::none();
    let takes = Duration::from_secs(150);
    let outage = ByTime {
        clock: Arc::clone(&routes.world.clock),
        takes,
        answer: down(&[(0, 3)]),
    };
    let refused = ByTime {
        clock: Arc::clone(&routes.world.clock),
        takes,
        answer: |_: Duration| {
            let refused = Failure::http("two", 401, "invalid x-api-key", START);
            vec![Err(Box::new(refused))]
        },
    };
    if down_first {
        routes.push("down", Arc::new(outage));
        routes.push("refused", Arc::new(refused));
    } else {
        routes.push("refused", Arc::new(refused));
        routes.push("down", Arc::new(outage));
    }
    let session = Arc::new(Session::in_memory(routes.setup_by("overnight")));
    let ended = session.prompt("hi".into()).await.unwrap();
    (routes, ended.seal)
}

#[tokio::test(start_paused = true)]
async fn refused_model_does_not_end_wait_for_recovering_model() {
    for down_first in [true, false] {
        let (routes, seal) = one_is_down_and_the_other_has_no_key(down_first).await;
        assert_eq!(seal, TurnStatus::Completed, "{:?}", routes.request_times());
        let of = |name: &str| {
            routes
                .names()
                .iter()
                .filter(|asked| **asked == name)
                .count()
        };
        // Each is asked again after its cooldown at most.
        assert!(of("refused") < 3 * 12, "{:?}", routes.request_times());
        assert!(of("down") < 3 * 12, "{:?}", routes.request_times());
    }
}
