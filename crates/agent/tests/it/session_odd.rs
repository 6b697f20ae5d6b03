//! Answers that ended and are none: the model is told, so many times, and nothing of them comes back.

use crate::pieces::{after_content, assert_well_formed, shown, thinks, thought, with_tools};
use crate::support::{
    Call, Fate, Kept, Listener, START, World, answers, calls, elsewhere, fails, overloaded, stop,
    text, until_cut, used, wants, words,
};
use outlast_agent::Session;
use outlast_agent::session::Setup;
use outlast_dialect::{Message, Request};
use outlast_engine::BoxFuture;
use outlast_engine::compaction::{Compactor, Job, Outcome, Size, Smaller};
use outlast_engine::turn::Ended;
use outlast_kernel::decision::{AfterContent, GiveUp};
use outlast_kernel::event::{Body, CompactionReason, Seal, StopReason, Usage};
use outlast_kernel::failure::{Failure, Judged};
use outlast_kernel::models::Traits;
use outlast_kernel::policy::Policy;
use outlast_kernel::stop::Oddity;
use outlast_kernel::verdict::{Cause, Scope, Verdict};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const NOT_RUN: &str = "it was not run: the answer reached its output limit before it was complete; split the work into \
                       smaller calls";

/// An answer that is none, and what of it stays in the conversation.
struct Odd {
    oddity: Oddity,
    call: Call,
    stays: &'static [&'static str],
}

fn odd(oddity: Oddity, call: impl Into<Call>, stays: &'static [&'static str]) -> Odd {
    let call = call.into();
    Odd {
        oddity,
        call,
        stays,
    }
}

const CALL_AS_TEXT: &str = "<tool_call>{\"name\": \"read\", \"arguments\": {}}</tool_call>";
const ANNOUNCED: &str = "Now I'll run the tests:";

/// Answers that are dropped.
fn dropped() -> Vec<Odd> {
    let end = || stop(StopReason::EndTurn);
    let billed = Oddity::Empty { billed: true };
    let empty = Oddity::Empty { billed: false };
    vec![
        odd(empty, vec![end()], &[]),
        odd(empty, vec![text(" \n"), end()], &[]),
        odd(empty, vec![thinks("Hm."), used(10, 5), end()], &[]),
        odd(billed, vec![used(10, 5), end()], &[]),
        odd(
            Oddity::NoCall,
            vec![text("I look."), stop(StopReason::ToolUse)],
            &[],
        ),
        odd(Oddity::LengthEmpty, vec![stop(StopReason::Length)], &[]),
        odd(
            Oddity::OnlyReasoned,
            vec![thinks("Hm."), thought("Hm."), stop(StopReason::Length)],
            &[],
        ),
        odd(
            Oddity::NamelessCall,
            vec![wants("c1", ""), stop(StopReason::ToolUse)],
            &[],
        ),
    ]
}

/// Answers that stay, and are followed by what is missing.
fn kept() -> Vec<Odd> {
    vec![
        odd(
            Oddity::ReasoningOnly,
            vec![thinks("Hm."), thought("Hm."), stop(StopReason::EndTurn)],
            &["(Hm.)"],
        ),
        odd(Oddity::CallAsText, answers(CALL_AS_TEXT), &[CALL_AS_TEXT]),
        odd(Oddity::Announced, answers(ANNOUNCED), &[ANNOUNCED]),
    ]
}

fn corrected(heard: &Listener) -> Vec<(Cause, String, u32, u32)> {
    let correction = |body: Body| match body {
        Body::Corrected {
            cause,
            message,
            attempt,
            max_attempts,
        } => Some((cause, message, attempt, max_attempts)),
        _ => None,
    };
    heard.bodies().into_iter().filter_map(correction).collect()
}

/// The numbers of the corrections.
fn numbers(heard: &Listener) -> Vec<u32> {
    corrected(heard)
        .iter()
        .map(|correction| correction.2)
        .collect()
}

fn error(ended: &Ended) -> (Cause, &str, GiveUp) {
    let (judged, why) = ended.error.as_ref().unwrap();
    (judged.verdict.cause, &judged.failure.message, *why)
}

async fn prompt(setup: Setup) -> (Arc<Session>, Listener, Ended) {
    let session = Arc::new(Session::in_memory(setup));
    let heard = Listener::new(&session);
    let ended = session.prompt("hi".into()).await.unwrap();
    (session, heard, ended)
}

// --- The model is told ---

#[tokio::test(start_paused = true)]
async fn the_model_is_told_what_was_wrong_and_asked_again_at_once() {
    for Odd {
        oddity,
        call,
        stays,
    } in dropped().into_iter().chain(kept())
    {
        let world = World::new([call, answers("Hello")]);
        let (session, heard, ended) = prompt(with_tools(&world)).await;
        assert_eq!(ended.seal, Seal::Completed, "{oddity:?}");
        let asked = world.provider.asked();
        let notice = oddity.notice().unwrap();
        let expected = [&["hi"][..], stays, &[notice]].concat();
        assert_eq!(
            (asked.len(), words(&asked[1].messages)),
            (2, expected.iter().map(|word| (*word).to_owned()).collect()),
            "{oddity:?}"
        );
        let expected = [&expected[..], &["Hello"]].concat();
        assert_eq!(words(&session.messages()), expected, "{oddity:?}");
        let problem = oddity.problem().to_owned();
        assert_eq!(corrected(&heard), [(oddity.cause(), problem, 1, 3)]);
        assert_eq!((world.elapsed(), heard.retries()), (Duration::ZERO, vec![]));
        assert_eq!(world.tools.ran(), Vec::<String>::new());
        // Whoever shows the answer shows what counts.
        let text = [stays.concat().replace("(Hm.)", ""), "Hello".to_owned()].concat();
        assert_eq!(shown(&heard), text, "{oddity:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_no_answer_is_dropped_also_where_broken_answers_are_gone_on_with() {
    for Odd { oddity, call, .. } in dropped() {
        let world = World::new([call, answers("Hello")]);
        let setup = Setup {
            after_content: AfterContent::Continue,
            ..with_tools(&world)
        };
        let (session, heard, _) = prompt(setup).await;
        let notice = oddity.notice().unwrap();
        assert_eq!(words(&session.messages()), ["hi", notice, "Hello"]);
        let asked = world.provider.asked();
        assert_eq!(words(&asked[1].messages), ["hi", notice], "{oddity:?}");
        assert_eq!((shown(&heard).as_str(), heard.count("seam")), ("Hello", 0));
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_could_not_be_read_is_asked_for_again_with_what_was_wrong() {
    let message = "the arguments of a call are blanks without end";
    let failure = Failure::emitted("scripted", message, START)
        .with_verdict(Verdict::of(Cause::MalformedOutput, Scope::Request));
    let broken = vec![text("I look."), Err(Box::new(failure))];
    let notice = format!("Your last answer could not be used ({message}). Answer again.");
    for after_content in [AfterContent::Retract, AfterContent::Continue] {
        let world = World::new([broken.clone().into(), answers("Hello")]);
        let setup = Setup {
            after_content,
            ..with_tools(&world)
        };
        let (session, heard, ended) = prompt(setup).await;
        assert_eq!((ended.seal, numbers(&heard)), (Seal::Completed, vec![1]));
        assert_eq!(words(&session.messages()), ["hi", &notice, "Hello"]);
        assert_eq!(shown(&heard), "Hello");
    }
}

// --- Three times, and no more ---

#[tokio::test(start_paused = true)]
async fn after_three_in_a_row_a_clear_error_ends_the_turn_for_good() {
    let all = dropped().into_iter().chain(kept());
    for Odd { oddity, call, .. } in all.filter(|odd| odd.oddity != Oddity::Announced) {
        let world = World::new([call]);
        let (session, heard, ended) = prompt(with_tools(&world)).await;
        assert_eq!(ended.seal, Seal::Error, "{oddity:?}");
        let expected = (oddity.cause(), oddity.problem(), GiveUp::NotRetryable);
        assert_eq!(error(&ended), expected);
        assert_eq!((numbers(&heard), heard.count("error")), (vec![1, 2, 3], 1));
        tokio::time::sleep(Duration::from_secs(24 * 3600)).await;
        assert_eq!(world.provider.calls_made(), 4, "{oddity:?}");
        assert!(session.unfinished_turn().is_none());
        assert_well_formed(&session.messages());
        // The last one was not answered by anybody, and is not sent again.
        let notices = session
            .messages()
            .iter()
            .filter(|message| message.text() == oddity.notice().unwrap())
            .count();
        assert_eq!(notices, 3);
        assert_eq!(
            session.messages().last().unwrap().text(),
            oddity.notice().unwrap()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_billed_and_never_came_names_a_filter_or_a_proxy() {
    let world = World::new([vec![used(10, 5), stop(StopReason::EndTurn)].into()]);
    let (_, heard, ended) = prompt(with_tools(&world)).await;
    let (cause, message, _) = error(&ended);
    assert_eq!(cause, Cause::EmptyOutput);
    assert!(message.contains("content filter or a proxy"), "{message}");
    let said = heard.bodies().into_iter().find_map(|body| match body {
        Body::Error { message, .. } => Some(message),
        _ => None,
    });
    assert_eq!(said.as_deref(), Some(message));
}

#[tokio::test(start_paused = true)]
async fn an_announcement_that_is_made_again_and_again_is_an_answer() {
    let world = World::new([answers(ANNOUNCED)]);
    let (session, heard, ended) = prompt(with_tools(&world)).await;
    assert_eq!(
        (ended.seal, world.provider.calls_made()),
        (Seal::Completed, 4)
    );
    assert_eq!((numbers(&heard), heard.count("done")), (vec![1, 2, 3], 1));
    let notice = Oddity::Announced.notice().unwrap();
    let expected = [
        "hi", ANNOUNCED, notice, ANNOUNCED, notice, ANNOUNCED, notice, ANNOUNCED,
    ];
    assert_eq!(words(&session.messages()), expected);
}

#[tokio::test(start_paused = true)]
async fn a_good_step_in_between_starts_the_count_anew() {
    let empty = || Call::from(vec![stop(StopReason::EndTurn)]);
    let world = World::new([
        empty(),
        empty(),
        calls(&[("c1", "read")]),
        empty(),
        empty(),
        empty(),
        answers("Hello"),
    ]);
    let (_, heard, ended) = prompt(with_tools(&world)).await;
    assert_eq!(ended.seal, Seal::Completed);
    assert_eq!(numbers(&heard), [1, 2, 1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_in_between_does_not() {
    let empty = || Call::from(vec![stop(StopReason::EndTurn)]);
    let world = World::new([
        empty(),
        empty(),
        fails(overloaded()),
        empty(),
        fails(overloaded()),
        empty(),
    ]);
    let (_, heard, ended) = prompt(with_tools(&world)).await;
    assert_eq!((ended.seal, world.provider.calls_made()), (Seal::Error, 6));
    assert_eq!(
        (numbers(&heard), heard.retries()),
        (vec![1, 2, 3], vec![(1, 2_000), (2, 4_000)])
    );
    let problem = Oddity::Empty { billed: false }.problem().to_owned();
    assert_eq!(heard.ends(), [(false, 2, Some(problem))]);
}

// --- Without retries ---

/// The ways to have no retries.
fn without_retries(world: &World) -> [Setup; 3] {
    let none = world.setup_by(Policy::named("none").unwrap()).retry;
    [
        Setup {
            retry: none,
            ..with_tools(world)
        },
        Setup {
            retry: None,
            ..with_tools(world)
        },
        Setup {
            retry_enabled: false,
            ..with_tools(world)
        },
    ]
}

#[tokio::test(start_paused = true)]
async fn without_retries_nothing_is_corrected() {
    for Odd { oddity, call, .. } in dropped().into_iter().chain(kept()) {
        let world = World::new([call]);
        let (seal, end) = match oddity {
            Oddity::Announced => (Seal::Completed, "done"),
            _ => (Seal::Error, "error"),
        };
        for setup in without_retries(&world) {
            let (_, heard, ended) = prompt(setup).await;
            assert_eq!((ended.seal, heard.count(end)), (seal, 1), "{oddity:?}");
            assert_eq!(heard.count("corrected"), 0, "{oddity:?}");
        }
        assert_eq!(world.provider.calls_made(), 3, "{oddity:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn retries_that_are_switched_off_meanwhile_correct_nothing_more() {
    for Odd { oddity, call, .. } in dropped().into_iter().chain(kept()) {
        let world = World::new([calls(&[("c1", "read")]), call]);
        let session = Arc::new(Session::in_memory(with_tools(&world)));
        let heard = Listener::with(&session, |session, body| {
            if matches!(body, Body::ToolStarted { .. }) {
                session.set_auto_retry_enabled(false);
            }
        });
        session.prompt("hi".into()).await.unwrap();
        assert_eq!(heard.count("corrected"), 0, "{oddity:?}");
        assert_eq!(world.provider.calls_made(), 2, "{oddity:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_answer_is_one_where_no_corrections_are_wanted() {
    for Odd { oddity, call, .. } in dropped().into_iter().chain(kept()) {
        // A call without a name is run, or refused, like any other.
        let world = World::new([call, answers("Hello")]);
        let setup = Setup {
            corrections: 0,
            ..with_tools(&world)
        };
        let (session, heard, ended) = prompt(setup).await;
        assert_eq!(
            (ended.seal, heard.count("corrected")),
            (Seal::Completed, 0),
            "{oddity:?}"
        );
        assert_well_formed(&session.messages());
    }
}

#[tokio::test(start_paused = true)]
async fn reasoning_that_was_heard_cannot_be_asked_for_again_where_nothing_is_taken_back() {
    for stop_reason in [StopReason::EndTurn, StopReason::Length] {
        let world = World::new([vec![thinks("Hm."), stop(stop_reason)].into()]);
        let (session, heard, ended) = prompt(after_content(&world, AfterContent::Fail)).await;
        assert_eq!(error(&ended).2, GiveUp::ContentSent);
        assert_eq!(
            (world.provider.calls_made(), heard.count("corrected")),
            (1, 0)
        );
        assert_eq!(words(&session.messages()), ["hi"]);
    }
}

// --- Refusals ---

#[tokio::test(start_paused = true)]
async fn a_refusal_is_an_error_and_is_never_sent_again() {
    let refusal = || -> Call { vec![text("I can't."), stop(StopReason::Refusal)].into() };
    for after_content in [
        AfterContent::Fail,
        AfterContent::Retract,
        AfterContent::Continue,
    ] {
        let world = World::new([refusal(), answers("Hello")]);
        let setup = Setup {
            after_content,
            ..with_tools(&world)
        };
        let (session, heard, ended) = prompt(setup).await;
        assert_eq!((ended.seal, world.provider.calls_made()), (Seal::Error, 1));
        let (cause, message, _) = error(&ended);
        let problem = format!("{}: I can't.", Oddity::Refused.problem());
        assert_eq!((cause, message), (Cause::ContentFilter, problem.as_str()));
        assert_eq!((heard.count("corrected"), heard.count("error")), (0, 1));
        session.prompt("again".into()).await.unwrap();
        let asked = world.provider.asked();
        assert_eq!(words(&asked[1].messages), ["hi", "again"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_without_a_word_is_an_error_too() {
    let world = World::new([vec![stop(StopReason::Refusal)].into()]);
    let (_, _, ended) = prompt(with_tools(&world)).await;
    let expected = (
        Cause::ContentFilter,
        Oddity::Refused.problem(),
        GiveUp::NotRetryable,
    );
    assert_eq!(error(&ended), expected);
    assert_eq!(world.provider.calls_made(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refused_call_is_not_run() {
    let refused = vec![wants("c1", "send"), stop(StopReason::Refusal)];
    let world = World::new([refused.into()]);
    let (session, _, ended) = prompt(with_tools(&world)).await;
    assert_eq!((ended.seal, world.tools.ran().len()), (Seal::Error, 0));
    assert_eq!(words(&session.messages()), ["hi"]);
}

// --- The output limit ---

#[tokio::test(start_paused = true)]
async fn text_that_the_output_limit_cut_is_kept_with_a_warning() {
    let world = World::new([vec![text("Once upon"), stop(StopReason::Length)].into()]);
    let (session, heard, ended) = prompt(with_tools(&world)).await;
    assert_eq!(
        (ended.seal, ended.stop_reason),
        (Seal::Completed, Some(StopReason::Length))
    );
    assert_eq!(words(&session.messages()), ["hi", "Once upon"]);
    let message = "the answer reached the output limit and is incomplete".to_owned();
    assert!(heard.bodies().contains(&Body::Warning { message }));
    assert_eq!((heard.count("corrected"), heard.count("done")), (0, 1));
    assert_eq!(world.provider.calls_made(), 1);
}

fn cut_calls() -> Call {
    let items = vec![
        text("I write."),
        wants("c1", "send"),
        wants("c2", "read"),
        stop(StopReason::Length),
    ];
    items.into()
}

#[tokio::test(start_paused = true)]
async fn calls_that_the_output_limit_cut_are_not_run_and_the_model_is_told_to_split_them() {
    let world = World::new([cut_calls(), calls(&[("c3", "read")]), answers("Hello")]);
    let (session, heard, ended) = prompt(with_tools(&world)).await;
    assert_eq!(
        (ended.seal, world.tools.ran()),
        (Seal::Completed, vec!["c3".to_owned()])
    );
    let (first, second) = (format!("c1! {NOT_RUN}"), format!("c2! {NOT_RUN}"));
    let expected = ["hi", "I write.", "send(c1)", "read(c2)", &first, &second];
    let asked = world.provider.asked();
    assert_eq!(words(&asked[1].messages), expected);
    assert_well_formed(&session.messages());
    let problem = Oddity::CutCall.problem().to_owned();
    assert_eq!(corrected(&heard), [(Cause::MalformedOutput, problem, 1, 3)]);
    assert_eq!(
        (heard.count("tool_started"), heard.count("tool_result")),
        (1, 3)
    );
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_always_cut_end_the_turn() {
    let world = World::new([cut_calls()]);
    let (session, heard, ended) = prompt(with_tools(&world)).await;
    let expected = (
        Cause::MalformedOutput,
        Oddity::CutCall.problem(),
        GiveUp::NotRetryable,
    );
    assert_eq!((ended.seal, error(&ended)), (Seal::Error, expected));
    assert_eq!(
        (world.provider.calls_made(), numbers(&heard)),
        (4, vec![1, 2, 3])
    );
    assert_eq!(world.tools.ran(), Vec::<String>::new());
    assert_well_formed(&session.messages());
}

/// Prompts, and another process carries on from what was written down when the first step was said.
async fn carried_on(world: &World) -> Arc<Session> {
    let kept = Arc::new(Kept::new());
    let session = kept.begin(with_tools(world)).await;
    let (other, hold) = (Arc::clone(&kept), Arc::new(Mutex::new(None)));
    let taken = Arc::clone(&hold);
    let heard = Listener::with(&session, move |session, body| {
        if matches!(body, Body::StepComplete { .. }) {
            other.remove_locks();
            let hold = elsewhere(other.elsewhere().claim(session.id())).unwrap();
            *taken.lock().unwrap() = Some(hold);
        }
    });
    session.prompt("hi".into()).await.unwrap();
    let id = session.id().to_owned();
    drop((heard, session));
    let hold = hold.lock().unwrap().take().unwrap();
    kept.elsewhere().release(hold).await.unwrap();
    let session = kept.open(&id, with_tools(world)).await;
    let ended = session.resume().await.unwrap();
    assert_eq!(ended.seal, Seal::Completed);
    session
}

#[tokio::test(start_paused = true)]
async fn calls_that_were_cut_are_not_run_by_the_process_that_carries_on() {
    let world = World::new([cut_calls(), answers("Hello")]);
    let session = carried_on(&world).await;
    assert_eq!(world.tools.ran(), Vec::<String>::new());
    let (first, second) = (format!("c1! {NOT_RUN}"), format!("c2! {NOT_RUN}"));
    let called = ["hi", "I write.", "send(c1)", "read(c2)"];
    let expected = [&called[..], &[&first, &second, "Hello"]].concat();
    assert_eq!(words(&session.messages()), expected);
}

// --- A full window ---

/// Leaves everything out but the last message.
struct Forgetful;

impl Compactor for Forgetful {
    fn is_due(&self, _: Size) -> bool {
        false
    }

    fn helps(&self, judged: &Judged, _: &Request, _: Size) -> Option<CompactionReason> {
        (judged.verdict.cause == Cause::ContextOverflow).then_some(CompactionReason::Overflow)
    }

    fn compact<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Outcome> {
        let smaller = Smaller {
            messages: vec![Message::user("hi, in short")],
            size: 1,
            model: None,
        };
        Box::pin(async move {
            Outcome {
                result: Ok(smaller),
                usage: Usage::default(),
                budget: job.budget,
            }
        })
    }
}

fn small_window(world: &World) -> Setup {
    Setup {
        traits: Traits {
            window: Some(1000),
            ..Traits::default()
        },
        ..with_tools(world)
    }
}

fn out_of_room() -> Call {
    vec![used(985, 5), stop(StopReason::Length)].into()
}

#[tokio::test(start_paused = true)]
async fn an_empty_answer_at_the_end_of_the_window_is_an_overflow() {
    let world = World::new([out_of_room()]);
    let (_, heard, ended) = prompt(small_window(&world)).await;
    let expected = (
        Cause::ContextOverflow,
        Oddity::OutOfRoom.problem(),
        GiveUp::Overflow,
    );
    assert_eq!((ended.seal, error(&ended)), (Seal::Error, expected));
    assert_eq!(
        (world.provider.calls_made(), heard.count("corrected")),
        (1, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn an_overflow_that_shows_as_an_empty_answer_is_compacted() {
    let world = World::new([out_of_room(), answers("Hello")]);
    let setup = Setup {
        compaction: Some(Arc::new(Forgetful)),
        ..small_window(&world)
    };
    let (session, heard, ended) = prompt(setup).await;
    assert_eq!(ended.seal, Seal::Completed);
    assert_eq!(words(&session.messages()), ["hi, in short", "Hello"]);
    assert_eq!(
        (
            heard.count("auto_compaction_ended"),
            heard.count("corrected")
        ),
        (1, 0)
    );
}

// --- After a restart ---

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_dropped_does_not_come_back_with_the_next_process() {
    for Odd {
        oddity,
        call,
        stays,
    } in dropped().into_iter().chain(kept())
    {
        let (kept, world) = (Kept::new(), World::new([call, answers("Hello")]));
        let session = kept.begin(with_tools(&world)).await;
        let is_told = |body: &Body| matches!(body, Body::Corrected { .. });
        let fate = until_cut(&session, session.prompt("hi".into()), is_told).await;
        assert_eq!(fate, Fate::Died, "{oddity:?}");
        let id = session.id().to_owned();
        drop(session);
        let session = kept.open(&id, with_tools(&world)).await;
        let ended = session.resume().await.unwrap();
        assert_eq!(ended.seal, Seal::Completed, "{oddity:?}");
        let notice = oddity.notice().unwrap();
        let expected = [&["hi"][..], stays, &[notice, "Hello"]].concat();
        assert_eq!(words(&session.messages()), expected, "{oddity:?}");
        let last = world.provider.asked().pop().unwrap();
        assert_eq!(words(&last.messages), expected[..expected.len() - 1]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_stays_is_never_left_without_what_the_model_is_told() {
    for Odd {
        oddity,
        call,
        stays,
    } in kept()
    {
        let session = carried_on(&World::new([call, answers("Hello")])).await;
        let notice = oddity.notice().unwrap();
        let expected = [&["hi"][..], stays, &[notice, "Hello"]].concat();
        assert_eq!(words(&session.messages()), expected, "{oddity:?}");
    }
}
