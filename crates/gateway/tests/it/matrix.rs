//! Tests that no client sees a failure before content: every fault, in each dialect, streamed and not, a hundred times.
//!
//! Every request has a model of its own, and with it a script and a gate of its own, so that each one meets its fault.

use super::rig::{NO_TIMEOUTS, Plan, Rig, limited};
use super::wire::{TestRequest, TestResponse};
use futures_util::future::join_all;
use outlast_dialect::Dialect;
use outlast_engine::provider::Timeouts;
use std::collections::HashMap;
use std::time::Duration;

const EACH: usize = 100;
/// Fast enough for waits of ten seconds, and so slow that no client needs a keep-alive amid a response, however busy
/// the machine is.
const SCALE: u32 = 5;
const MODEL: &str = "m-000";

/// Returns the script of the fault for the request of that number; `answer` is the response without a fault.
type Fault = fn(number: usize, answer: &Expected) -> String;

/// The response that each request is to get in the end.
struct Expected {
    answer: TestResponse,
    /// The number of bytes before the end of the first frame with content.
    before_content: usize,
}

impl Expected {
    /// Returns an offset before content, a little later for each request.
    fn cut_offset(&self, number: usize) -> usize {
        (self.before_content - 1) * number / (EACH - 1)
    }
}

fn model(number: usize) -> String {
    format!("m-{number:03}")
}

async fn expected(ask: &TestRequest, dialect: Dialect, streamed: bool) -> Expected {
    let rig = Plan::new("ok", SCALE).start().await;
    let answer = rig.ask_provider(ask, "ok").await;
    let text = answer.text();
    let first = match (dialect, streamed) {
        (_, false) => text.len(),
        (Dialect::Anthropic, true) => text.find("content_block_delta").unwrap(),
        (Dialect::OpenaiChat, true) => text.find("Hello").unwrap(),
        (Dialect::OpenaiResponses, true) => text.find("output_text.delta").unwrap(),
    };
    let rest = text[first..].find("\n\n").map_or(0, |end| end + 2);
    Expected {
        answer,
        before_content: first + rest,
    }
}

/// Sends a hundred requests of each kind at once, each of which meets that fault. Asserts that each is answered after
/// that many attempts.
async fn all_succeed(fault: Fault, attempts: u32, timeouts: Timeouts) {
    let forms = [true, false];
    let kinds = Dialect::ALL.map(|dialect| forms.map(|streamed| (dialect, streamed)));
    let kinds = kinds.into_iter().flatten();
    join_all(kinds.map(|kind| one_kind_succeeds(kind, fault, attempts, timeouts))).await;
}

async fn one_kind_succeeds(kind: (Dialect, bool), fault: Fault, attempts: u32, timeouts: Timeouts) {
    let ask = TestRequest::new(kind.0, kind.1);
    let expected = expected(&ask, kind.0, kind.1).await;
    let mut plan = Plan::new("ok", SCALE);
    plan.timeouts = timeouts;
    let scripts = (0..EACH).map(|number| (model(number), fault(number, &expected)));
    plan.models = scripts.collect();
    let rig = plan.start().await;
    let asks = (0..EACH).map(|number| ask.clone().model(&model(number)));
    let asks: Vec<TestRequest> = asks.collect();
    let answers = join_all(asks.iter().map(|ask| rig.ask(ask))).await;
    let checked = answers
        .iter()
        .enumerate()
        .filter_map(|(number, answer)| check(answer, &expected, number, attempts));
    let wrong: Vec<String> = checked.collect();
    let count = wrong.len();
    assert!(wrong.is_empty(), "{kind:?}: {count} of them: {}", wrong[0]);
    check_log(&rig, attempts).await;
}

/// Returns the first defect of that response, or `None` if it is as expected.
fn check(
    answer: &TestResponse,
    expected: &Expected,
    number: usize,
    attempts: u32,
) -> Option<String> {
    let body = expected.answer.text().replace(MODEL, &model(number));
    let number_of = |name: &str| answer.header(name).and_then(|value| value.parse().ok());
    let kind = expected.answer.header("content-type");
    let wrong = match () {
        () if answer.status != 200 => "it failed",
        () if !answer.is_whole => "it is not whole",
        () if answer.interims > 0 => "something came before it",
        () if answer.text() != body => "it is not what the provider says",
        () if answer.header("content-type") != kind => "it is called something else",
        () if number_of("x-outlast-attempts") != Some(attempts) => "the attempts are wrong",
        () if number_of("x-outlast-waited-ms").is_none() => "it does not say how long it waited",
        () => return None,
    };
    Some(format!("request {number}: {wrong}: {answer:?}"))
}

async fn check_log(rig: &Rig, attempts: u32) {
    let mut counts: HashMap<String, u32> = HashMap::new();
    for asked in rig.provider_requests().await {
        let model = asked["model"].as_str().unwrap().to_owned();
        *counts.entry(model).or_default() += 1;
    }
    let all_asked = (0..EACH).map(|number| (model(number), attempts));
    assert_eq!(counts, all_asked.collect());
}

macro_rules! survived {
    ($name:ident, $attempts:literal, $fault:expr) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            limited(all_succeed($fault, $attempts, NO_TIMEOUTS)).await;
        }
    };
}

survived!(three_429s_are_hidden_from_client, 4, |_, _| {
    "error:429,times=3".to_owned()
});
survived!(three_503s_are_hidden_from_client, 4, |_, _| {
    "error:503,times=3".to_owned()
});
survived!(three_529s_are_hidden_from_client, 4, |_, _| {
    "error:529,times=3".to_owned()
});
survived!(reset_before_headers_is_hidden_from_client, 2, |_, _| {
    "reset".to_owned()
});
survived!(reset_before_content_is_hidden_from_client, 2, |_, _| {
    "drop-after:0".to_owned()
});
survived!(
    cut_before_content_is_hidden_from_client,
    2,
    |number, answer| format!("cut:{}", answer.cut_offset(number))
);
survived!(
    clean_end_before_content_is_hidden_from_client,
    2,
    |number, answer| format!("cut:{},clean", answer.cut_offset(number))
);
survived!(
    error_frame_before_content_is_hidden_from_client,
    2,
    |number, _| match number % 2 {
        0 => "in-band:overloaded".to_owned(),
        _ => "in-band:overloaded,after=0".to_owned(),
    }
);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stall_before_content_is_hidden_from_client() {
    // Four seconds on the wall clock: only a deliberate silence lasts so long.
    let silence = Duration::from_secs(4 * u64::from(SCALE));
    let timeouts = Timeouts {
        first_event: silence,
        idle: silence,
        ..NO_TIMEOUTS
    };
    limited(all_succeed(|_, _| "stall:0".to_owned(), 2, timeouts)).await;
}
