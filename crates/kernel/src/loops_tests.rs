use super::calls::arguments_hash;
use super::*;
use crate::event::ToolCall;
use proptest::prelude::*;
use std::fmt::Write;

fn found(text: &str) -> Option<Loop> {
    LoopDetector::default().push(text)
}

/// Reads the same text, cut after every so many characters.
fn found_in_pieces(text: &str, size: usize) -> Option<Loop> {
    let chars: Vec<char> = text.chars().collect();
    let mut guard = LoopDetector::default();
    let mut pieces = chars.chunks(size.max(1));
    pieces.find_map(|piece| guard.push(&piece.iter().collect::<String>()))
}

const PROSE: &str = "\
The user wants the retry to survive a restart, so the schedule has to be written down before the wait begins. I looked at
the journal first: entries are appended, and each barrier is one transaction. That means a wait can be an entry of its own,
with the moment at which it ends, and the fold can find the last one that has no end.

But what if the clock was set back in the meantime? Then the wait would be longer than it was meant to be. The old code used
a monotonic clock, which does not survive the process. Maybe keep both: the moment by the wall, and how long it was meant to
last. On the way up we take the earlier one.

Hmm, there is also the lease. A probe that dies keeps the gate shut until its lease is over, which is fine, because the lease
is short. Still, the waiter behind it would be woken twice. Let me think about what the second wake does: it asks the gate,
is told to wait, and goes back to sleep. So it is harmless, only a little noisy.

What about the tests? A paused clock makes the long wait take no time, and a killed process is just a dropped future. I need
one test for each place where it can die: before the entry, after the entry, during the wait, after it. Four tests, then, and
a property that says that the sum of all waits is never more than the budget.

Next, the event. Listeners want the absolute time, because a countdown drifts. The message should name the cause, and the
number of the attempt out of how many. The screen can then show a bar. I should not forget that a listener may come late, and
has to be told what is going on by the first event that it sees.

One more thing: an abort during the wait has to end it at once. The select has the abort first, so that it wins when both are
ready. I am fairly sure that this is what the existing code does, but a test would not hurt.

";

fn logs() -> String {
    let mut text = String::new();
    for line in 0..120 {
        let (minute, second) = (line / 60, line % 60);
        writeln!(
            text,
            "2026-03-01T12:{minute:02}:{second:02}.{:03}Z INFO  request handled path=/v1/messages status=200 took={}ms",
            line * 37 % 1000,
            line * 13 % 400
        )
        .unwrap();
    }
    text
}

fn numbers() -> String {
    (0..900).map(|n| format!("{}, ", n * n + 7)).collect()
}

fn cases() -> String {
    let case = |n: u32| {
        format!(
            "Case {n}: the input has {} items, so the loop runs that often and the sum is {}.\n\n",
            n + 2,
            n * 17
        )
    };
    (0..60).map(case).collect()
}

fn table() -> String {
    let row = |n: u32| {
        format!(
            "| host-{n:03} | ready | {} | no | eu-west-{} |\n",
            n * 7 % 13,
            n % 3
        )
    };
    let head =
        "| host | state | load | drained | zone |\n|------|-------|------|---------|------|\n";
    head.to_owned() + &(0..80).map(row).collect::<String>()
}

fn similar_tests() -> String {
    let test = |name: &str| {
        format!(
            "#[test]\nfn a_{name}_is_read_back() {{\n    let store = Store::open(folder()).unwrap();\n    \
             store.put(\"{name}\", value()).unwrap();\n    assert_eq!(store.get(\"{name}\").unwrap(), Some(value()));\n}}\n\n"
        )
    };
    let names = [
        "gate", "line", "block", "seat", "wait", "lease", "probe", "ramp", "owner", "fence",
    ];
    format!(
        "The tests would be:\n\n```rust\n{}```\n",
        names.map(test).concat()
    )
}

/// The same without marks around it.
fn bare_tests() -> String {
    similar_tests()
        .replace("```rust\n", "")
        .replace("```\n", "")
}

fn records() -> String {
    let record = |n: u32| {
        format!(
            "  {{\n    \"id\": {n},\n    \"name\": \"item {n}\",\n    \"tags\": [\"new\", \"open\"],\n    \"done\": false\n  }},\n\n"
        )
    };
    (0..60).map(record).collect()
}

fn rules() -> String {
    let rule = "-".repeat(300);
    format!(
        "Before\n{rule}\nafter\n{}\n{}\nend\n",
        "=".repeat(500),
        " ".repeat(400)
    )
}

fn hex() -> String {
    let row = |n: u32| {
        format!(
            "{:08x}  {:08x} {:08x} 00 00 00 00 00 00 00 00\n",
            n * 16,
            n.wrapping_mul(0x9E37_79B1),
            n
        )
    };
    (0..200).map(row).collect()
}

fn plan() -> String {
    let part = |(n, what): (usize, &str)| {
        format!(
            "{}. Open the file for the {what}, change what it says about the limit, and run its tests.\n",
            n + 1
        )
    };
    let what = [
        "parser", "reader", "writer", "store", "gate", "policy", "clock", "journal",
    ];
    what.into_iter().enumerate().map(part).collect()
}

/// Texts that are long reasoning without loops.
fn sound() -> Vec<(&'static str, String)> {
    vec![
        ("prose", PROSE.to_owned()),
        ("logs", logs()),
        ("numbers", numbers()),
        ("cases", cases()),
        ("a table", table()),
        ("similar tests", similar_tests()),
        ("similar tests without marks", bare_tests()),
        ("records", records()),
        ("rules", rules()),
        ("hex", hex()),
        ("a plan", plan()),
        ("a map", include_str!("../../../ARCHITECTURE.md").to_owned()),
        ("code", include_str!("gate.rs").to_owned()),
        ("more code", include_str!("attempt_tests.rs").to_owned()),
        ("a table in code", include_str!("classify/rules.rs").to_owned()),
        ("phrases", include_str!("classify/phrases.rs").to_owned()),
        ("errors", include_str!("../../../corpus/errors.jsonl").to_owned()),
        ("chinese", "我们先看日志，再决定下一步。接口返回四百二十九，说明限流。需要等待窗口结束，然后重试一次。".to_owned()),
    ]
}

#[test]
fn text_without_loops_is_not_flagged() {
    let mut all = String::new();
    for (name, text) in sound() {
        assert_eq!(found(&text), None, "{name}");
        all += &text;
    }
    assert_eq!(found(&all), None, "all of it");
}

#[test]
fn repeated_text_is_detected_as_cycle() {
    let long = &PROSE[..700];
    let table_text = table();
    let table = [
        ("no ".repeat(60), 3),
        ("Wait. ".repeat(30), 6),
        ("Actually, let me reconsider the problem.\n".repeat(5), 41),
        ("So the answer is 42. But wait, is it? ".repeat(5), 38),
        (long.repeat(3), 700),
        (PROSE[..1800].repeat(3), 1800),
        ("再想一想。".repeat(40), 5),
    ];
    for (text, period) in table {
        for (name, before) in [("", ""), ("prose", PROSE), ("a table", &table_text)] {
            let text = format!("{before}{text}{text}");
            let cycle = found(&text);
            let is_right =
                matches!(cycle, Some(Loop::Cycle { period: found, .. }) if found == period);
            assert!(is_right, "{cycle:?} instead of {period} after {name}");
        }
    }
}

#[test]
fn cycle_needs_minimum_length_and_repetitions() {
    // Four times, but not 180 characters; 180, but not four times; three times, but not 1024.
    assert_eq!(found(&"Wait, again. ".repeat(10)), None);
    assert_eq!(found(&PROSE[..300].repeat(3)), None);
    assert_eq!(found(&PROSE[..900].repeat(2)), None);
    let (dashes, endless) = ("-".repeat(4000), "-".repeat(5000));
    assert_eq!(found(&dashes), None);
    assert!(matches!(
        found(&endless),
        Some(Loop::Cycle { period: 1, .. })
    ));
    // Longer periods are not watched.
    let long: String = (0..500).map(|n| format!("{n} things, ")).collect();
    assert!(long.chars().count() > 2048);
    assert_eq!(found(&long.repeat(4)), None);
}

/// One paragraph in other words each time, but not in many.
fn nearly(turn: usize) -> String {
    let word = [
        "perhaps", "maybe", "possibly", "probably", "surely", "indeed",
    ][turn % 6];
    format!(
        "I should {word} look at the parser again and find out why the third test fails on the empty file, because that \
         is what was asked for in the beginning.\n\n"
    )
}

#[test]
fn similar_paragraphs_are_detected_as_loop() {
    let turns = |count: usize| (0..count).map(nearly).collect::<String>();
    assert_eq!(found(&turns(4)), None);
    assert_eq!(found(&turns(5)), Some(Loop::Paragraphs));
    let others: Vec<&str> = PROSE.split_inclusive("\n\n").collect();
    let mixed = |count: usize| {
        let turn = |turn: usize| nearly(turn) + others[turn % others.len()];
        (0..count).map(turn).collect::<String>()
    };
    assert_eq!(found(&mixed(4)), None);
    assert_eq!(found(&mixed(5)), Some(Loop::Paragraphs));
    // Far apart they are a habit, and in code a pattern.
    let apart = (0..6).map(|turn| nearly(turn) + PROSE).collect::<String>();
    assert_ne!(found(&apart[..apart.len() / 2]), Some(Loop::Paragraphs));
    assert_eq!(found(&format!("```\n{}```\n", turns(6))), None);
    assert_eq!(
        found(
            "Yes, do it now.\n\n"
                .repeat(8)
                .replace("now", "later")
                .as_str()
        ),
        None
    );
}

/// Words in an order that does not come again, from a list of so many.
fn shuffled(words: usize, count: usize) -> String {
    let list: Vec<&str> = PROSE.split_whitespace().take(words).collect();
    let mut chance = 0x2545_F491_u32;
    let mut word = || {
        chance ^= chance << 13;
        chance ^= chance >> 17;
        chance ^= chance << 5;
        list[usize::try_from(chance).unwrap() % list.len()]
    };
    (0..count).map(|_| word().to_owned() + " ").collect()
}

#[test]
fn many_words_without_a_new_one_are_a_stall() {
    assert_eq!(found(&shuffled(30, 2000)), Some(Loop::Stall));
    assert_eq!(found(&shuffled(30, 560)), None);
    assert_eq!(found(&shuffled(500, 4000)), None);
    // A text that is written down a second time is no stall.
    let draft = shuffled(500, 600);
    assert_eq!(found(&draft.repeat(2)), None);
    // A new word now and then keeps it going, and so do numbers.
    let fresh: String = (0..40_u8)
        .map(|turn| shuffled(30, 60) + &"x".repeat(usize::from(turn) + 3) + " ")
        .collect();
    assert_eq!(found(&fresh), None);
    let counted: String = (0..400)
        .map(|n| shuffled(30, 8) + &format!("{n} "))
        .collect();
    assert_eq!(found(&counted), None);
}

#[test]
fn detected_loop_is_kept_on_later_pushes() {
    let mut guard = LoopDetector::default();
    let cycle = guard.push(&"Wait. ".repeat(40));
    assert!(cycle.is_some());
    assert_eq!(guard.push("Something else."), cycle);
    assert_eq!(guard.push(""), cycle);
}

#[test]
fn chunking_does_not_change_loop_detection_in_long_text() {
    for (name, text) in sound().into_iter().take(8) {
        assert_eq!(found_in_pieces(&text, 7), None, "{name}");
    }
    for text in [
        PROSE[..1800].repeat(4),
        shuffled(30, 2000),
        (0..9).map(nearly).collect(),
    ] {
        for size in [1, 5, 64, 1000] {
            assert_eq!(found_in_pieces(&text, size), found(&text));
        }
    }
}

proptest! {
    #[test]
    fn chunking_does_not_change_loop_detection(
        head in "(?s).{0,60}", again in "(?s).{1,40}", times in 1_usize..60, sizes in prop::collection::vec(1_usize..50, 1..20),
    ) {
        let text = head + &again.repeat(times);
        let whole = found(&text);
        let chars: Vec<char> = text.chars().collect();
        let (mut guard, mut at, mut last) = (LoopDetector::default(), 0, None);
        for size in sizes.iter().cycle() {
            let end = (at + size).min(chars.len());
            last = guard.push(&chars[at..end].iter().collect::<String>());
            at = end;
            if at == chars.len() {
                break;
            }
        }
        prop_assert_eq!(last, whole);
    }

    #[test]
    fn every_long_cycle_of_words_is_found(again in "[a-z]{3,9}( [a-z]{2,9}){0,30}[.!] ") {
        let times = 4 + 400 / again.len();
        let text = format!("{PROSE}{}", again.repeat(times + 2));
        let is_cycle = matches!(found(&text), Some(Loop::Cycle { .. }));
        prop_assert!(is_cycle, "{}", text);
    }

    #[test]
    fn argument_hash_ignores_blanks_and_field_order(a in any::<i64>(), b in "(?s).{0,20}", c in any::<bool>()) {
        let name = serde_json::to_string(&b).unwrap();
        let one = format!(r#"{{"a":{a},"b":{name},"c":[{c},null,{{"d":{name}}}]}}"#);
        let two = format!("{{ \"c\" : [ {c} , null, {{\"d\":{name} }}],\n\"b\":{name}, \"a\" :{a} }} ");
        prop_assert_eq!(arguments_hash(&one), arguments_hash(&two));
        let value: serde_json::Value = serde_json::from_str(&two).unwrap();
        prop_assert_eq!(arguments_hash(&one), arguments_hash(&value.to_string()));
        let other = format!(r#"{{"a":{a},"b":{name},"c":[null,{c},{{"d":{name}}}]}}"#);
        prop_assert_ne!(arguments_hash(&one), arguments_hash(&other));
    }

    #[test]
    fn argument_hash_is_stable_for_any_text(text in "(?s).{0,60}|[\\[{\"\\\\u0-9a-f:,}\\] ]{0,60}") {
        prop_assert_eq!(arguments_hash(&text), arguments_hash(&text));
    }
}

#[test]
fn arguments_are_compared_as_values() {
    let same = [
        ("{}", " { } "),
        ("[]", "[ ]"),
        ("1", "1.0"),
        ("100", "1e2"),
        ("-0.5", "-5e-1"),
        (r#""é""#, r#""\u00e9""#),
        (r#""😀""#, r#""\ud83d\ude00""#),
        (r#""a/b""#, r#""a\/b""#),
        ("\"\\t\"", "\"\\u0009\""),
    ];
    for (one, two) in same {
        assert_eq!(arguments_hash(one), arguments_hash(two), "{one} {two}");
    }
    let different = [
        ("{}", "[]"),
        ("1", "2"),
        ("1", "\"1\""),
        ("12345678901234567890", "12345678901234567891"),
        ("null", "false"),
        (r#"{"a":1}"#, r#"{"a":2}"#),
        (r#"{"a":1,"b":2}"#, r#"{"a":2,"b":1}"#),
        (r#"{"a":{"b":1}}"#, r#"{"a":{},"b":1}"#),
        ("[[1],2]", "[1,[2]]"),
        (r#""\ud83d""#, r#""\ud83e""#),
        ("not json", "not  json"),
        ("{} x", "{}"),
        ("", "{}"),
    ];
    for (one, two) in different {
        assert_ne!(arguments_hash(one), arguments_hash(two), "{one} {two}");
    }
    let deep = |end: &str| "[".repeat(5000) + end + &"]".repeat(5000);
    assert_eq!(arguments_hash(&deep("1")), arguments_hash(&deep("1")));
    assert_ne!(arguments_hash(&deep("1")), arguments_hash(&deep("2")));
}

#[test]
fn identical_calls_with_identical_results_are_counted() {
    let call = |id: &str, name: &str, arguments: &str| ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
    };
    let (one, again) = (
        call("1", "read", r#"{"a":1}"#),
        call("2", "read", r#"{ "a": 1 }"#),
    );
    let (other, named) = (
        call("3", "read", r#"{"a":2}"#),
        call("4", "list", r#"{"a":1}"#),
    );
    let mut calls = RepeatedCallCounter::default();
    let table: [(&[(&ToolCall, &str)], u32); 11] = [
        (&[(&one, "x")], 1),
        (&[(&again, "x")], 2),
        (&[(&one, "x")], 3),
        (&[(&one, "y")], 1),
        (&[(&other, "y")], 1),
        (&[(&named, "y")], 1),
        (&[(&one, "x"), (&other, "y")], 1),
        (&[(&again, "x"), (&other, "y")], 2),
        (&[(&one, "x")], 1),
        (&[], 0),
        (&[(&one, "x")], 1),
    ];
    for (batch, expected) in table {
        assert_eq!(calls.record(batch), expected, "{batch:?}");
    }
}
