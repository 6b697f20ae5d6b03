//! Builds events in the order in which turns emit them, and formats frames in short form.

use crate::event_encoder::{EventEncoder, JsonLines};
use crate::pi_rpc::translate::PiEncoder;
use outlast_kernel::Timestamp;
use outlast_kernel::event::{
    Body, CompactionReason, Event, Proof, Reasoning, StopReason, ToolCall, TurnStatus, Usage,
    VERSION,
};
use outlast_kernel::model_info::ContinueBy;
use outlast_kernel::verdict::{Cause, Class};
use outlast_session::factory::{Model, ModelCost};
use serde_json::Value;

const START: u64 = 1_800_000_000_000;

pub(in crate::pi_rpc) fn model(id: &str) -> Model {
    Model {
        id: id.to_owned(),
        name: id.to_owned(),
        api: "openai-completions".to_owned(),
        provider: "mock".to_owned(),
        base_url: "http://127.0.0.1".to_owned(),
        reasoning: false,
        input: vec!["text".to_owned()],
        cost: ModelCost::default(),
        context_window: 128_000,
        max_tokens: 8000,
    }
}

/// An input of the encoder.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Event(Body),
    RunEnded(bool),
}

#[derive(Default)]
pub(super) struct Script {
    steps: Vec<Step>,
}

pub(super) fn frames_of(steps: Vec<Step>) -> Vec<Value> {
    let mut voice = PiEncoder::new(vec![model("m1"), model("m2")]);
    let mut lines = JsonLines::default();
    for (step, seq) in steps.into_iter().zip(1..) {
        match step {
            Step::RunEnded(aborted) => voice.encode_run_end(aborted, &mut lines),
            Step::Event(body) => {
                let event = Event {
                    v: VERSION,
                    seq,
                    time: Timestamp::from_millis(START + seq),
                    session_id: "s".to_owned(),
                    turn_id: "t".to_owned(),
                    attempt_id: None,
                    body,
                };
                voice.encode(event, &mut lines);
            }
        }
    }
    let text = String::from_utf8(lines.as_bytes().to_vec()).unwrap();
    let parse = |line: &str| serde_json::from_str(line).unwrap();
    text.lines().map(parse).collect()
}

fn later(seconds: u64) -> Timestamp {
    Timestamp::from_millis(START + seconds * 1000)
}

const USAGE: Usage = Usage {
    input: 10,
    output: 3,
    cache_read: 0,
    cache_write: 0,
};

impl Script {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn prompt(text: &str) -> Self {
        Self::new().start("m1").input(text)
    }

    pub(super) fn frames(self) -> Vec<Value> {
        frames_of(self.steps)
    }

    fn then(mut self, body: Body) -> Self {
        self.steps.push(Step::Event(body));
        self
    }

    pub(super) fn settle(mut self, aborted: bool) -> Self {
        self.steps.push(Step::RunEnded(aborted));
        self
    }

    pub(super) fn start(self, model: &str) -> Self {
        let (provider, model) = ("mock".to_owned(), model.to_owned());
        self.then(Body::Start { provider, model })
    }

    pub(super) fn input(self, text: &str) -> Self {
        let text = text.to_owned();
        self.then(Body::Input { text })
    }

    pub(super) fn attempt(self) -> Self {
        self.then(Body::AttemptStarted { attempt: 1 })
    }

    pub(super) fn text(self, text: &str) -> Self {
        let text = text.to_owned();
        self.then(Body::TextDelta { text })
    }

    pub(super) fn think(self, text: &str) -> Self {
        let text = text.to_owned();
        self.then(Body::ReasoningDelta { text })
    }

    pub(super) fn thought(self, text: &str, signature: &str) -> Self {
        let signature = signature.to_owned();
        self.think(text).then(Body::ReasoningDone(Reasoning {
            text: text.to_owned(),
            proof: Some(Proof::Signature { signature }),
            model: None,
        }))
    }

    pub(super) fn call(self, id: &str, name: &str) -> Self {
        self.then(Body::ToolCall(ToolCall {
            id: id.to_owned(),
            name: name.to_owned(),
            arguments: "{\n\"path\": \"x\"}".to_owned(),
        }))
    }

    fn complete(self, model: &str, stop_reason: StopReason) -> Self {
        let model = model.to_owned();
        self.then(Body::Usage(USAGE))
            .then(Body::StepComplete { model, stop_reason })
    }

    pub(super) fn calls(self) -> Self {
        self.complete("m1", StopReason::ToolUse)
    }

    pub(super) fn step(self) -> Self {
        self.complete("m1", StopReason::EndTurn)
    }

    pub(super) fn step_of(self, model: &str) -> Self {
        self.complete(model, StopReason::EndTurn)
    }

    pub(super) fn refusal(self) -> Self {
        self.attempt().complete("m1", StopReason::Refusal).sealed()
    }

    pub(super) fn sealed(self) -> Self {
        let (stop_reason, status) = (StopReason::EndTurn, TurnStatus::Completed);
        self.then(Body::Done { stop_reason })
            .then(Body::Sealed { status })
    }

    pub(super) fn done(self) -> Self {
        self.step().sealed()
    }

    pub(super) fn aborted(self) -> Self {
        let status = TurnStatus::Aborted;
        self.then(Body::Sealed { status })
    }

    pub(super) fn failed(self) -> Self {
        let status = TurnStatus::Error;
        self.then(Body::Sealed { status })
    }

    pub(super) fn tool(self, id: &str, name: &str, output: &str) -> Self {
        let (output, is_error) = (output.to_owned(), false);
        let started = Body::ToolStarted {
            id: id.to_owned(),
            name: name.to_owned(),
        };
        let id = id.to_owned();
        self.then(started).then(Body::ToolResult {
            id,
            output,
            is_error,
        })
    }

    pub(super) fn refused(self, id: &str) -> Self {
        self.then(Body::ToolResult {
            id: id.to_owned(),
            output: "not allowed".to_owned(),
            is_error: true,
        })
    }

    pub(super) fn retry(self, attempt: u32) -> Self {
        self.then(Body::RetryScheduled {
            attempt,
            max_attempts: Some(3),
            delay_ms: 2000,
            retry_at: later(2),
            cause: Cause::Overloaded,
            message: "529 busy".to_owned(),
            code: Some("529".to_owned()),
        })
    }

    pub(super) fn retry_ended(self, error: Option<&str>) -> Self {
        self.then(Body::RetryEnded {
            success: error.is_none(),
            attempt: 1,
            error: error.map(str::to_owned),
        })
    }

    pub(super) fn error(self, message: &str) -> Self {
        let is_busy = message == "529 busy";
        let code = is_busy.then(|| "529".to_owned());
        self.then(Body::Error {
            class: if is_busy {
                Class::Transient
            } else {
                Class::Canceled
            },
            cause: if is_busy {
                Cause::Overloaded
            } else {
                Cause::DeadlinePassed
            },
            message: message.to_owned(),
            code,
            reason: "gave up after 1 retries".to_owned(),
        })
    }

    pub(super) fn overflow(self, message: &str) -> Self {
        self.then(Body::Error {
            class: Class::BudgetExhausted,
            cause: Cause::ContextOverflow,
            message: message.to_owned(),
            code: Some("400".to_owned()),
            reason: "the conversation is too long for the model".to_owned(),
        })
    }

    pub(super) fn queue(self, steering: &[&str], follow_up: &[&str]) -> Self {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        self.then(Body::QueueChanged {
            steering: owned(steering),
            follow_up: owned(follow_up),
        })
    }

    pub(super) fn renamed(self, title: &str) -> Self {
        let title = title.to_owned();
        self.then(Body::Renamed { title })
    }

    pub(super) fn retracted(self, attempt: u32) -> Self {
        self.then(Body::Retracted { attempt })
    }

    pub(super) fn seam(self) -> Self {
        let by = ContinueBy::Prompt;
        self.then(Body::Seam { by })
    }

    fn compacted(self, reason: CompactionReason, came: (Option<&str>, Option<&str>)) -> Self {
        let (summary, error) = came;
        self.then(Body::AutoCompactionEnded {
            reason,
            before: 900,
            after: 200,
            will_retry: summary.is_some() && reason != CompactionReason::Manual,
            summary: summary.map(str::to_owned),
            error: error.map(str::to_owned),
        })
    }

    pub(super) fn compaction(self, summary: Option<&str>, error: Option<&str>) -> Self {
        let (reason, tokens) = (CompactionReason::Overflow, 900);
        let retry = Body::AutoCompactionRetry {
            attempt: 1,
            retry_at: later(2),
            cause: Cause::RateLimited,
            message: "429 slow down".to_owned(),
        };
        self.then(Body::AutoCompactionStarted { reason, tokens })
            .then(retry)
            .compacted(reason, (summary, error))
    }

    pub(super) fn by_hand(self, summary: Option<&str>, error: Option<&str>) -> Self {
        let (reason, tokens) = (CompactionReason::Manual, 900);
        self.then(Body::AutoCompactionStarted { reason, tokens })
            .compacted(reason, (summary, error))
    }

    pub(super) fn switched(self, from: &str, to: &str) -> Self {
        self.then(Body::ModelSwitched {
            from: from.to_owned(),
            to: to.to_owned(),
            cause: Some(Cause::ModelNotFound),
            until: Some(later(300)),
        })
    }

    pub(super) fn held(self) -> Self {
        let (until, cause) = (later(9), Some(Cause::Overloaded));
        self.then(Body::Held { until, cause })
    }

    pub(super) fn blocked(self) -> Self {
        self.then(Body::AccountBlocked {
            name: "work".to_owned(),
            cause: Cause::UsageLimit,
            until: later(3600),
        })
    }

    pub(super) fn corrected(self) -> Self {
        self.then(Body::Corrected {
            cause: Cause::EmptyOutput,
            message: "nothing was done".to_owned(),
            attempt: 1,
            max_attempts: 3,
        })
    }

    pub(super) fn warning(self) -> Self {
        let message = "the answer is incomplete".to_owned();
        self.then(Body::Warning { message })
    }

    pub(super) fn unrecorded(self) -> Self {
        let message = "the disk is full".to_owned();
        self.then(Body::Unrecorded { message })
    }

    pub(super) fn billed_twice(self) -> Self {
        let (usage, estimated) = (USAGE, true);
        self.then(Body::BilledTwice { usage, estimated })
    }
}

// --- Frames in short form ---

/// Formats a frame as one line; its messages are in brackets.
pub(super) fn brief(frame: &Value) -> String {
    let mut frame = frame.as_object().unwrap().clone();
    let name = frame.remove("type").unwrap();
    let name = name.as_str().unwrap();
    if name == "message_update" {
        return update(name, &frame["assistantMessageEvent"]);
    }
    let fields = frame.iter().map(|(key, value)| match key.as_str() {
        "message" if value.is_object() => message(value),
        "messages" | "toolResults" => {
            let all = value.as_array().unwrap().iter().map(message);
            format!("{key} {}", all.collect::<Vec<_>>().join(" "))
        }
        key => format!("{key}={value}"),
    });
    let fields: Vec<String> = fields.collect();
    format!("{name} {}", fields.join(" ")).trim_end().to_owned()
}

fn update(name: &str, update: &Value) -> String {
    let mut rest = update.as_object().unwrap().clone();
    let kind = rest.remove("type").unwrap();
    let partial = message(&rest.remove("partial").unwrap());
    let fields: Vec<String> = rest
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let kind = kind.as_str().unwrap();
    format!("{name}.{kind} {} {partial}", fields.join(" "))
}

fn message(message: &Value) -> String {
    let role = message["role"].as_str().unwrap();
    let blocks = message["content"].as_array().unwrap().iter().map(block);
    let content = blocks.collect::<Vec<_>>().join(" + ");
    let mut text = format!("[{role}: {content}");
    for key in [
        "model",
        "stopReason",
        "errorMessage",
        "toolCallId",
        "toolName",
        "isError",
    ] {
        if let Some(value) = message.get(key) {
            text = format!("{text} {key}={value}");
        }
    }
    if let Some(tokens) = message["usage"]["totalTokens"]
        .as_u64()
        .filter(|tokens| *tokens > 0)
    {
        text = format!("{text} tokens={tokens}");
    }
    if let Some(details) = message.get("outlast") {
        text = format!("{text} {details}");
    }
    format!("{text}]")
}

fn block(block: &Value) -> String {
    match block["type"].as_str().unwrap() {
        "text" => block["text"].to_string(),
        "thinking" => format!("thinking {}", block["thinking"]),
        _ => format!(
            "{}({})",
            block["name"].as_str().unwrap(),
            block["arguments"]
        ),
    }
}
