use super::*;
use proptest::prelude::*;

fn completion(stop_reason: StopReason, text: &str) -> FinishedCompletion<'_> {
    FinishedCompletion {
        stop_reason,
        text,
        calls: &[],
        incomplete_calls: &[],
        reasoning: ReasoningKind::None,
        usage: Usage::default(),
        has_tools: true,
        window: None,
    }
}

fn call(name: &str) -> ToolCall {
    ToolCall {
        id: "call_1".to_owned(),
        name: name.to_owned(),
        arguments: "{}".to_owned(),
    }
}

fn used(input: u64, output: u64) -> Usage {
    Usage {
        input,
        output,
        ..Usage::default()
    }
}

const END: StopReason = StopReason::EndTurn;
const LENGTH: StopReason = StopReason::Length;

#[test]
fn completion_is_checked_by_stop_reason_and_content() {
    use InvalidCompletion::{
        CutCall, Empty, LengthEmpty, NamelessCall, NoCall, OnlyReasoned, OutOfRoom, ReasoningOnly,
        Refused,
    };
    let (good, nameless) = (call("read"), call(""));
    let (good, nameless) = (&[&good], &[&nameless]);
    let said = |stop| completion(stop, "All tests pass.");
    let blank = |stop| completion(stop, " \n");
    let proven = ReasoningKind::Replayable;
    let unproven = ReasoningKind::NotReplayable;
    let window = Some(1000);
    let billed = |billed| Some(Empty { billed });
    #[rustfmt::skip]
    let table = [
        (said(END), None),
        (said(StopReason::Other), None),
        (said(LENGTH), None),
        (FinishedCompletion { window, usage: used(900, 100), ..said(LENGTH) }, None),
        (said(StopReason::Refusal), Some(Refused)),
        (blank(StopReason::Refusal), Some(Refused)),
        (FinishedCompletion { calls: good, ..blank(StopReason::ToolUse) }, None),
        (FinishedCompletion { calls: good, ..blank(END) }, None),
        (FinishedCompletion { calls: good, incomplete_calls: &["write"], ..blank(END) }, None),
        (FinishedCompletion { calls: good, ..said(LENGTH) }, Some(CutCall)),
        (FinishedCompletion { incomplete_calls: &["write"], ..blank(LENGTH) }, Some(CutCall)),
        (FinishedCompletion { incomplete_calls: &["write"], ..said(LENGTH) }, Some(CutCall)),
        (FinishedCompletion { incomplete_calls: &["write"], ..blank(StopReason::ToolUse) }, Some(CutCall)),
        (FinishedCompletion { calls: nameless, ..blank(StopReason::ToolUse) }, Some(NamelessCall)),
        (FinishedCompletion { incomplete_calls: &["", "write"], ..blank(StopReason::ToolUse) }, Some(NamelessCall)),
        (blank(StopReason::ToolUse), Some(NoCall)),
        (said(StopReason::ToolUse), Some(NoCall)),
        (FinishedCompletion { reasoning: proven, ..blank(StopReason::ToolUse) }, Some(NoCall)),
        (FinishedCompletion { has_tools: false, ..said(StopReason::ToolUse) }, None),
        (FinishedCompletion { has_tools: false, ..blank(StopReason::ToolUse) }, Some(NoCall)),
        (blank(END), billed(false)),
        (completion(END, ""), billed(false)),
        (blank(StopReason::Other), billed(false)),
        (FinishedCompletion { usage: used(10, 5), ..blank(END) }, billed(true)),
        (FinishedCompletion { usage: used(10, 5), reasoning: unproven, ..blank(END) }, billed(false)),
        (FinishedCompletion { usage: used(10, 5), reasoning: proven, ..blank(END) }, Some(ReasoningOnly)),
        (FinishedCompletion { reasoning: proven, ..said(END) }, None),
        (blank(LENGTH), Some(LengthEmpty)),
        (FinishedCompletion { reasoning: unproven, ..blank(LENGTH) }, Some(OnlyReasoned)),
        (FinishedCompletion { reasoning: proven, ..blank(LENGTH) }, Some(OnlyReasoned)),
        (FinishedCompletion { window, usage: used(979, 0), ..blank(LENGTH) }, Some(LengthEmpty)),
        (FinishedCompletion { window, usage: used(979, 1), ..blank(LENGTH) }, Some(OutOfRoom)),
        (FinishedCompletion { window, usage: used(979, 1), reasoning: proven, ..blank(LENGTH) }, Some(OutOfRoom)),
        (FinishedCompletion { window, usage: used(979, 1), incomplete_calls: &["write"], ..blank(LENGTH) }, Some(OutOfRoom)),
        (FinishedCompletion { window: Some(0), ..blank(LENGTH) }, Some(LengthEmpty)),
        (FinishedCompletion { window, usage: used(979, 1), ..blank(END) }, billed(true)),
    ];
    for (answer, expected) in table {
        assert_eq!(check_completion(&answer), expected, "{answer:?}");
    }
}

#[test]
fn cached_tokens_count_towards_the_window() {
    let usage = Usage {
        input: 100,
        output: 100,
        cache_read: 700,
        cache_write: 90,
    };
    let window = Some(1000);
    let answer = FinishedCompletion {
        usage,
        window,
        ..completion(LENGTH, "")
    };
    assert_eq!(
        check_completion(&answer),
        Some(InvalidCompletion::OutOfRoom)
    );
}

#[rustfmt::skip]
const ANNOUNCEMENTS: [&str; 40] = [
    "I'll read the file now.",
    "I’ll read the file now.",
    "I will now run the tests.",
    "Let me check the configuration.",
    "Let me look at the tests:",
    "Next, I'll update the parser.",
    "Now I'll fix the failing test:",
    "Now let me see the output…",
    "Now let me see the output...",
    "I'm going to search for the function.",
    "I am going to edit `src/main.rs`.",
    "The build fails in `parse`. Let me look at it.",
    "I found three callers.\n\nLet me check each of them:",
    "I found three callers:\n- a\n- b\n- c\n\nI'll start with the first one.",
    "Good. Now I'll run the whole suite.",
    "Great! Let me start by exploring the repository.",
    "Okay, let me try again.",
    "First, I'll list the files in the directory.",
    "To fix this, I'll change the return type.",
    "Before changing anything, let me run the tests.",
    "Since the cache is stale, I'll rebuild it. Then I'll run the tests.",
    "**Now let me implement the change.**",
    "Let me check if the file exists.",
    "Let me see if this compiles.",
    "I'll go ahead and create the module.",
    "I'll start by reading the documentation.",
    "Let me take a look at the logs.",
    "I'll begin implementing the parser now.",
    "Let me first verify that the service is up.",
    "I'll double-check the numbers!",
    "So let me re-run it with more output:",
    "Let's look at the configuration:",
    "Alright, I'll proceed with the second step.",
    "Let me quickly grep for it.",
    "I'm about to install the dependencies…",
    "The test is flaky — I'll run it ten times.",
    "Is it the lock? No.\n\nLet me trace the calls.",
    "And now I'll write the test.",
    "Now that the types are right, I'll update the callers.",
    "Let me dig into how the scheduler decides which of the workers gets the next job, and what happens to it after a worker dies in the middle of it:",
];

#[rustfmt::skip]
const NO_ANNOUNCEMENTS: [&str; 56] = [
    "All tests pass.",
    "Done. The parser now accepts comments.",
    "Let me know what you think.",
    "Let me know if you want me to go on.",
    "Now, let me know how it goes!",
    "I'll be happy to help with that.",
    "I'll be glad to run the tests.",
    "I'll wait for your answer.",
    "I'll read it if you'd like.",
    "If you'd like, I'll run the tests.",
    "I'll fix it once you confirm.",
    "I'll continue when you are ready.",
    "I will run it after you have pushed.",
    "I'll proceed as soon as you say so.",
    "Should I run the tests?",
    "I'll run the tests. Is that fine?",
    "Do you want that? I'll run the tests then.",
    "I'll keep that in mind.",
    "I'll remember that.",
    "I'll never delete files without asking.",
    "I won't change anything.",
    "I will not run it.",
    "I'll leave it as it is.",
    "I'll stop here.",
    "I'll assume that the file is complete.",
    "I'll need the password for that.",
    "You can run it with `cargo test`.",
    "He said: \"I'll run the tests.\"",
    "\"Let me check the configuration.\"",
    "> Let me check the configuration.",
    "# Let me check the configuration",
    "- I'll read the file.",
    "1. Let me read the file.",
    "2) I'll read the file.",
    "```\nI'll read the file.\n```",
    "| step | I'll read the file |",
    "I read the file. It says: let me in.",
    "The comment reads `let me check`.",
    "I've checked the configuration.",
    "I checked it, and I'll say this: it works.",
    "We should run the tests next.",
    "You'll want to run the tests now.",
    "They will run the tests.",
    "Next, run the tests.",
    "Next steps: run the tests, then deploy.",
    "Let's look at the configuration.",
    "I'll look at it tomorrow.",
    "From now on I'll run the tests first.",
    "I'll run the tests next time.",
    "I'll check it later.",
    "Here are the results:",
    "The following files were changed:",
    "Ich werde jetzt die Tests ausführen.",
    "I'll make sure to ask for your approval.",
    "Thanks, that was helpful!",
    "I'll update the parser so that it accepts every one of the forms that the documentation names, together with those that older versions wrote to disk and nobody ever described.",
];

#[test]
fn trailing_announcement_without_call_is_detected() {
    for text in ANNOUNCEMENTS {
        assert_eq!(
            check_completion(&completion(END, text)),
            Some(InvalidCompletion::Announced),
            "{text}"
        );
        let without_tools = FinishedCompletion {
            has_tools: false,
            ..completion(END, text)
        };
        assert_eq!(check_completion(&without_tools), None, "{text}");
        assert_eq!(
            check_completion(&completion(StopReason::Other, text)),
            None,
            "{text}"
        );
        let call = call("read");
        let acted = FinishedCompletion {
            calls: &[&call],
            ..completion(END, text)
        };
        assert_eq!(check_completion(&acted), None, "{text}");
        let done = format!("{text}\n\nThat is done, and all tests pass.");
        assert_eq!(check_completion(&completion(END, &done)), None, "{done}");
    }
}

#[test]
fn announcement_lookalikes_are_not_flagged() {
    for text in NO_ANNOUNCEMENTS {
        assert_eq!(check_completion(&completion(END, text)), None, "{text}");
    }
}

#[rustfmt::skip]
const CALLS: [&str; 31] = [
    "<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}\n</tool_call>",
    "I read it.\n<tool_call>\n{\"name\": \"read\"}\n</tool_call>",
    "I read it.<tool_call>{\"name\": \"read\"}</tool_call>",
    "I read it:<tool_call>{\"name\": \"read\"}</tool_call>",
    "  <tool_call>{\"name\": \"read\"}</tool_call>\n\n",
    "<tool_call>{\"name\": \"read\"}",
    "<TOOL_CALL>{\"name\": \"read\"}</TOOL_CALL>",
    "<tool_calls>[{\"name\": \"read\"}]</tool_calls>",
    "<tool_use>{\"name\": \"read\"}</tool_use>",
    "<tool_request>{\"name\": \"read\"}</tool_request>",
    "<function_call>{\"name\": \"read\"}</function_call>",
    "<function_calls>\n<invoke name=\"read\">\n</invoke>\n</function_calls>",
    "<invoke name=\"read\">\n<parameter name=\"path\">a</parameter>\n</invoke>",
    "<vendor:tool_call>\n<invoke name=\"read\"></invoke>\n</vendor:tool_call>",
    "<vendor:invoke name=\"read\"></vendor:invoke>",
    "<function=read>{\"path\": \"a\"}</function>",
    "<function=read>\n<parameter=path>\na\n</parameter>\n</function>",
    "<|tool_call|>{\"name\": \"read\"}<|/tool_call|>",
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.read:0<|tool_call_end|>",
    "<|tool_call_begin|>functions.read:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>read<｜tool▁calls▁end｜>",
    "<|python_tag|>read.call(path=\"a\")",
    "<|channel|>commentary to=functions.read <|constrain|>json<|message|>{\"path\":\"a\"}",
    "[TOOL_CALLS][{\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}]",
    "[TOOL_CALLS]read[ARGS]{\"path\": \"a\"}",
    "[TOOL_REQUEST]{\"name\": \"read\"}[END_TOOL_REQUEST]",
    "<start_function_call>call:read{path:a}<end_function_call>",
    "```tool_code\nprint(read(path='a'))\n```",
    "I read it.\n\n```tool_code\nread(path='a')\n```\n",
    "```tool_call\n{\"name\": \"read\"}\n```",
    "Here is the code:\n```rust\nfn main() {}\n```\nNow the file.\n<tool_call>{\"name\": \"read\"}</tool_call>",
];

#[rustfmt::skip]
const NO_CALLS: [&str; 31] = [
    "The model writes `<tool_call>` around its calls.",
    "`<tool_call>{\"name\": \"read\"}</tool_call>`",
    "Use `<invoke name=\"read\">`",
    "```\n<tool_call>{\"name\": \"read\"}</tool_call>\n```",
    "```xml\n<invoke name=\"read\">\n</invoke>\n```",
    "~~~\n<function=read>{}</function>\n~~~",
    "For example:\n<tool_call>{\"name\": \"read\"}</tool_call>",
    "A call looks like this:\n\n<tool_call>{\"name\": \"read\"}</tool_call>",
    "The syntax is:\n<function=read>{}</function>",
    "It has this format:\n[TOOL_CALLS][{\"name\": \"read\"}]",
    "An example.<tool_call>{\"name\": \"read\"}</tool_call>",
    "The template begins with <tool_call>",
    "The prompt wraps calls in <tool_call> and </tool_call>",
    "<tool_call>{\"name\": \"read\"}</tool_call> is how that model calls a tool.",
    "<tool_call>{\"name\": \"read\"}</tool_call>\n\nThat is what the log shows.",
    "> <tool_call>{\"name\": \"read\"}</tool_call>",
    "    <tool_call>{\"name\": \"read\"}</tool_call>",
    "| <tool_call> | begins a call |\n| </tool_call> | ends it (always)",
    "See the docs (tool_call)",
    "The array is [1, 2, 3]",
    "fn main() {}",
    "```rust\nfn main() {}\n```",
    "```json\n{\"name\": \"read\"}\n```",
    "For example:\n```tool_code\nread()\n```",
    "```tool_code\nread()\n```\nis what the older model wrote, in a block of its own (see above)",
    "The component is <function-call>",
    "<div>\n<p>Hello</p>\n</div>",
    "<function>",
    "<invoke>",
    "tool_call {\"name\": \"read\"}",
    "It ends with [/TOOL_CALLS]",
];

#[test]
fn tool_call_written_as_text_is_detected() {
    for text in CALLS {
        assert_eq!(
            check_completion(&completion(END, text)),
            Some(InvalidCompletion::CallAsText),
            "{text}"
        );
        let at_tool_use = completion(StopReason::ToolUse, text);
        assert_eq!(
            check_completion(&at_tool_use),
            Some(InvalidCompletion::CallAsText),
            "{text}"
        );
        let without_tools = FinishedCompletion {
            has_tools: false,
            ..completion(END, text)
        };
        assert_eq!(check_completion(&without_tools), None, "{text}");
    }
}

#[test]
fn mentioned_tool_call_is_not_flagged() {
    for text in NO_CALLS {
        assert_eq!(check_completion(&completion(END, text)), None, "{text}");
    }
}

const ALL: [InvalidCompletion; 14] = [
    InvalidCompletion::Empty { billed: true },
    InvalidCompletion::Empty { billed: false },
    InvalidCompletion::ReasoningOnly,
    InvalidCompletion::NoCall,
    InvalidCompletion::OutOfRoom,
    InvalidCompletion::OnlyReasoned,
    InvalidCompletion::LengthEmpty,
    InvalidCompletion::CutCall,
    InvalidCompletion::Refused,
    InvalidCompletion::NamelessCall,
    InvalidCompletion::CallAsText,
    InvalidCompletion::Announced,
    InvalidCompletion::RepeatedReasoning,
    InvalidCompletion::BlankArguments,
];

#[test]
fn every_invalid_completion_states_its_remedy() {
    for oddity in ALL {
        assert!(
            oddity.user_message().contains(';'),
            "{oddity:?} has no remedy"
        );
        let is_final = matches!(
            oddity,
            InvalidCompletion::Refused | InvalidCompletion::OutOfRoom
        );
        assert_eq!(oddity.correction().is_none(), is_final, "{oddity:?}");
        assert!(oddity.correction().is_none_or(|notice| notice.len() < 160));
        let kept = [
            InvalidCompletion::Announced,
            InvalidCompletion::CallAsText,
            InvalidCompletion::ReasoningOnly,
            InvalidCompletion::CutCall,
        ];
        assert_eq!(
            oddity.keeps_completion(),
            kept.contains(&oddity),
            "{oddity:?}"
        );
        let json = serde_json::to_string(&oddity).unwrap();
        assert_eq!(
            serde_json::from_str::<InvalidCompletion>(&json).unwrap(),
            oddity
        );
    }
    let billed = InvalidCompletion::Empty { billed: true }.user_message();
    assert!(billed.contains("content filter") && billed.contains("proxy"));
    assert!(
        InvalidCompletion::OnlyReasoned
            .user_message()
            .contains("max_tokens")
    );
    assert_eq!(InvalidCompletion::OutOfRoom.cause(), Cause::ContextOverflow);
    assert_eq!(InvalidCompletion::Refused.cause(), Cause::ContentFilter);
    assert_eq!(InvalidCompletion::LengthEmpty.cause(), Cause::EmptyOutput);
    assert_eq!(InvalidCompletion::CutCall.cause(), Cause::MalformedOutput);
}

proptest! {
    #[test]
    fn only_blank_text_is_an_empty_completion(text in "(?s).{0,80}|([a-zI' .:…`<>\\[\\]_*\n?é’-]|let me |I'll |```|<tool_call>|read){0,40}") {
        let judged = check_completion(&completion(END, &text));
        let is_blank = text.trim().is_empty();
        let is_empty = matches!(judged, Some(InvalidCompletion::Empty { .. }));
        prop_assert_eq!(is_blank, is_empty);
    }

    #[test]
    fn completion_with_valid_call_is_accepted(text in "(?s).{0,60}") {
        let call = call("read");
        for stop_reason in [END, StopReason::ToolUse, StopReason::Other] {
            let answer = FinishedCompletion { calls: &[&call], ..completion(stop_reason, &text) };
            prop_assert_eq!(check_completion(&answer), None);
        }
    }
}
