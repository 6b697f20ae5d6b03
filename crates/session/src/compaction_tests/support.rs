//! Conversations built of steps, and a summariser that always returns the same summary.

use crate::compaction::{Compaction, Settings, elide};
use futures_util::{StreamExt, stream};
use outlast_dialect::{Delta, Image, Message, Part, Request, Role, ToolResult};
use outlast_engine::clock::TimerClock;
use outlast_engine::compaction::{Compactor, Job, Outcome, Size};
use outlast_engine::credential::Credential;
use outlast_engine::strategy::PolicyRetry;
use outlast_engine::target::ModelTarget;
use outlast_engine::{BoxStream, CancellationToken, Clock, Provider};
use outlast_kernel::Timestamp;
use outlast_kernel::budget::Prompt;
use outlast_kernel::event::{CompactionReason, StopReason, ToolCall};
use outlast_kernel::failure::Failure;
use outlast_kernel::policy::Policy;
use proptest::prelude::*;
use std::sync::{Arc, Mutex};

pub(super) const SUMMARY: &str = "SUMMARY of what was said";

// --- Conversations ---

#[derive(Clone, Debug)]
pub(super) enum Step {
    Prompt {
        length: usize,
        image: bool,
    },
    Answer(usize),
    /// Calls with the lengths of their arguments and results, and whether each result is a message of its own.
    Tools(Vec<(usize, usize)>, bool),
}

pub(super) fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let calls = proptest::collection::vec((0_usize..2000, 0_usize..20_000), 1..4);
    let step = prop_oneof![
        (0_usize..300, any::<bool>()).prop_map(|(length, image)| Step::Prompt { length, image }),
        (0_usize..4000).prop_map(Step::Answer),
        (calls, any::<bool>()).prop_map(|(calls, apart)| Step::Tools(calls, apart)),
    ];
    proptest::collection::vec(step, 1..most)
}

/// Builds a conversation that begins with a prompt; all prompts are different.
pub(super) fn conversation(steps: &[Step]) -> Vec<Message> {
    let first = Step::Prompt {
        length: 10,
        image: false,
    };
    let steps = std::iter::once(&first).chain(steps);
    steps
        .enumerate()
        .flat_map(|(number, step)| spoken(number, step))
        .collect()
}

pub(super) fn spoken(number: usize, step: &Step) -> Vec<Message> {
    let text = |text: String| Part::Text { text };
    let message = |role, parts| Message { role, parts };
    match step {
        Step::Prompt { length, image } => {
            let mut parts = vec![text(format!("prompt-{number}. {}", "p".repeat(*length)))];
            parts.extend(image.then(|| {
                Part::Image(Image {
                    media_type: "image/png".to_owned(),
                    data: "x".repeat(5000),
                })
            }));
            vec![message(Role::User, parts)]
        }
        Step::Answer(length) => {
            vec![message(
                Role::Assistant,
                vec![text(format!("answer-{number} {}", "a ".repeat(*length)))],
            )]
        }
        Step::Tools(calls, apart) => {
            // Some providers count their calls anew in each completion.
            let id = |index: usize| format!("call_{index}");
            let wanted = calls.iter().enumerate().map(|(index, (given, _))| {
                let arguments = format!(r#"{{"text":"{}"}}"#, "g".repeat(*given));
                Part::ToolCall(ToolCall {
                    id: id(index),
                    name: "read".to_owned(),
                    arguments,
                })
            });
            let asked = message(Role::Assistant, wanted.collect());
            let said = calls.iter().enumerate().map(|(index, (_, said))| {
                let output = format!("output-{number} {}", "o".repeat(*said));
                Part::ToolResult(ToolResult {
                    id: id(index),
                    output,
                    is_error: index == 1,
                })
            });
            let results: Vec<Message> = if *apart {
                said.map(|part| message(Role::User, vec![part])).collect()
            } else {
                vec![message(Role::User, said.collect())]
            };
            std::iter::once(asked).chain(results).collect()
        }
    }
}

/// Returns whether each result follows its call and each call has its result.
pub(super) fn is_paired(messages: &[Message]) -> bool {
    let mut open: Vec<&str> = Vec::new();
    for part in messages.iter().flat_map(|message| &message.parts) {
        match part {
            Part::ToolCall(call) => open.push(&call.id),
            Part::ToolResult(result) => match open.iter().position(|id| *id == result.id) {
                Some(place) => drop(open.remove(place)),
                None => return false,
            },
            _ => {}
        }
    }
    open.is_empty()
}

pub(super) fn all_text(messages: &[Message]) -> String {
    messages.iter().map(Message::text).collect()
}

pub(super) fn newest_prompt(messages: &[Message]) -> String {
    messages
        .iter()
        .rev()
        .find(|message| elide::is_prompt(message))
        .unwrap()
        .text()
}

pub(super) fn request(messages: Vec<Message>) -> Request {
    Request {
        messages,
        ..Request::default()
    }
}

// --- A summariser that always returns the same summary ---

#[derive(Default)]
pub(super) struct FixedSummariser(pub(super) Mutex<Vec<Request>>);

impl Provider for FixedSummariser {
    fn name(&self) -> &str {
        "same"
    }

    fn stream(
        &self,
        request: &Request,
        _: Option<&Credential>,
    ) -> BoxStream<'static, Result<Delta, Box<Failure>>> {
        self.0.lock().unwrap().push(request.clone());
        let text = Delta::Text(SUMMARY.to_owned());
        stream::iter([Ok(text), Ok(Delta::Stopped(StopReason::EndTurn))]).boxed()
    }
}

pub(super) struct Fixture {
    pub(super) summariser: Arc<FixedSummariser>,
    pub(super) compaction: Compaction,
}

pub(super) fn fixture(settings: Settings) -> Fixture {
    let summariser = Arc::new(FixedSummariser::default());
    let route = ModelTarget::new(Arc::clone(&summariser) as Arc<dyn Provider>, "small");
    let clock: Arc<dyn Clock> = Arc::new(TimerClock::new(Timestamp::default()));
    let policy = Policy::named("session").unwrap();
    let retry = Arc::new(PolicyRetry::new(policy, Arc::clone(&clock)));
    Fixture {
        compaction: Compaction::new(vec![route], retry, clock, settings),
        summariser,
    }
}

impl Fixture {
    pub(super) fn compact(
        &self,
        request: &Request,
        size: Size,
        reason: CompactionReason,
    ) -> Outcome {
        let left = outlast_kernel::fallback::Exclusions::default();
        let mut say = |_| {};
        let job = Job {
            focus: None,
            request,
            size,
            reason,
            budget: Prompt::default(),
            cancel: CancellationToken::new(),
            unavailable_models: &left,
            emit: &mut say,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        runtime.unwrap().block_on(self.compaction.compact(job))
    }

    /// Returns the text of the summariser's last request.
    pub(super) fn last_request_text(&self) -> String {
        self.summariser.0.lock().unwrap().last().unwrap().messages[0].text()
    }
}

pub(super) fn small() -> Settings {
    Settings {
        keep_tokens: 1500,
        max_summary_tokens: 500,
        ..Settings::default()
    }
}
