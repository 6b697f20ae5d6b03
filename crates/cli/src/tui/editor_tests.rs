//! Typing, pasting and browsing the history; and the rows of the editor.

use super::*;
use proptest::prelude::{ProptestConfig, Strategy, prop_assert, prop_assert_eq};
use proptest::{collection, proptest, sample};

fn press(editor: &mut Editor, code: KeyCode) {
    editor.key(KeyEvent::new(code, KeyModifiers::NONE));
}

fn write(editor: &mut Editor, text: &str) {
    for c in text.chars() {
        press(editor, KeyCode::Char(c));
    }
}

#[test]
fn long_paste_collapses_until_sent() {
    let mut editor = Editor::default();
    write(&mut editor, "look: ");
    let pasted = "a line\r\n".repeat(150_000);
    editor.paste(&pasted).unwrap();
    assert_eq!(
        editor.text(),
        "look: [pasted text 1: 1026 KiB, 150000 lines]"
    );
    write(&mut editor, "!");
    let expected = format!("look: {}!", "a line\n".repeat(150_000));
    assert!(editor.take() == expected);
    assert!(editor.is_empty());
}

#[test]
fn short_paste_is_inserted_as_text() {
    let mut editor = Editor::default();
    editor.paste("one\rtwo \u{1b}[31mred").unwrap();
    assert_eq!(editor.text(), "one\ntwo red");
}

#[test]
fn backspace_removes_entire_collapsed_paste() {
    let mut editor = Editor::default();
    write(&mut editor, "x ");
    editor.paste(&"y".repeat(5000)).unwrap();
    press(&mut editor, KeyCode::Backspace);
    assert_eq!(editor.take(), "x ");
}

#[test]
fn oversized_paste_is_refused() {
    let mut editor = Editor::default();
    write(&mut editor, "kept");
    let error = editor
        .paste(&"x".repeat(MAX_MESSAGE_BYTES + 1))
        .unwrap_err();
    assert!(error.contains("16 MiB"), "{error}");
    assert_eq!(editor.take(), "kept");
}

#[test]
fn draft_survives_history_browsing() {
    let mut editor = Editor::default();
    editor.add_to_history("first");
    editor.add_to_history("second");
    write(&mut editor, "draft");
    press(&mut editor, KeyCode::Up);
    assert_eq!(editor.text(), "second");
    press(&mut editor, KeyCode::Up);
    assert_eq!(editor.text(), "first");
    press(&mut editor, KeyCode::Up);
    assert_eq!(editor.text(), "first");
    press(&mut editor, KeyCode::Down);
    press(&mut editor, KeyCode::Down);
    assert_eq!(editor.text(), "draft");
}

#[test]
fn placeholder_text_inside_paste_is_not_expanded() {
    let mut editor = Editor::default();
    let words = "[pasted text 2: 2 KiB, 1 line]";
    editor
        .paste(&format!("{words}{}", "a".repeat(2000)))
        .unwrap();
    editor.paste(&"b".repeat(1100)).unwrap();
    let text = editor.take();
    assert!(text.ends_with(&"b".repeat(1100)));
}

#[test]
fn empty_paste_changes_nothing() {
    let mut editor = Editor::default();
    editor.paste("").unwrap();
    editor.paste("\u{1b}[2J\u{7}").unwrap();
    assert!(editor.is_empty());
    write(&mut editor, "x");
    editor.paste("").unwrap();
    assert_eq!(editor.take(), "x");
}

#[test]
fn same_size_pastes_stay_distinct_after_removal() {
    let mut editor = Editor::default();
    for letter in ["a", "b"] {
        editor.paste(&letter.repeat(2000)).unwrap();
        write(&mut editor, " ");
    }
    press(&mut editor, KeyCode::Backspace);
    press(&mut editor, KeyCode::Backspace);
    editor.paste(&"c".repeat(2000)).unwrap();
    let expected = format!("{} {}", "a".repeat(2000), "c".repeat(2000));
    assert_eq!(editor.take(), expected);
}

#[test]
fn undo_restores_removed_paste() {
    let mut editor = Editor::default();
    editor.paste(&"a".repeat(2000)).unwrap();
    press(&mut editor, KeyCode::Backspace);
    assert!(editor.is_empty());
    let undo = KeyEvent::new(KeyCode::Char('z'), KeyModifiers::ALT);
    while !editor.text().ends_with(']') {
        editor.key(undo);
    }
    assert_eq!(editor.take(), "a".repeat(2000));
}

#[test]
fn combined_paste_limit_ignores_removed_pastes() {
    let mut editor = Editor::default();
    let half = "x".repeat(MAX_MESSAGE_BYTES / 2 + 1);
    editor.paste(&half).unwrap();
    editor.paste(&half).unwrap_err();
    press(&mut editor, KeyCode::Backspace);
    editor.paste(&half).unwrap();
    assert_eq!(editor.take().len(), half.len());
}

#[test]
fn history_recalls_message_with_paste() {
    let mut editor = Editor::default();
    write(&mut editor, "first");
    editor.take();
    write(&mut editor, "look: ");
    editor.paste(&"x".repeat(2000)).unwrap();
    let said = editor.take();
    for _ in 0..3 {
        press(&mut editor, KeyCode::Up);
        assert_eq!(editor.text(), "[pasted text 1: 2 KiB, 1 line]");
        press(&mut editor, KeyCode::Up);
        assert_eq!(editor.text(), "first");
        press(&mut editor, KeyCode::Down);
        press(&mut editor, KeyCode::Down);
        assert_eq!(editor.text(), "");
        editor.clear();
    }
    press(&mut editor, KeyCode::Up);
    assert!(editor.take() == said);
}

#[test]
fn moving_or_editing_in_history_keeps_draft() {
    let mut editor = Editor::default();
    editor.add_to_history("earlier");
    write(&mut editor, "draft");
    press(&mut editor, KeyCode::Up);
    press(&mut editor, KeyCode::Left);
    press(&mut editor, KeyCode::Down);
    assert_eq!(editor.text(), "draft");
    press(&mut editor, KeyCode::Up);
    write(&mut editor, "!");
    assert_eq!(editor.text(), "earlier!");
    press(&mut editor, KeyCode::Up);
    assert_eq!(editor.text(), "draft", "it is what was written last");
}

#[test]
fn history_size_in_bytes_is_bounded() {
    let mut editor = Editor::default();
    editor.add_to_history(&"x".repeat(MAX_HISTORY_BYTES + 1));
    assert!(editor.history.is_empty());
    for number in 0..9 {
        editor.add_to_history(&format!("{number}{}", "x".repeat(MAX_HISTORY_BYTES / 4)));
    }
    assert_eq!(editor.history.len(), 3);
    assert!(editor.history[2].starts_with('8'));
}

#[test]
fn draft_with_paste_survives_history_browsing() {
    let mut editor = Editor::default();
    editor.add_to_history("earlier");
    editor.paste(&"x".repeat(2000)).unwrap();
    press(&mut editor, KeyCode::Up);
    assert_eq!(editor.text(), "earlier");
    press(&mut editor, KeyCode::Down);
    assert_eq!(editor.take(), "x".repeat(2000));
}

#[test]
fn history_length_is_bounded_without_repeats() {
    let mut editor = Editor::default();
    for number in 0..MAX_HISTORY_MESSAGES + 10 {
        editor.add_to_history(&format!("said {number}"));
        editor.add_to_history(&format!("said {number}"));
    }
    editor.add_to_history("  ");
    assert_eq!(editor.history.len(), MAX_HISTORY_MESSAGES);
    assert_eq!(editor.history[0], "said 10");
}

#[test]
fn prepended_messages_stand_before_draft() {
    let mut editor = Editor::default();
    editor.paste(&"x".repeat(2000)).unwrap();
    let long = "y".repeat(3000);
    editor.prepend(&["one".to_owned(), long.clone(), String::new()]);
    assert_eq!(editor.take(), format!("one\n{long}\n{}", "x".repeat(2000)));
}

// --- Rows ---

/// Returns the number of rows and the cursor position at that width, with room for everything.
fn drawn(editor: &mut Editor, width: u16) -> (u16, Position) {
    let area = Rect::new(0, 0, width, MAX_ROWS);
    let mut buffer = Buffer::empty(area);
    let cursor = editor.draw(area, &mut buffer);
    let is_written = |row: &u16| (0..width).any(|x| buffer[(x, *row)].symbol() != " ");
    let last = (0..MAX_ROWS).rev().find(is_written);
    (last.map_or(0, |row| row + 1), cursor)
}

#[test]
fn row_count_and_cursor_are_correct_at_full_rows() {
    // Ten columns: nine for text, one for the cursor.
    let table = [
        ("", 1, (0, 0)),
        ("123456789", 1, (9, 0)),
        ("1234567890", 2, (1, 1)),
        ("one two three", 2, (5, 1)),
        ("日本語字", 1, (8, 0)),
        ("日本語字五", 2, (2, 1)),
        ("a\n\nb", 3, (1, 2)),
        ("a\n", 2, (0, 1)),
    ];
    for (text, rows, (x, y)) in table {
        let mut editor = Editor::default();
        editor.set(text);
        assert_eq!(editor.rows(10), rows, "{text:?}");
        let cursor = drawn(&mut editor, 10).1;
        assert_eq!((cursor.x, cursor.y), (x, y), "{text:?}");
    }
}

#[test]
fn arrows_move_through_wrapped_rows_before_history() {
    let mut editor = Editor::default();
    editor.add_to_history("earlier");
    write(&mut editor, "one two three four");
    assert_eq!(drawn(&mut editor, 10).0, 3);
    let mut seen = Vec::new();
    for code in [
        KeyCode::Up,
        KeyCode::Up,
        KeyCode::Up,
        KeyCode::Down,
        KeyCode::Down,
    ] {
        press(&mut editor, code);
        let (_, cursor) = drawn(&mut editor, 10);
        seen.push((editor.text() == "earlier", cursor.y));
    }
    let expected = [(false, 1), (false, 0), (true, 0), (false, 2), (false, 2)];
    assert_eq!(seen, expected);
}

fn text() -> impl Strategy<Value = String> {
    let pieces = vec![
        "a",
        "word",
        " ",
        "日本",
        "e\u{301}",
        "👩‍👩‍👧",
        "\n",
        "-",
        "longer-than-most",
        "\t",
        "ﾞ",
    ];
    collection::vec(sample::select(pieces), 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn row_count_covers_text_and_cursor_is_on_last_row(text in text(), width in 1..40u16) {
        let mut editor = Editor::default();
        editor.set(&text);
        let (rows, (written, cursor)) = (editor.rows(width), drawn(&mut editor, width));
        prop_assert!(written <= rows, "{} of {}", written, rows);
        // The cursor is after the last character.
        prop_assert_eq!(cursor.y + 1, rows);
        prop_assert!(cursor.x < width);
    }
}

#[test]
fn growing_screen_reveals_scrolled_rows() {
    let mut editor = Editor::default();
    editor.paste("one\ntwo\nthree\nfour").unwrap();
    let mut drawn = |height| {
        let area = Rect::new(0, 0, 20, height);
        let mut buffer = Buffer::empty(area);
        let cursor = editor.draw(area, &mut buffer);
        let row = |y| (0..20).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        let rows: Vec<String> = (0..height).map(|y| row(y).trim_end().to_owned()).collect();
        (rows, cursor.y)
    };
    assert_eq!(drawn(1), (vec!["four".to_owned()], 0));
    let all = ["one", "two", "three", "four"].map(str::to_owned);
    assert_eq!(drawn(4), (all.to_vec(), 3));
}
