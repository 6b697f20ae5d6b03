use super::*;
use crate::reply::PageForm;
use outlast_dialect::ErrorForm;
use proptest::prelude::*;

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

fn script(text: &str) -> Script {
    text.parse().unwrap()
}

fn play(text: &str, calls: usize) -> Vec<Action> {
    let mut script = script(text);
    (0..calls)
        .map(|_| script.next_reply(at(0), &[0; 100]).action)
        .collect()
}

const OVERLOADED: Action = Action::ProviderError(ProviderError::Overloaded);

#[test]
fn fault_is_played_its_stated_number_of_times() {
    use Action::{Answer, DropAfter, Stall};
    let table: [(&str, Vec<Action>); 9] = [
        ("ok", vec![Answer, Answer]),
        (
            "overloaded:3",
            vec![OVERLOADED, OVERLOADED, OVERLOADED, Answer],
        ),
        ("overloaded", vec![OVERLOADED, Answer]),
        ("overloaded:0", vec![Answer]),
        ("drop-after:5", vec![DropAfter { pieces: 5 }, Answer]),
        (
            "garbage:times=2",
            vec![Action::Garbage, Action::Garbage, Answer],
        ),
        (
            "bomb:times=always",
            vec![Action::Bomb, Action::Bomb, Action::Bomb],
        ),
        (
            "no-prefill+stall",
            vec![Action::NoPrefill, Action::NoPrefill],
        ),
        (
            "ok+overloaded + stall",
            vec![Answer, OVERLOADED, Stall { pieces: 0 }, Answer],
        ),
    ];
    for (text, acts) in table {
        assert_eq!(play(text, acts.len()), acts, "{text}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table, one row for each fault")]
fn every_fault_is_read_with_its_arguments() {
    let second = Duration::from_secs(1);
    let table: [(&str, Action); 25] = [
        (
            "error:418,code=teapot",
            Action::Error {
                status: 418,
                code: Some("teapot".to_owned()),
            },
        ),
        ("slow-error", Action::SlowError { status: 503 }),
        ("endless-error:529", Action::EndlessError { status: 529 }),
        ("echo-key", Action::EchoKey),
        (
            "redirect:to=http://127.0.0.1:9/x",
            Action::Redirect {
                to: "http://127.0.0.1:9/x".to_owned(),
            },
        ),
        ("reset", Action::Disconnect(Disconnect::Reset)),
        ("close", Action::Disconnect(Disconnect::Closed)),
        (
            "cut:100",
            Action::Cut {
                bytes: 100,
                clean: false,
            },
        ),
        (
            "cut:100,clean",
            Action::Cut {
                bytes: 100,
                clean: true,
            },
        ),
        ("stall:3", Action::Stall { pieces: 3 }),
        (
            "pings:2,every=1",
            Action::Pings {
                pieces: 2,
                every: second,
            },
        ),
        ("drip:1000", Action::Drip { delay: second }),
        ("hold:1", Action::Hold { delay: second }),
        ("malformed:1", Action::Malformed { pieces: 1 }),
        (
            "page:429,as=html",
            Action::Page {
                status: 429,
                form: PageForm::Html,
            },
        ),
        (
            "in-band:billing,after=2,as=end",
            Action::StreamError {
                trouble: ProviderError::Billing,
                after: Some(2),
                form: ErrorForm::End,
            },
        ),
        ("json-error", Action::JsonError(ProviderError::Overloaded)),
        ("no-finish", Action::NoFinish),
        ("linger", Action::Linger),
        ("gzip:always", Action::Gzip { always: true }),
        ("outage:60", OVERLOADED),
        ("window:1000", Action::Window { limit: 1000 }),
        ("too-large:1000", Action::TooLarge { limit: 1000 }),
        ("body-timeout", Action::BodyTimeout),
        ("no-prefill", Action::NoPrefill),
    ];
    for (text, act) in table {
        assert_eq!(play(text, 1), [act], "{text}");
    }
}

#[test]
fn fault_selects_its_completion_kind() {
    let reply = |text: &str| script(text).next_reply(at(0), &[]);
    assert_eq!(reply("ok:tools").answer_kind, AnswerKind::Tools);
    assert_eq!(
        reply("drop-after:1,of=reasoning").answer_kind,
        AnswerKind::Reasoning
    );
    assert_eq!(reply("flaky:0,of=agent").answer_kind, AnswerKind::Agent);
    assert_eq!(
        reply("capacity:requests=1,of=agent").answer_kind,
        AnswerKind::Agent
    );
    assert_eq!(reply("window:9,of=agent").answer_kind, AnswerKind::Agent);
    assert_eq!(reply("no-prefill:of=agent").answer_kind, AnswerKind::Agent);
    assert_eq!(reply("ok+stall").fault, "ok");
    for (word, kind, _) in AnswerKind::KEYWORDS {
        assert_eq!(reply(&format!("ok:{word}")).answer_kind, kind);
    }
}

#[test]
fn completion_kind_applies_once_or_always() {
    let kinds = |text: &str| {
        let mut script = script(text);
        (0..4)
            .map(|_| script.next_reply(at(0), &[]).answer_kind)
            .collect::<Vec<_>>()
    };
    use AnswerKind::{Agent, Text};
    assert_eq!(kinds("overloaded+ok:agent"), [Text, Agent, Text, Text]);
    assert_eq!(
        kinds("overloaded:2+ok:agent,times=always"),
        [Text, Text, Agent, Agent]
    );
}

#[test]
fn limit_holds_until_its_end_and_counts_down() {
    let mut limited = script("rate-limited:retry-after=2,as=date");
    let limit = |seconds| Action::RateLimit {
        wait: Duration::from_secs(seconds),
        until: at(12),
        form: HintForm::Date,
    };
    assert_eq!(limited.next_reply(at(10), &[]).action, limit(2));
    assert_eq!(limited.next_reply(at(11), &[]).action, limit(1));
    assert_eq!(limited.next_reply(at(12), &[]).action, Action::Answer);
    let mut window = script("usage-limit");
    let (wait, until) = (Duration::from_secs(18_000), at(18_000));
    assert_eq!(
        window.next_reply(at(0), &[]).action,
        Action::UsageLimit { wait, until }
    );
    assert_eq!(window.next_reply(at(18_000), &[]).action, Action::Answer);
    let mut outage = script("outage:60");
    assert_eq!(outage.next_reply(at(0), &[]).action, OVERLOADED);
    assert_eq!(outage.next_reply(at(59), &[]).action, OVERLOADED);
    assert_eq!(outage.next_reply(at(60), &[]).action, Action::Answer);
}

#[test]
fn an_overflow_stays_until_the_request_shrinks() {
    let mut overflow = script("overflow");
    let refused = Action::ProviderError(ProviderError::Overflow);
    assert_eq!(overflow.next_reply(at(0), &[0; 100]).action, refused);
    assert_eq!(overflow.next_reply(at(0), &[0; 100]).action, refused);
    assert_eq!(overflow.next_reply(at(0), &[0; 60]).action, Action::Answer);
}

/// Returns the number of calls that succeed in each second, given evenly spaced calls.
fn served(text: &str, per_second: u64, size: usize) -> Vec<usize> {
    let mut script = script(text);
    let mut answered = |second: u64| {
        (0..per_second)
            .map(|call| Timestamp::from_millis(second * 1000 + call * 1000 / per_second))
            .filter(|now| script.next_reply(*now, &vec![0; size]).action == Action::Answer)
            .count()
    };
    (0..4).map(&mut answered).collect()
}

#[test]
fn capacity_limits_rate_after_an_initial_burst() {
    assert_eq!(served("capacity:requests=10", 10, 0), [10, 10, 10, 10]);
    assert_eq!(served("capacity:requests=10", 50, 0), [19, 10, 10, 10]);
    // Forty bytes are ten tokens: five such requests per second.
    let tokens = "capacity:requests=100,tokens=50";
    assert_eq!(served(tokens, 50, 40), [9, 5, 5, 5]);
}

#[test]
fn capacity_refusal_states_the_needed_wait() {
    let mut one = script("capacity:requests=2");
    let limit =
        |one: &mut Script, millis| match one.next_reply(Timestamp::from_millis(millis), &[]).action
        {
            Action::RateLimit { wait, .. } => Some(wait.as_millis()),
            _ => None,
        };
    let waits: Vec<_> = [0, 0, 0, 400, 500]
        .map(|millis| limit(&mut one, millis))
        .to_vec();
    assert_eq!(waits, [None, None, Some(500), Some(100), None]);
}

#[test]
fn bucket_limits_rate_and_states_its_end_only_if_told() {
    assert_eq!(served("bucket:10/s", 50, 0), [19, 10, 10, 10]);
    let form = |text: &str| match play(text, 2).pop() {
        Some(Action::RateLimit { form, .. }) => form,
        other => panic!("{other:?}"),
    };
    assert_eq!(form("bucket:1/s"), HintForm::Nowhere);
    assert_eq!(form("bucket:1/s,as=seconds"), HintForm::Seconds);
}

#[test]
fn first_calls_of_each_request_fail() {
    let mut script = script("fails-each:2");
    let mut actions = |body: &[u8]| {
        let calls = (0..3).map(|_| script.next_reply(at(0), body).action);
        calls.collect::<Vec<_>>()
    };
    for body in [b"one", b"two"] {
        assert_eq!(actions(body), [OVERLOADED, OVERLOADED, Action::Answer]);
    }
}

#[test]
fn remembered_requests_are_bounded() {
    let mut calls = CallCounts::default();
    for request in 0..CallCounts::MAX_REQUESTS as u64 + 10 {
        assert_eq!(calls.count(request), 0);
    }
    assert_eq!(calls.0.len(), CallCounts::MAX_REQUESTS);
    assert_eq!(calls.count(CallCounts::MAX_REQUESTS as u64), 1);
}

#[test]
fn flapping_provider_answers_and_fails_in_turns() {
    let mut script = script("flap:20s/10s");
    let mut answers = |second| script.next_reply(at(second), &[]).action == Action::Answer;
    let seconds = [1000, 1019, 1020, 1029, 1030, 1049, 1050, 1060];
    let seen = seconds.map(&mut answers);
    assert_eq!(seen, [true, true, false, false, true, true, false, true]);
}

#[test]
fn brownout_fails_a_share_and_holds_the_others_until_it_ends() {
    let mut script = script("brownout:60,share=25%,hold=3");
    let mut count = |second: u64| {
        let (mut failed, mut held) = (0, 0);
        for _ in 0..1000 {
            match script.next_reply(at(second), &[]).action {
                Action::Hold { delay } if delay == Duration::from_secs(3) => held += 1,
                OVERLOADED => failed += 1,
                _ => {}
            }
        }
        (failed, held)
    };
    let (failed, held) = count(0);
    assert!(
        (200..300).contains(&failed) && failed + held == 1000,
        "{failed} {held}"
    );
    assert_eq!(count(60), (0, 0));
}

#[test]
fn flaky_fault_is_deterministic_per_seed() {
    assert_eq!(play("flaky:30%,seed=7", 200), play("flaky:0.3,seed=7", 200));
    assert_eq!(play("flaky:0.3,seed=7", 200), play("flaky:0.3,seed=7", 200));
    assert_ne!(play("flaky:0.3,seed=7", 200), play("flaky:0.3,seed=8", 200));
    let failed = play("flaky:0.3,seed=7", 1000);
    let failed = failed.iter().filter(|act| **act != Action::Answer).count();
    assert!((250..350).contains(&failed), "{failed} of 1000");
}

#[test]
fn invalid_script_error_names_place_and_remedy() {
    let table = [
        ("overlaoded:3", "`overlaoded:3`: there is no such fault"),
        ("ok+", "at ``: a fault is missing"),
        ("overloaded:many", "TIMES is a number, not `many`"),
        ("rate-limited:retry=2", "`retry=2` has no meaning here"),
        (
            "rate-limited:as=smoke",
            "`smoke` is none of seconds, ms, date",
        ),
        ("drop-after", "it needs PIECES"),
        ("drop-after", "written drop-after:PIECES[,of=KIND]"),
        ("window", "it needs TOKENS"),
        ("too-large:of=text", "it needs BYTES"),
        ("no-prefill:times=2", "`times=2` has no meaning here"),
        ("flaky:1.5", "SHARE lies between 0 and 1"),
        ("flaky:nan", "SHARE lies between 0 and 1"),
        ("flaky:101%", "SHARE lies between 0 and 1, or 0% and 100%"),
        ("flap:20", "phases are written 20s/20s, not `20`"),
        ("flap:0/0", "UP and DOWN cannot both be zero"),
        ("bucket:200", "a rate is written 200/s, not `200`"),
        ("bucket", "it needs N/s"),
        ("fails-each", "it needs TIMES"),
        ("overloaded:-1", "TIMES is a number"),
        ("error:200", "STATUS lies between 400 and 599"),
        ("hold:1e99", "SECONDS lies between 0 and a year"),
        ("hold:-1", "SECONDS lies between 0 and a year"),
        ("ok:texts", "`texts` is none of text, reasoning"),
        ("in-band", "it needs a TROUBLE"),
        ("gpt-4o", "there is no such fault"),
        ("llama3:8b", "there is no such fault"),
    ];
    for (text, part) in table {
        let error = text.parse::<Script>().unwrap_err().to_string();
        assert!(
            error.contains(part) && error.contains("faults are joined by"),
            "{error}"
        );
    }
    assert!("ok+".repeat(2000).parse::<Script>().is_err());
}

#[test]
fn help_lists_every_fault_and_keyword() {
    let help = help();
    for row in &FAULTS {
        assert!(help.contains(&row.usage()), "{}", row.name);
    }
    for word in ["image-seen", "rfc3339", "server-error"] {
        assert!(help.contains(word), "{word}");
    }
    let longest = help.lines().map(str::len).max();
    assert!(longest < Some(100), "{longest:?}\n{help}");
}

proptest! {
    #[test]
    fn any_text_is_a_script_or_an_error(
        pieces in prop::collection::vec(prop::sample::select(vec![
            "ok", "cut", "hold", "flaky", "capacity", "bucket", "flap", "brownout", "fails-each", "1/s", "2s/3s", "9%", ":", ",", "+", "=", "3", "0.5", "clean", "of=", "tool",
            "times=", "always", "requests=", "9999999999", "-1", "\u{1b}", "é",
        ]), 0..12),
        size in 0..10_000_usize,
    ) {
        if let Ok(mut script) = pieces.concat().parse::<Script>() {
            for second in 0..5 {
                script.next_reply(at(second), &vec![0; size]);
            }
        }
    }
}
