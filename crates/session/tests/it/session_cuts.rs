//! A completion that is cut at every place, once or twice, in every mode of recovery.

use crate::pieces::{assert_well_formed, continues, lost, number, shown, thinks, thought};
use crate::support::{Fixture, Item, Listener, answers, stop, text, tool_call_delta};
use futures_util::{StreamExt, stream};
use outlast_dialect::{Message, Part, Request, Role};
use outlast_engine::credential::Credential;
use outlast_engine::{BoxStream, Provider};
use outlast_kernel::decision::{AfterContent, GiveUp};
use outlast_kernel::event::{Body, StopReason, TurnStatus};
use outlast_kernel::model_info::ContinueBy;
use outlast_session::Session;
use outlast_session::Setup;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

const TEXT: [&str; 6] = ["\n", "I ", "read", " \n", "and ", "send."];
const DONE: &str = "Done.";

/// The way in which a stream is cut.
#[derive(Clone, Copy, Debug)]
enum CutKind {
    /// With an error.
    Error,
    /// With an end of the stream.
    Silence,
}

/// A place in a completion, in pieces from its beginning, and the way in which it is cut there.
type Cut = (usize, CutKind);

/// A model that always intends the same completion: reasoning, a text and two calls. Asked to continue, it returns the
/// missing part; given the results, it is done. Its first completions are cut.
struct DeterministicModel {
    cuts: Mutex<VecDeque<Cut>>,
}

impl DeterministicModel {
    fn new(cuts: &[Cut]) -> Arc<Self> {
        let cuts = Mutex::new(cuts.iter().copied().collect());
        Arc::new(Self { cuts })
    }

    fn answer(messages: &[Message]) -> Vec<Item> {
        let results = messages.iter().filter(|message| has_results(message));
        let calls = [tool_call_delta("c1", "send"), tool_call_delta("c2", "read")];
        let made = results.map(|message| message.parts.len()).sum();
        let missing: Vec<Item> = calls.into_iter().skip(made).collect();
        let begun = begun(messages);
        let (begin, end) = match (begun.as_str(), missing.len()) {
            ("", 2) => (whole_beginning(), StopReason::ToolUse),
            (begun, 2) => (rest(&TEXT.concat(), begun), StopReason::ToolUse),
            (_, 1) => (Vec::new(), StopReason::ToolUse),
            (begun, _) => (rest(DONE, begun), StopReason::EndTurn),
        };
        let items = begin.into_iter().chain(missing);
        items.chain([stop(end)]).collect()
    }
}

fn has_results(message: &Message) -> bool {
    let is_result = |part: &Part| matches!(part, Part::ToolResult(_));
    message.parts.iter().any(is_result)
}

/// Returns the part of the completion that the request shows to the model.
fn begun(messages: &[Message]) -> String {
    let newest = messages.iter().rev();
    let mut step = newest.take_while(|message| !has_results(message));
    let begun = step.find(|message| message.role == Role::Assistant);
    begun.map(Message::text).unwrap_or_default()
}

fn whole_beginning() -> Vec<Item> {
    let thoughts = [
        thinks("First I "),
        thinks("think."),
        thought("First I think."),
    ];
    thoughts.into_iter().chain(TEXT.map(text)).collect()
}

/// Returns the missing part, character by character: a model that continues need not split its words at the same
/// places.
fn rest(whole: &str, begun: &str) -> Vec<Item> {
    let rest = whole.strip_prefix(begun).unwrap();
    rest.chars()
        .map(|letter| text(&letter.to_string()))
        .collect()
}

impl Provider for DeterministicModel {
    fn name(&self) -> &str {
        "steady"
    }

    fn stream(&self, request: &Request, _: Option<&Credential>) -> BoxStream<'static, Item> {
        let mut items = Self::answer(&request.messages);
        if let Some((place, end)) = self.cuts.lock().unwrap().pop_front() {
            items.truncate(place);
            items.extend(match end {
                CutKind::Error => Some(Err(Box::new(lost()))),
                CutKind::Silence => None,
            });
        }
        stream::iter(items).boxed()
    }
}

/// Number of pieces of the first completion, and the maximum for one that continues it.
const FIRST: usize = 12;
const MAX_PIECES: usize = 21;

/// Returns every place before the last piece, which ends the completion.
fn cuts(pieces: usize) -> impl Iterator<Item = Cut> {
    (0..pieces).flat_map(|place| [(place, CutKind::Error), (place, CutKind::Silence)])
}

/// Creates a setup with a model whose first completions are cut, and the fixture in which its tools run.
fn setup(cuts: &[Cut], after_content: AfterContent, by: ContinueBy) -> (Setup, Fixture) {
    let world = Fixture::new([answers("unused")]);
    let setup = Setup {
        provider: DeterministicModel::new(cuts),
        after_content,
        ..continues(&world, by)
    };
    (setup, world)
}

fn texts(messages: &[Message]) -> String {
    let answers = messages
        .iter()
        .filter(|message| message.role == Role::Assistant);
    answers.map(Message::text).collect()
}

/// Asserts that within a step a retraction or a seam separates the output of one call from that of the next.
fn assert_nothing_is_joined_in_silence(heard: &Listener, what: &str) {
    let (mut last, mut seam) = (None, None);
    for event in heard.events() {
        let number = Some(number(&event));
        match event.body {
            Body::StepComplete { .. } | Body::Retracted { .. } => last = None,
            Body::Seam { .. } => seam = number,
            Body::TextDelta { .. } | Body::ReasoningDelta { .. } | Body::ToolCall(_) => {
                let is_joined = last.is_some() && last != number && seam != number;
                assert!(!is_joined, "{what}: {:?}", heard.kinds());
                last = number;
            }
            _ => {}
        }
    }
}

/// Asserts that the whole completion arrives in the end, and only once.
async fn assert_all_comes_once(cuts: &[Cut], mode: AfterContent, by: ContinueBy) {
    let what = format!("{cuts:?} {mode:?} {by:?}");
    let (setup, world) = setup(cuts, mode, by);
    let session = Arc::new(Session::in_memory(setup));
    let heard = Listener::new(&session);
    let ended = session.prompt("hi".into()).await.unwrap();
    assert_eq!(ended.seal, TurnStatus::Completed, "{what}");
    let whole = format!("{}{DONE}", TEXT.concat());
    let shown = shown(&heard);
    assert_eq!(shown.replace('|', ""), whole, "{what}: {shown}");
    assert_eq!(texts(&session.messages()), whole, "{what}");
    assert_well_formed(&session.messages());
    assert_eq!(world.tools.ran(), ["c1", "c2"], "{what}");
    assert_nothing_is_joined_in_silence(&heard, &what);
}

#[tokio::test(start_paused = true)]
async fn broken_completion_is_retracted_wherever_it_is_cut() {
    for cut in cuts(FIRST) {
        for again in cuts(FIRST) {
            assert_all_comes_once(&[cut, again], AfterContent::Retract, ContinueBy::Prompt).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn broken_completion_is_continued_wherever_it_is_cut() {
    for by in ContinueBy::ALL {
        for cut in cuts(FIRST) {
            for again in cuts(MAX_PIECES) {
                assert_all_comes_once(&[cut, again], AfterContent::Continue, by).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn broken_completion_ends_turn_wherever_it_is_cut() {
    for cut in cuts(FIRST).filter(|(place, _)| *place > 0) {
        let (setup, world) = setup(&[cut], AfterContent::Fail, ContinueBy::Prompt);
        let session = Arc::new(Session::in_memory(setup));
        let heard = Listener::new(&session);
        let ended = session.prompt("hi".into()).await.unwrap();
        assert_eq!(ended.error.unwrap().1, GiveUp::ContentSent, "{cut:?}");
        assert!(TEXT.concat().starts_with(&shown(&heard)), "{cut:?}");
        assert_eq!(world.tools.ran(), Vec::<String>::new(), "{cut:?}");
        assert_eq!(session.messages(), [Message::user("hi")], "{cut:?}");
        assert_eq!(
            (heard.count("attempt_started"), heard.count("error")),
            (1, 1)
        );
        let ended = session.prompt("again".into()).await.unwrap();
        assert_eq!(
            (ended.seal, world.tools.ran().len()),
            (TurnStatus::Completed, 2)
        );
        assert_well_formed(&session.messages());
    }
    for cut in cuts(1) {
        assert_all_comes_once(&[cut], AfterContent::Fail, ContinueBy::Prompt).await;
    }
}

/// Checks that the places cover every piece.
#[test]
fn cut_positions_cover_the_completion() {
    let whole = DeterministicModel::answer(&[Message::user("hi")]);
    assert_eq!(whole.len(), FIRST);
    let letters = TEXT.concat().len();
    assert_eq!(MAX_PIECES, letters + 3, "letters, two calls and the end");
}
