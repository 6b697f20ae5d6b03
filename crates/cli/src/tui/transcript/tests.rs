//! The cost of a frame depends on the screen, not on the transcript, and a frame shows a window of the whole.

use super::viewport::{MAX_CACHED_BLOCKS, RenderContext};
use super::*;
use crate::tui::theme::Theme;
use outlast_dialect::ToolResult;
use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_assert, prop_assert_eq};
use proptest::{collection, prop_oneof, proptest};
use ratatui::text::Line;

const SCREEN: (u16, u16) = (80, 24);
const ROWS: usize = 24;

fn theme() -> Theme {
    Theme::plain()
}

fn texts(lines: &[Line<'static>]) -> Vec<String> {
    lines.iter().map(ToString::to_string).collect()
}

impl Transcript {
    fn frame(&mut self, size: (u16, u16)) -> Vec<String> {
        texts(&self.visible(size, &theme()))
    }

    /// Draws a frame and returns its cost.
    fn cost(&mut self, size: (u16, u16)) -> LayoutStats {
        let before = self.layout_stats;
        self.frame(size);
        LayoutStats {
            blocks: self.layout_stats.blocks - before.blocks,
            bytes: self.layout_stats.bytes - before.bytes,
        }
    }

    /// Returns every line.
    fn whole(&mut self, width: u16) -> Vec<String> {
        let theme = theme();
        let look = RenderContext {
            width,
            theme: &theme,
        };
        let all = 0..self.blocks.len();
        all.flat_map(|number| texts(self.block_lines(number, &look)))
            .collect()
    }

    fn kept(&self) -> usize {
        let kept = self.blocks.iter().filter(|block| !block.lines().is_empty());
        kept.count()
    }
}

fn call(id: &str) -> ToolCall {
    ToolCall {
        id: id.to_owned(),
        name: "bash".to_owned(),
        arguments: r#"{"command":"ls -l"}"#.to_owned(),
    }
}

/// Builds ten thousand messages: questions, completions of some paragraphs, and tools with long output.
fn long() -> Transcript {
    let answer = "A paragraph that says something.\n\n- an item\n- another\n".repeat(6);
    let output = "a line of output\n".repeat(300);
    let messages: Vec<Message> = (0..5000)
        .flat_map(|number| {
            let id = format!("call-{number}");
            let mut parts = vec![Part::Text {
                text: format!("Answer {number}\n\n{answer}"),
            }];
            if number % 3 == 0 {
                parts.push(Part::ToolCall(call(&id)));
            }
            let mut asked = vec![Part::Text {
                text: format!("question {number}"),
            }];
            if number % 3 == 1 {
                let id = format!("call-{}", number - 1);
                let (output, is_error) = (output.clone(), false);
                asked.push(Part::ToolResult(ToolResult {
                    id,
                    output,
                    is_error,
                }));
            }
            let message = |role, parts| Message { role, parts };
            [message(Role::User, asked), message(Role::Assistant, parts)]
        })
        .collect();
    assert_eq!(messages.len(), 10_000);
    Transcript::from_messages(&messages)
}

// --- Bounded work ---

#[test]
fn first_frame_of_long_conversation_lays_out_one_screen() {
    let mut transcript = long();
    let cost = transcript.cost(SCREEN);
    assert!((1..=ROWS).contains(&cost.blocks), "{cost:?}");
    assert_eq!(
        transcript.cost(SCREEN),
        LayoutStats::default(),
        "a second one"
    );
}

/// Moving by `n` lines brings at most `n` new blocks onto the screen, because each has at least a line. In addition,
/// the new first block may have been passed.
#[test]
fn scroll_lays_out_at_most_the_lines_it_moves_by() {
    let mut transcript = long();
    transcript.frame(SCREEN);
    let page = isize::try_from(ROWS).unwrap() - 1;
    for step in [-page, -3, -1, -page, -page, 3, page, page, -3, 2 * page] {
        transcript.scroll(step);
        let cost = transcript.cost(SCREEN);
        assert!(cost.blocks <= step.unsigned_abs() + 1, "{step}: {cost:?}");
        assert_eq!(transcript.cost(SCREEN), LayoutStats::default(), "{step}");
    }
}

#[test]
fn jump_to_beginning_or_end_lays_out_one_screen() {
    let mut transcript = long();
    transcript.frame(SCREEN);
    transcript.go_to_beginning();
    let cost = transcript.cost(SCREEN);
    assert!((1..=ROWS).contains(&cost.blocks), "{cost:?}");
    assert!(transcript.frame(SCREEN)[0].starts_with("› question 0"));
    transcript.go_to_end();
    assert_eq!(transcript.cost(SCREEN), LayoutStats::default());
    assert!(transcript.follows_end());
}

#[test]
fn resize_lays_out_only_visible_and_last_blocks() {
    let mut transcript = long();
    transcript.frame(SCREEN);
    transcript.scroll(-5000);
    transcript.frame(SCREEN);
    for size in [(79, 24), (40, 24), (120, 40)] {
        let cost = transcript.cost(size);
        assert!(cost.blocks <= 2 * usize::from(size.1) + 1, "{cost:?}");
        assert_eq!(transcript.cost(size), LayoutStats::default());
    }
}

#[test]
fn layout_cache_evicts_blocks_far_from_screen() {
    let mut transcript = long();
    for _ in 0..400 {
        transcript.scroll(-200);
        transcript.frame(SCREEN);
        let kept = transcript.kept();
        assert!(kept <= MAX_CACHED_BLOCKS + ROWS + 200, "{kept}");
        assert_eq!(transcript.cost(SCREEN), LayoutStats::default());
    }
    transcript.go_to_end();
    let end = transcript.cost(SCREEN);
    assert_eq!(end.blocks, 0, "the end is known");
}

/// The maximum that arrives between two frames: `MAX_BATCH` of the driver.
const AT_ONCE: usize = 500;
const PIECE: usize = 5;

/// Adds that many bytes in small pieces, with a frame when it is due; returns the maximum that one frame laid out.
fn most_for_a_frame(unit: &str, say: fn(&mut Transcript, &str), bytes: usize) -> usize {
    let mut transcript = Transcript::default();
    transcript.show_thoughts();
    let text = unit.repeat(bytes / unit.len() + 1);
    let mut most = 0;
    for (number, piece) in text.as_bytes().chunks(PIECE).enumerate() {
        say(&mut transcript, std::str::from_utf8(piece).unwrap());
        if number % AT_ONCE == 0 {
            most = most.max(transcript.cost(SCREEN).bytes);
        }
    }
    transcript.settle();
    let held: usize = transcript.blocks.iter().map(Block::size).sum();
    assert!(held == text.len(), "{held} of {}", text.len());
    most
}

#[test]
fn streamed_text_lays_out_only_its_last_part() {
    let code = "```rust\n".to_owned() + &"let answer = 42; // a line of code\n".repeat(40_000);
    let (long, longest) = (split::SOFT_PART_LIMIT, split::MAX_PART_BYTES);
    type Say = fn(&mut Transcript, &str);
    let table: [(&str, Say, usize, usize); 6] = [
        (
            "A sentence. And one more.\n\n",
            Transcript::answer,
            1 << 20,
            long,
        ),
        (&code, Transcript::answer, 1 << 20, long),
        (
            "- an item of a list\n",
            Transcript::answer,
            1 << 17,
            longest,
        ),
        ("word ", Transcript::answer, 1 << 17, longest),
        ("x", Transcript::answer, 1 << 17, longest),
        ("a thought\n", Transcript::thought, 1 << 20, long),
    ];
    for (unit, say, bytes, part) in table {
        let most = most_for_a_frame(unit, say, bytes);
        // A frame lays out the part that was split since the last one, in its final form, and the growing part.
        let bound = part + 2 * AT_ONCE * PIECE;
        assert!(most <= bound, "{most} bytes for {:?}", &unit[..1]);
    }
}

#[test]
fn completion_added_at_once_is_shown_to_its_end() {
    let mut transcript = Transcript::default();
    let code = "a line of code\n".repeat(60_000);
    transcript.answer(&format!("```\n{code}the end\n```\n"));
    transcript.settle();
    let cost = transcript.cost(SCREEN);
    assert!(cost.bytes <= 2 * split::MAX_PART_BYTES, "{cost:?}");
    let frame = transcript.frame(SCREEN);
    assert_eq!(frame.last().unwrap(), "  the end");
    transcript.go_to_beginning();
    assert_eq!(transcript.frame(SCREEN)[0], "  a line of code");
}

// --- Parts ---

#[test]
fn split_text_renders_like_unsplit_text() {
    let code = "fn main() {}\n\n".repeat(800);
    let prose = "Some words of a paragraph.\n\n## A heading\n\n* one\n* two\n\n".repeat(300);
    let texts = [
        format!("Look:\n\n```rust\n{code}```\n\nThat is it.\n"),
        prose,
    ];
    for text in texts {
        let mut transcript = Transcript::default();
        for piece in text.as_bytes().chunks(7) {
            transcript.answer(std::str::from_utf8(piece).unwrap());
        }
        transcript.settle();
        assert!(transcript.len() > 2);
        let uncut = super::super::markdown::lines(&text, 80, &theme());
        let (uncut, cut) = (self::texts(&uncut), transcript.whole(80));
        let differs = uncut.iter().zip(&cut).position(|(one, other)| one != other);
        assert!(
            uncut == cut,
            "{differs:?}: {} and {}",
            uncut.len(),
            cut.len()
        );
    }
}

#[test]
fn notice_inside_code_block_keeps_code_formatting() {
    let mut transcript = Transcript::default();
    transcript.answer("Look:\n\n```\n# one\n");
    transcript.notice(Tone::Faint, "something");
    transcript.answer("# two\n```\ndone");
    transcript.settle();
    let expected = [
        "Look:",
        "",
        "  # one",
        "",
        "something",
        "",
        "  # two",
        "",
        "done",
    ];
    assert_eq!(transcript.whole(80), expected);
    assert_eq!(transcript.settled_from(0).count(), 3, "nothing stays open");
}

#[test]
fn thought_line_count_covers_all_parts() {
    let mut transcript = Transcript::default();
    let line = "what a thought, and it goes on\n";
    for piece in line.repeat(1000).as_bytes().chunks(11) {
        transcript.thought(std::str::from_utf8(piece).unwrap());
    }
    transcript.thought("the last one");
    transcript.answer("Yes.");
    let expected = ["┊ thought, 1001 lines (ctrl-t)", "", "Yes."];
    assert_eq!(transcript.whole(80), expected);
    transcript.show_thoughts();
    assert_eq!(transcript.whole(80).len(), 1001 + 2);
}

#[test]
fn retracted_blocks_are_marked_once_and_calls_not_reused() {
    let mut transcript = Transcript::default();
    transcript.answer("kept");
    transcript.settle();
    let from = transcript.len();
    transcript.thought("hm");
    transcript.answer("gone");
    transcript.call(&call("1"));
    transcript.notice(Tone::Warning, "it broke");
    transcript.retract(from..transcript.len());
    transcript.call(&call("1"));
    transcript.tool_ended("1", "done", false);
    let expected = [
        "kept",
        "",
        "(broke off, and is asked for again)",
        "┊ thought, 1 line (ctrl-t)",
        "",
        "gone",
        "",
        "○ bash ls -l",
        "",
        "it broke",
        "",
        "● bash ls -l",
        "  │ done",
    ];
    assert_eq!(transcript.whole(80), expected);
    let retracted = transcript
        .settled_from(0)
        .map(|(_, _, retracted)| retracted);
    let expected = [false, true, true, true, false, false];
    assert_eq!(retracted.collect::<Vec<_>>(), expected);
}

#[test]
fn repeated_call_is_shown_once_and_ends_with_its_turn() {
    let mut transcript = Transcript::default();
    transcript.call(&call("1"));
    transcript.call(&call("1"));
    transcript.tool_started("1");
    assert_eq!(transcript.whole(80), ["◐ bash ls -l"]);
    assert_eq!(transcript.settled_from(0).count(), 0);
    transcript.seal();
    assert_eq!(transcript.whole(80), ["○ bash ls -l"]);
    assert_eq!(transcript.settled_from(0).count(), 1);
    // A later call with the same id is a different one.
    transcript.call(&call("1"));
    transcript.tool_ended("1", "", false);
    assert_eq!(transcript.whole(80), ["○ bash ls -l", "● bash ls -l"]);
}

#[test]
fn truncated_text_shows_hidden_line_count() {
    let mut transcript = Transcript::default();
    let words = "word ".repeat(100);
    transcript.user(&format!("{words}\n{words}\n{words}\nend"));
    let lines = transcript.whole(32);
    assert_eq!(lines.len(), 21);
    assert_eq!(lines[20], "  … 3 more lines (ctrl-o)");
    transcript.expand_tools();
    assert!(transcript.whole(32).last().unwrap().ends_with("end"));
    let mut transcript = Transcript::default();
    transcript.call(&call("1"));
    transcript.tool_ended("1", &"x".repeat(50_000).repeat(2), false);
    transcript.expand_tools();
    assert!(transcript.whole(32).len() > 3000, "one line is shown whole");
    transcript.tool_ended("1", &format!("{}\nmore", "x".repeat(100_000)), false);
    assert_eq!(transcript.whole(32).last().unwrap(), "  … 1 more line");
}

#[test]
fn tool_names_are_sanitized() {
    let mut transcript = Transcript::default();
    transcript.call(&ToolCall {
        name: "ba\u{1b}[31msh\u{202e}\nx".to_owned(),
        ..call("1")
    });
    assert_eq!(transcript.whole(80), ["○ bash x ls -l"]);
}

// --- Scrolling ---

#[test]
fn a_click_below_the_transcript_opens_nothing() {
    let mut transcript = Transcript::default();
    transcript.user("one");
    transcript.call(&call("1"));
    transcript.tool_ended("1", &"line\n".repeat(50), false);
    transcript.go_to_beginning();
    transcript.frame((80, 6));
    let before = transcript.whole(80).len();
    for row in 6..30 {
        transcript.toggle_row(row);
    }
    assert_eq!(transcript.whole(80).len(), before);
    transcript.toggle_row(5);
    assert!(transcript.whole(80).len() > before);
}

#[test]
fn scroll_position_is_stable_while_text_arrives() {
    for unit in [
        "Some words.\n\n",
        "```\ncode\n",
        "words and words ",
        "- an item\n",
    ] {
        let mut transcript = Transcript::default();
        transcript.user("tell me");
        transcript.answer(&unit.repeat(200));
        transcript.frame((60, 10));
        transcript.scroll(-15);
        // Only complete lines: the end of the text so far may still change.
        let read = transcript.frame((60, 10));
        for _ in 0..3000 {
            transcript.answer(unit);
        }
        assert_eq!(transcript.frame((60, 10)), read, "{unit:?}");
        transcript.notice(Tone::Faint, "and a notice");
        assert_eq!(transcript.frame((60, 10)), read, "{unit:?}");
        assert!(!transcript.follows_end());
    }
}

#[test]
fn scroll_position_is_stable_across_split() {
    let mut transcript = Transcript::default();
    transcript.answer(&"Some words.\n\n".repeat(150));
    transcript.answer(&"word ".repeat(400));
    assert_eq!(transcript.len(), 1);
    transcript.frame((60, 10));
    transcript.scroll(-5);
    let read = transcript.frame((60, 10));
    transcript.answer(&"word ".repeat(100));
    assert_eq!(transcript.len(), 2, "it is cut before the last paragraph");
    assert_eq!(transcript.frame((60, 10)), read);
    assert_eq!(transcript.frame((60, 10)), read);
}

/// Generates any transcript.
fn anything() -> impl Strategy<Value = Transcript> {
    let text = prop_oneof![
        Just("a word or two\n"),
        Just("A paragraph.\n\n"),
        Just("```\ncode\n```\n"),
        Just("日本語 und ä\n"),
        Just("- item\n"),
        Just("\n"),
    ];
    let text = (text, 1..60usize).prop_map(|(text, times)| text.repeat(times));
    let block = (0..5u8, text, any::<bool>());
    collection::vec(block, 0..25).prop_map(|blocks| {
        let mut transcript = Transcript::default();
        for (number, (kind, text, flag)) in blocks.into_iter().enumerate() {
            match kind {
                0 => transcript.user(&text),
                1 => transcript.answer(&text),
                2 => transcript.thought(&text),
                3 => {
                    transcript.call(&call(&number.to_string()));
                    transcript.tool_ended(&number.to_string(), &text, flag);
                }
                _ => transcript.notice(Tone::Warning, &text),
            }
        }
        transcript
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn frame_is_always_a_window_of_full_transcript(
        mut transcript in anything(),
        steps in collection::vec((-90isize..90, 0..30u16), 1..25),
    ) {
        let whole = transcript.whole(40);
        transcript.frame((40, 10));
        let mut top = whole.len().saturating_sub(10);
        for (step, height) in steps {
            let rows = usize::from(height);
            let last = whole.len().saturating_sub(rows);
            let follows = transcript.follows_end();
            transcript.scroll(step);
            let frame = transcript.frame((40, height));
            top = if follows { last } else { top };
            top = top.saturating_add_signed(step).min(last);
            let expected: Vec<_> = whole.iter().skip(top).take(rows).cloned().collect();
            prop_assert_eq!(frame, expected);
            prop_assert!(height == 0 || transcript.follows_end() == (top == last));
        }
    }
}
