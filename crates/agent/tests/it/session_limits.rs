//! What a prompt may spend, over all of its steps: its sleep and its deadline.

use crate::support::{
    Call, Listener, START, World, answers, calls, fails, hangs, overloaded, text, words,
};
use outlast_agent::session::Ask;
use outlast_engine::turn::Ended;
use outlast_kernel::budget::Limits;
use outlast_kernel::event::Seal;
use std::time::Duration;

fn ask(limits: Limits) -> Ask {
    Ask {
        limits,
        ..Ask::from("hi")
    }
}

fn deadline(seconds: u64) -> Limits {
    Limits {
        deadline: Some(START + Duration::from_secs(seconds)),
        ..Limits::default()
    }
}

fn sleep(seconds: u64) -> Limits {
    Limits {
        sleep: Some(Duration::from_secs(seconds)),
        ..Limits::default()
    }
}

fn reason(ended: &Ended) -> String {
    ended.error.as_ref().unwrap().1.to_string()
}

/// Two failures before a tool is wanted, two before the answer.
fn two_steps() -> Vec<Call> {
    let failing = || fails(overloaded());
    vec![
        failing(),
        failing(),
        calls(&[("c1", "read")]),
        failing(),
        failing(),
        answers("done"),
    ]
}

#[tokio::test(start_paused = true)]
async fn the_sleep_of_a_prompt_is_spent_over_all_steps() {
    let world = World::new(two_steps());
    let session = world.session();
    let heard = Listener::new(&session);
    let ended = session.prompt(ask(sleep(9))).await.unwrap();
    assert_eq!(
        (ended.seal, reason(&ended)),
        (Seal::Error, "the prompt may only wait 1s more".to_owned())
    );
    assert_eq!(heard.retries(), [(1, 2_000), (2, 4_000), (1, 2_000)]);
    assert_eq!(ended.budget.sleep_left(), Some(Duration::from_secs(1)));
    // Another prompt has its own.
    let ended = session.prompt(ask(sleep(9))).await.unwrap();
    assert_eq!(ended.seal, Seal::Completed);
}

#[tokio::test(start_paused = true)]
async fn enough_sleep_for_all_steps_is_enough() {
    let world = World::new(two_steps());
    let ended = world.session().prompt(ask(sleep(12))).await.unwrap();
    assert_eq!(
        (ended.seal, world.elapsed()),
        (Seal::Completed, Duration::from_secs(12))
    );
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_cut_short_costs_what_was_slept() {
    let world = World::new(two_steps());
    let session = world.session();
    let hurry = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        session.retry_now();
    };
    let (ended, ()) = tokio::join!(session.prompt(ask(sleep(9))), hurry);
    let ended = ended.unwrap();
    assert_eq!(
        (ended.seal, world.elapsed()),
        (Seal::Completed, Duration::from_secs(9))
    );
    assert_eq!(ended.budget.sleep_left(), Some(Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn no_step_moves_the_deadline() {
    let world = World::new(two_steps());
    let session = world.session();
    let ended = session.prompt(ask(deadline(11))).await.unwrap();
    let said = "the next try would come after the deadline";
    assert_eq!((ended.seal, reason(&ended).as_str()), (Seal::Error, said));
    // The wait that would have ended after it was not begun.
    assert_eq!(world.elapsed(), Duration::from_secs(8));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_in_the_middle_of_a_stream_ends_it() {
    for items in [vec![], vec![text("Hel")]] {
        let world = World::new([hangs(items)]);
        let session = world.session();
        let heard = Listener::new(&session);
        let ended = session.prompt(ask(deadline(30))).await.unwrap();
        assert_eq!(
            (ended.seal, world.elapsed()),
            (Seal::Error, Duration::from_secs(30))
        );
        assert_eq!((heard.retries(), heard.count("error")), (vec![], 1));
        assert_eq!(reason(&ended), "the next try would come after the deadline");
        assert_eq!(words(&session.messages()), ["hi"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_in_the_middle_of_a_tool_ends_it_and_the_turn() {
    let results = [
        ("slow", "c1! it was stopped", 30_000),
        (
            "stubborn",
            "c1! it was interrupted and may have partly run",
            30_230,
        ),
    ];
    for (name, result, millis) in results {
        let world = World::new([calls(&[("c1", name), ("c2", "read")]), answers("unused")]);
        let session = world.session();
        let ended = session.prompt(ask(deadline(30))).await.unwrap();
        assert_eq!(
            (ended.seal, world.elapsed()),
            (Seal::Error, Duration::from_millis(millis))
        );
        assert_eq!(world.provider.calls_made(), 1, "nothing is asked after it");
        let too_late = "c2! it was not run: the time for this prompt was over before it began";
        assert_eq!(words(&session.messages())[3..], [result, too_late]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_may_end_before_the_deadline_and_no_later() {
    let failing = || fails(overloaded());
    for (seconds, tries) in [(1, 1), (3, 2), (7, 3), (15, 4)] {
        let world = World::new([failing()]);
        let ended = world
            .session()
            .prompt(ask(deadline(seconds)))
            .await
            .unwrap();
        assert_eq!(
            (ended.seal, world.provider.calls_made()),
            (Seal::Error, tries)
        );
        assert!(world.elapsed() <= Duration::from_secs(seconds));
    }
}
