//! The chat as a state machine: its reactions to keys and to the events of real turns.

mod keys;
mod random;
mod recorded;
mod turns;

use super::*;
use crate::tui::theme::Theme;
use crossterm::event::{KeyCode, KeyModifiers};
use outlast_kernel::event::{Body, CompactionReason, TurnStatus};
use outlast_kernel::verdict::Cause;
use outlast_session::tools::Effect;
use std::time::Duration;

pub(in crate::tui) const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

pub(in crate::tui) fn event(body: Body) -> Input {
    Input::Event(Event {
        v: 1,
        seq: 1,
        time: NOW,
        session_id: "session".to_owned(),
        turn_id: "turn".to_owned(),
        attempt_id: None,
        body,
    })
}

pub(in crate::tui) fn later(seconds: u64) -> Timestamp {
    NOW + Duration::from_secs(seconds)
}

pub(in crate::tui) fn key(code: KeyCode) -> Input {
    Input::Key(KeyEvent::new(code, KeyModifiers::NONE))
}

pub(in crate::tui) fn with(modifiers: KeyModifiers, code: KeyCode) -> Input {
    Input::Key(KeyEvent::new(code, modifiers))
}

pub(in crate::tui) fn start() -> Body {
    Body::Start {
        provider: "mock".to_owned(),
        model: "claude-opus".to_owned(),
    }
}

pub(in crate::tui) fn input(text: &str) -> Body {
    let text = text.to_owned();
    Body::Input { text }
}

pub(in crate::tui) fn text(text: &str) -> Body {
    let text = text.to_owned();
    Body::TextDelta { text }
}

pub(in crate::tui) fn scheduled(attempt: u32, seconds: u64) -> Body {
    Body::RetryScheduled {
        attempt,
        max_attempts: Some(3),
        delay_ms: seconds * 1000,
        retry_at: later(seconds),
        cause: Cause::Overloaded,
        message: "Overloaded".to_owned(),
        code: Some("529".to_owned()),
    }
}

pub(in crate::tui) fn held(seconds: u64) -> Body {
    Body::Held {
        until: later(seconds),
        cause: Some(Cause::RateLimited),
    }
}

pub(in crate::tui) fn compacting() -> Body {
    Body::AutoCompactionStarted {
        reason: CompactionReason::Threshold,
        tokens: 150_000,
    }
}

pub(in crate::tui) fn sealed(status: TurnStatus) -> Body {
    Body::Sealed { status }
}

pub(in crate::tui) fn question() -> Input {
    Input::QuestionAsked(ApprovalRequest {
        tool: "bash".to_owned(),
        permission: "bash".to_owned(),
        summary: "bash: cargo test".to_owned(),
        arguments: serde_json::json!({ "command": "cargo test", "env": "A=1\nB=2" }),
        effect: Effect::AtMostOnce,
        outside_path: None,
    })
}

pub(in crate::tui) fn joined() -> Joined {
    Joined {
        status: Status {
            session: "0198".to_owned(),
            model: "claude-opus".to_owned(),
            policy: "session".to_owned(),
            window: Some(200_000),
            folder: "~/project".to_owned(),
            ..Status::default()
        },
        models: (1..=12)
            .map(|number| format!("mock:model-{number}"))
            .collect(),
        messages: Vec::new(),
        replayed_messages: 0,
        queued: Vec::new(),
        greeting: None,
    }
}

impl Chat {
    /// Handles several inputs at once, and returns the resulting actions.
    pub(in crate::tui) fn take_all(
        &mut self,
        inputs: impl IntoIterator<Item = Input>,
    ) -> Vec<Action> {
        let inputs = inputs.into_iter();
        inputs.flat_map(|input| self.handle(input, NOW)).collect()
    }

    pub(in crate::tui) fn events(&mut self, bodies: impl IntoIterator<Item = Body>) -> Vec<Action> {
        self.take_all(bodies.into_iter().map(event))
    }

    pub(in crate::tui) fn write(&mut self, text: &str) {
        self.take_all(text.chars().map(|c| key(KeyCode::Char(c))));
    }

    /// Returns the rendered transcript.
    fn shown(&mut self) -> String {
        let lines = self.transcript.visible((100, 1000), &Theme::plain());
        let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        lines.join("\n")
    }
}

/// Creates a chat with an idle session.
pub(in crate::tui) fn idle() -> Chat {
    let mut chat = Chat::new();
    chat.handle(Input::SessionOpened(Box::new(joined())), NOW);
    chat
}

pub(in crate::tui) fn working() -> Chat {
    let mut chat = idle();
    chat.events([start(), input("hello"), Body::AttemptStarted { attempt: 1 }]);
    chat
}

pub(in crate::tui) fn retrying() -> Chat {
    let mut chat = working();
    chat.events([scheduled(1, 2)]);
    chat
}

pub(in crate::tui) fn asked() -> Chat {
    let mut chat = working();
    chat.handle(question(), NOW);
    chat.handle(Input::QuestionArmed(1), NOW);
    chat
}

fn session(id: &str, title: &str) -> PastSession {
    PastSession {
        id: id.to_owned(),
        title: title.to_owned(),
        description: String::new(),
    }
}
