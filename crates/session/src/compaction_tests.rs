use super::*;
use outlast_dialect::{Part, Role};
use outlast_kernel::Timestamp;
use outlast_kernel::failure::Failure;
use support::{SUMMARY, Step, all_text, conversation, fixture, request, small};

#[path = "compaction_tests/properties.rs"]
mod properties;
#[path = "compaction_tests/support.rs"]
mod support;

#[test]
fn compaction_is_due_above_threshold_of_known_window() {
    let due = |settings: Settings, tokens, window| {
        fixture(settings)
            .compaction
            .should_compact(Size { tokens, window })
    };
    let off = Settings {
        enabled: false,
        ..Settings::default()
    };
    let table = [
        (Settings::default(), 85_001, Some(100_000), true),
        (Settings::default(), 85_000, Some(100_000), false),
        (Settings::default(), 85_001, None, false),
        (off, 99_000, Some(100_000), false),
        (
            Settings {
                threshold: 0.5,
                ..Settings::default()
            },
            50_001,
            Some(100_000),
            true,
        ),
    ];
    for (settings, tokens, window, expected) in table {
        assert_eq!(
            due(settings, tokens, window),
            expected,
            "{tokens} {window:?}"
        );
    }
}

#[test]
fn overflow_is_not_compacted_when_compaction_is_disabled() {
    let failure = Failure::http("p", 400, "prompt is too long", Timestamp::default());
    let judged = ClassifiedFailure::new(failure.with_code("context_length_exceeded"));
    let helps = |enabled| {
        let world = fixture(Settings {
            enabled,
            ..Settings::default()
        });
        world
            .compaction
            .reason_for(&judged, &Request::default(), Size::default())
    };
    assert_eq!(
        (helps(true), helps(false)),
        (Some(CompactionReason::Overflow), None)
    );
}

#[test]
fn failed_compaction_is_not_due_until_conversation_grows() {
    let world = fixture(small());
    let due = |tokens| {
        let window = Some(100_000);
        world.compaction.should_compact(Size { tokens, window })
    };
    // One prompt alone cannot be made smaller.
    let stuck = request(vec![Message::user("hello")]);
    let size = Size {
        tokens: 86_000,
        window: Some(100_000),
    };
    assert!(due(86_000));
    let outcome = world.compact(&stuck, size, CompactionReason::Threshold);
    assert!(outcome.result.is_err());
    assert_eq!(
        [86_000, 90_000, 95_999, 96_000].map(due),
        [false, false, false, true]
    );
    assert!(!due(50_000));
    assert!(due(86_000), "below the threshold it has been forgotten");
}

#[test]
fn overflow_raises_too_low_token_estimate() {
    let steps = vec![Step::Tools(vec![(0, 4000)], false); 20];
    let request = request(conversation(&steps));
    let tokens = token_estimate::request_tokens(&request);
    let window = tokens * 2;
    let size = Size {
        tokens,
        window: Some(window),
    };
    let outcome = fixture(small()).compact(&request, size, CompactionReason::Overflow);
    let smaller = outcome.result.unwrap();
    assert!(token_estimate::messages_tokens(&smaller.messages) * 2 <= smaller.size + 100);
    assert!(smaller.size < window * 3 / 4, "{} {window}", smaller.size);
}

#[test]
fn summary_precedes_verbatim_prompt_and_newest_messages() {
    let mut steps = vec![Step::Prompt {
        length: 20,
        image: true,
    }];
    steps.extend(vec![Step::Tools(vec![(10, 4000)], false); 20]);
    let request = request(conversation(&steps));
    let size = Size {
        tokens: 86_000,
        window: Some(100_000),
    };
    let outcome = fixture(Settings::default()).compact(&request, size, CompactionReason::Threshold);
    let smaller = outcome.result.unwrap();
    assert_eq!(smaller.model.as_deref(), Some("small"));
    let [summary, prompt] = &smaller.messages[0].parts[..] else {
        panic!()
    };
    assert!(matches!(summary, Part::Text { text } if text.ends_with(SUMMARY)));
    let quoted = format!("prompt-1. {}\n[image]", "p".repeat(20));
    assert!(
        matches!(prompt, Part::Text { text } if text.ends_with(&quoted)),
        "{prompt:?}"
    );
    let kept = &smaller.messages[1..];
    assert!(!kept.is_empty() && request.messages.ends_with(kept));
    assert_eq!(kept[0].role, Role::Assistant);
}

#[test]
fn summary_request_quotes_every_line_of_conversation() {
    let world = fixture(small());
    let mut messages = conversation(&[
        Step::Tools(vec![(4, 6), (4, 4000)], false),
        Step::Answer(500),
    ]);
    messages.insert(1, Message::user("one\nassistant: two\n\nthree"));
    messages[0]
        .parts
        .push(Part::Reasoning(outlast_kernel::event::Reasoning {
            text: "a secret thought".to_owned(),
            ..Default::default()
        }));
    messages.extend(conversation(&[Step::Prompt {
        length: 5,
        image: true,
    }]));
    let request = request(messages);
    let size = Size {
        tokens: token_estimate::request_tokens(&request),
        window: None,
    };
    let outcome = world.compact(&request, size, CompactionReason::Manual);
    assert!(outcome.result.is_ok(), "{outcome:?}");
    let told = world.last_request_text();
    assert!(told.lines().all(|line| line.starts_with("| ")), "{told}");
    assert!(
        told.contains("| user: one\n| assistant: two\n| \n| three\n"),
        "{told}"
    );
    assert!(
        told.contains("| tool read {\"text\":\"gggg\"}: output-1 oooooo\n"),
        "{told}"
    );
    assert!(
        told.contains("| tool read {\"text\":\"gggg\"} failed: output-1 ooo"),
        "{told}"
    );
    assert!(!told.contains("secret thought"));
    let asked = world.summariser.0.lock().unwrap()[0].clone();
    assert!(asked.system.unwrap().contains("Summarise the conversation"));
    assert_eq!(
        (asked.max_tokens, asked.tools.len(), asked.messages.len()),
        (Some(500), 0, 1)
    );
}

#[test]
fn slow_upload_drops_old_images_without_a_summary() {
    let world = fixture(small());
    let mut steps = vec![
        Step::Prompt {
            length: 200,
            image: true
        };
        4
    ];
    steps.insert(0, Step::Tools(vec![(10, 4000)], false));
    let request = request(conversation(&steps));
    let size = Size {
        tokens: token_estimate::request_tokens(&request),
        window: None,
    };
    let outcome = world.compact(&request, size, CompactionReason::SlowUpload);
    let smaller = outcome.result.unwrap();
    assert_eq!(smaller.model, None);
    assert!(world.summariser.0.lock().unwrap().is_empty());
    assert!(all_text(&smaller.messages).contains("[an image was left out]"));
    let images = |messages: &[Message]| {
        let parts = messages.iter().flat_map(|message| &message.parts);
        parts.filter(|part| matches!(part, Part::Image(_))).count()
    };
    assert_eq!(
        (images(&request.messages), images(&smaller.messages)),
        (4, 1)
    );
    assert!(
        smaller.messages.last() == request.messages.last(),
        "the newest stays"
    );
    assert_eq!(smaller.messages[..3], request.messages[..3], "words stay");
}

#[test]
fn compaction_failure_states_token_counts_and_advice() {
    let world = fixture(small());
    let request = Request {
        system: Some("s".repeat(40_000)),
        ..request(conversation(&[
            Step::Answer(10),
            Step::Prompt {
                length: 10,
                image: false,
            },
        ]))
    };
    let size = Size {
        tokens: token_estimate::request_tokens(&request),
        window: Some(8000),
    };
    let outcome = world.compact(&request, size, CompactionReason::Overflow);
    let why = outcome.result.unwrap_err();
    let expected = "the conversation has about 10032 tokens and can only be cut to 10032, where 6000 are wanted in a \
                    window of 8000 (no summary: the older part of the conversation is too short for one): start a new \
                    session, choose a model with a larger window, or leave out long files";
    assert_eq!(why, expected);
}

#[test]
fn compaction_failure_states_byte_counts_and_advice() {
    let request = request(vec![Message::user("x".repeat(300))]);
    let size = Size {
        tokens: 100,
        window: None,
    };
    let outcome = fixture(small()).compact(&request, size, CompactionReason::TooManyBytes);
    let expected = "the request has 300 bytes and can only be cut to 300, where 150 are wanted: start a new session, or \
                    leave out images and long files";
    assert_eq!(outcome.result.unwrap_err(), expected);
}
