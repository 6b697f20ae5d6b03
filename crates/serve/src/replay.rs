//! Replays a session's recorded entries as events: a late client shows them with the code for live events.
//!
//! Invariants: these events have the content of the live ones, with the deltas of one text merged; retracted content is
//! left out, and so are transient events (waits, gates, starts of attempts).

use outlast_dialect::{Message, Part};
use outlast_engine::journal::{Entry, ModelSwitch, TurnError};
use outlast_kernel::Timestamp;
use outlast_kernel::event::{Body, Event, StopReason, TurnStatus, Usage, VERSION};
use outlast_kernel::fallback::Exclusion;
use outlast_session::compaction::is_summary;
use outlast_session::parse_entry;
use outlast_store::journal::StoredEntry;

/// Replays the entries of a session, in order. An entry that cannot be read becomes an event that says so.
pub fn replay_events<'a>(
    session_id: &str,
    entries: impl IntoIterator<Item = &'a StoredEntry>,
) -> Vec<Event> {
    let mut replay = Replay {
        session_id: session_id.to_owned(),
        ..Replay::default()
    };
    for stored in entries {
        replay.time = stored.entry.time;
        match parse_entry(session_id, stored) {
            Ok(entry) => replay.apply(entry),
            Err(error) => replay.emit(Body::Warning {
                message: error.to_string(),
            }),
        }
    }
    // The last turn is not settled: the content of its last call stands until the call is retried.
    replay.events
}

#[derive(Default)]
struct Replay {
    session_id: String,
    turn_id: String,
    time: Timestamp,
    events: Vec<Event>,
    /// The index of the turn's start event, until the model that answers is known.
    start: Option<usize>,
    /// The content and the code of a failed attempt; the next entry decides whether the content stands.
    failed: Option<(Message, Option<String>)>,
    stop: Option<StopReason>,
    /// The last input; a turn that retries another one has the same input.
    last_input: String,
    is_missing_input: bool,
}

impl Replay {
    fn emit(&mut self, body: Body) {
        self.events.push(Event {
            v: VERSION,
            seq: 0,
            time: self.time,
            session_id: self.session_id.clone(),
            turn_id: self.turn_id.clone(),
            attempt_id: None,
            body,
        });
    }

    fn apply(&mut self, entry: Entry) {
        let begins = matches!(entry, Entry::Prompt { .. } | Entry::Delivered { .. });
        if !begins && std::mem::take(&mut self.is_missing_input) {
            let text = self.last_input.clone();
            self.emit(Body::Input { text });
        }
        match entry {
            Entry::Prompt {
                turn_id, message, ..
            } => {
                (self.turn_id, self.stop, self.failed) = (turn_id, None, None);
                self.start = Some(self.events.len());
                self.emit(Body::Start {
                    provider: String::new(),
                    model: String::new(),
                });
                self.is_missing_input = message.is_none();
                message.iter().for_each(|message| self.input(message));
            }
            Entry::Delivered {
                messages,
                note: false,
                ..
            } => messages.iter().for_each(|message| self.input(message)),
            // The attempt is retried, or its beginning is part of the complete message.
            Entry::AttemptStarted { .. } => self.failed = None,
            Entry::AttemptFailed {
                judged, message, ..
            } => {
                let code = judged.and_then(|judged| judged.failure.public_code());
                self.failed = Some((message, code));
            }
            Entry::Switched {
                model: Some(switch),
                ..
            } => self.apply_model_switch(switch),
            Entry::Message {
                message,
                stop_reason,
                usage,
                model,
            } => self.apply_completion(message, stop_reason, usage, model),
            Entry::ToolFinished {
                id,
                output,
                is_error,
                ..
            } => self.emit(Body::ToolResult {
                id,
                output,
                is_error,
            }),
            compacted @ Entry::Compacted { .. } => self.apply_compaction(compacted),
            Entry::Settled { seal, error, .. } => self.apply_settlement(seal, error),
            _ => {}
        }
    }

    fn input(&mut self, message: &Message) {
        let text = message.text();
        self.is_missing_input = false;
        self.last_input.clone_from(&text);
        self.emit(Body::Input { text });
    }

    fn parts(&mut self, message: Message) {
        for part in message.parts {
            match part {
                Part::Text { text } if !text.is_empty() => self.emit(Body::TextDelta { text }),
                Part::Reasoning(reasoning) if !reasoning.text.is_empty() => {
                    let text = reasoning.text;
                    self.emit(Body::ReasoningDelta { text });
                }
                Part::ToolCall(call) => self.emit(Body::ToolCall(call)),
                _ => {}
            }
        }
    }

    fn apply_completion(
        &mut self,
        message: Message,
        stop: StopReason,
        usage: Usage,
        model: String,
    ) {
        self.failed = None;
        if let Some(start) = self.start.take()
            && let Some(Body::Start { model: asked, .. }) =
                self.events.get_mut(start).map(|event| &mut event.body)
        {
            asked.clone_from(&model);
        }
        self.parts(message);
        self.emit(Body::Usage(usage));
        self.stop = Some(stop);
        self.emit(Body::StepComplete {
            model,
            stop_reason: stop,
        });
    }

    fn apply_model_switch(&mut self, switch: ModelSwitch) {
        let until = match switch.left {
            Some(Exclusion::Until { until }) => Some(until),
            _ => None,
        };
        self.emit(Body::ModelSwitched {
            from: switch.from,
            to: switch.to,
            cause: None,
            until,
        });
    }

    fn apply_compaction(&mut self, entry: Entry) {
        let Entry::Compacted {
            reason,
            messages,
            before,
            after,
            ..
        } = entry
        else {
            return;
        };
        let summary = messages.first().filter(|first| is_summary(first));
        self.emit(Body::AutoCompactionEnded {
            reason,
            before,
            after,
            will_retry: false,
            summary: summary.map(Message::text),
            error: None,
        });
    }

    fn apply_settlement(&mut self, seal: TurnStatus, error: Option<TurnError>) {
        let failed = self.failed.take();
        let code = failed.as_ref().and_then(|(_, code)| code.clone());
        if let Some((message, _)) = failed {
            self.parts(message);
        }
        if let Some(problem) = error {
            self.emit(Body::Error {
                class: problem.cause.class(),
                cause: problem.cause,
                message: problem.message,
                code,
                reason: problem.reason,
            });
        }
        if seal == TurnStatus::Completed {
            let stop_reason = self.stop.unwrap_or(StopReason::EndTurn);
            self.emit(Body::Done { stop_reason });
        }
        self.emit(Body::Sealed { status: seal });
    }
}
