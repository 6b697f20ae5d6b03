//! Key bindings, and the meaning of whole lines where keys cannot be read.

use super::{Action, Chat, Choices};
use crate::tui::activity::Activity;
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use outlast_session::tools::ApprovalDecision;

/// The command that lists the sessions.
const SESSIONS: &str = "/sessions ";
const LEAVE_HINT: &str = "Ctrl-C once more leaves";
const ESCAPE: &str = "\u{1b}";

impl Chat {
    pub(super) fn handle_key(&mut self, key: KeyEvent) {
        if key.kind == KeyEventKind::Release {
            return;
        }
        let hint = self.hint.take();
        if self.handle_question_key(key) || self.handle_choice_key(key) {
            return;
        }
        match (key.code, key.modifiers) {
            (KeyCode::Char('c'), KeyModifiers::CONTROL) if hint == Some(LEAVE_HINT) => {
                self.push_action(Action::Quit);
            }
            (KeyCode::Char('c'), KeyModifiers::CONTROL) => self.interrupt(),
            (KeyCode::Char('d'), KeyModifiers::CONTROL) if self.editor.is_empty() => {
                self.push_action(Action::Quit);
            }
            (KeyCode::Char('z'), KeyModifiers::CONTROL) => self.push_action(Action::Suspend),
            (KeyCode::Char('l'), KeyModifiers::CONTROL) => self.push_action(Action::Redraw),
            (KeyCode::Char('o'), KeyModifiers::CONTROL) => self.transcript.expand_tools(),
            (KeyCode::Char('t'), KeyModifiers::CONTROL) => self.transcript.show_thoughts(),
            (KeyCode::Esc, _) => self.escape(),
            (KeyCode::Char('r'), KeyModifiers::NONE)
                if self.editor.is_empty() && self.is_waiting() =>
            {
                self.push_action(Action::RetryNow);
            }
            (KeyCode::Enter, KeyModifiers::NONE) => self.enter(),
            (KeyCode::Enter, _) | (KeyCode::Char('j'), KeyModifiers::CONTROL) => self.new_line(),
            _ if self.handle_scroll_key(key) => {}
            _ => {
                self.editor.key(key);
                let text = self.editor.text();
                self.choices = match self.editor.is_browsing_history() {
                    true => Choices::default(),
                    false => Choices::matching(&text, &self.candidates),
                };
                if text == SESSIONS {
                    self.push_action(Action::ListSessions);
                }
            }
        }
    }

    /// Handles a whole line, for input whose keys cannot be read.
    pub(super) fn handle_line(&mut self, line: &str) {
        let text = line.trim();
        if text.chars().any(|c| c == '\u{1b}') && text.replace(ESCAPE, "").is_empty() {
            return self.escape();
        }
        if self.question.is_some() {
            return match text.to_lowercase().as_str() {
                "y" | "yes" => self.answer(ApprovalDecision::AllowOnce),
                "a" | "always" => self.answer(ApprovalDecision::AllowAlways),
                "n" | "no" => self.answer(ApprovalDecision::Deny),
                // Any other text leaves the question open.
                _ => {}
            };
        }
        if text == "r" && self.is_waiting() {
            return self.push_action(Action::RetryNow);
        }
        self.send(line);
    }

    /// Handles Ctrl-C.
    pub(super) fn interrupt(&mut self) {
        if !self.editor.is_empty() {
            self.editor.clear();
            self.choices = Choices::default();
        } else if self.is_busy() {
            self.abort();
        } else {
            self.hint = Some(LEAVE_HINT);
        }
    }

    /// Handles Esc: it cancels a scheduled retry, and otherwise the turn.
    fn escape(&mut self) {
        match &self.activity {
            _ if self.question.is_some() => self.answer(ApprovalDecision::Deny),
            Activity::Retrying(_) => self.push_action(Action::AbortRetry),
            _ if self.is_busy() => self.abort(),
            _ => self.transcript.go_to_end(),
        }
    }

    fn abort(&mut self) {
        self.push_action(Action::Abort);
    }

    /// Starts a new line; commands have only one.
    fn new_line(&mut self) {
        self.editor.new_line();
        self.choices = Choices::default();
    }

    fn enter(&mut self) {
        if self.editor.take_backslash() {
            return self.new_line();
        }
        self.choices = Choices::default();
        let text = self.editor.take();
        self.send(&text);
    }

    /// Whether the key answers the open question. Keys of a draft that was begun before it keep going to the draft.
    fn handle_question_key(&mut self, key: KeyEvent) -> bool {
        let Some(asked) = &self.question else {
            return false;
        };
        let KeyCode::Char(letter) = key.code else {
            return false;
        };
        let is_expected = asked.is_armed && self.editor.is_empty();
        let answer = match (letter, key.modifiers) {
            ('y', KeyModifiers::ALT) => ApprovalDecision::AllowOnce,
            ('n', KeyModifiers::ALT) => ApprovalDecision::Deny,
            ('a', KeyModifiers::ALT) => ApprovalDecision::AllowAlways,
            ('y', KeyModifiers::NONE) if is_expected => ApprovalDecision::AllowOnce,
            ('n', KeyModifiers::NONE) if is_expected => ApprovalDecision::Deny,
            // A lower-case letter begins many sentences.
            ('A', KeyModifiers::NONE | KeyModifiers::SHIFT) if is_expected => {
                ApprovalDecision::AllowAlways
            }
            _ => return false,
        };
        self.answer(answer);
        true
    }

    fn answer(&mut self, answer: ApprovalDecision) {
        self.question = None;
        self.push_action(Action::Answer(answer));
    }

    /// Whether the key goes to the open list.
    fn handle_choice_key(&mut self, key: KeyEvent) -> bool {
        // Shift scrolls, and Alt begins a line.
        let choice = self.choices.selected().cloned();
        let Some(choice) = choice.filter(|_| key.modifiers.is_empty()) else {
            return false;
        };
        match key.code {
            KeyCode::Up => self.choices.move_selection(-1),
            KeyCode::Down => self.choices.move_selection(1),
            KeyCode::Esc => self.choices = Choices::default(),
            KeyCode::Tab => self.complete(&choice.text),
            KeyCode::Enter if self.choices.is_complete_command(&self.editor.text()) => {
                return false;
            }
            KeyCode::Enter if choice.takes_argument => {
                self.editor.clear();
                self.send(&choice.text);
            }
            KeyCode::Enter => {
                self.editor.set(&choice.text);
                self.enter();
            }
            _ => return false,
        }
        true
    }

    fn complete(&mut self, text: &str) {
        self.editor.set(text);
        self.choices = Choices::matching(text, &self.candidates);
        if text == SESSIONS {
            self.push_action(Action::ListSessions);
        }
    }

    /// Whether the key scrolls the question, or else the transcript.
    fn handle_scroll_key(&mut self, key: KeyEvent) -> bool {
        if let Some(asked) = &mut self.question {
            match key.code {
                KeyCode::PageUp => asked.top = asked.top.saturating_sub(asked.page),
                // The first view also shows the end, and less of the beginning.
                KeyCode::PageDown if asked.top == 0 => asked.top = 1,
                KeyCode::PageDown => asked.top = asked.top.saturating_add(asked.page),
                _ => return false,
            }
            return true;
        }
        let page = isize::try_from(self.transcript.height().saturating_sub(1).max(1)).unwrap_or(1);
        match (key.code, key.modifiers) {
            (KeyCode::PageUp, _) => self.transcript.scroll(-page),
            (KeyCode::PageDown, _) => self.transcript.scroll(page),
            (KeyCode::Up, KeyModifiers::SHIFT) => self.transcript.scroll(-1),
            (KeyCode::Down, KeyModifiers::SHIFT) => self.transcript.scroll(1),
            (KeyCode::Home, KeyModifiers::CONTROL) => self.transcript.go_to_beginning(),
            (KeyCode::End, KeyModifiers::CONTROL) => self.transcript.go_to_end(),
            _ => return false,
        }
        true
    }
}
