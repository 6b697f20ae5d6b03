//! From the wire: events and whole responses to deltas.
//!
//! Text comes in pieces and again at the end of its item; what was said in pieces is not said again, and what a server
//! sends only at the end is not lost.

use crate::{Delta, Sign, in_band, sse};
use outlast_kernel::Timestamp;
use outlast_kernel::event::{Proof, Reasoning, StopReason, ToolCall, Usage};
use outlast_kernel::failure::Failure;
use serde_json::Value;
use std::collections::BTreeMap;

/// The state of one streamed answer.
#[derive(Debug)]
pub struct Stream {
    provider: String,
    /// What has been said of each item, by its place in the output.
    items: BTreeMap<u64, Item>,
    has_calls: bool,
    refused: bool,
}

#[derive(Debug, Default)]
struct Item {
    /// Text or reasoning that was handed on in pieces.
    said: String,
    /// Arguments, as they came in pieces.
    arguments: String,
    done: bool,
}

impl Stream {
    /// The beginning of an answer by that provider.
    pub fn new(provider: &str) -> Self {
        Self {
            provider: provider.to_owned(),
            items: BTreeMap::new(),
            has_calls: false,
            refused: false,
        }
    }

    /// Adds what one event says to `deltas`.
    pub fn read(
        &mut self,
        event: &sse::Event,
        now: Timestamp,
        deltas: &mut Vec<Delta>,
    ) -> Result<Sign, Box<Failure>> {
        // Some servers end this dialect's streams, too, like those of the older one.
        if event.data.trim() == crate::openai_chat::DONE {
            return Ok(Sign::Alive);
        }
        let frame = in_band::json(&self.provider, &event.data, now)?;
        let place = frame["output_index"].as_u64().unwrap_or_default();
        match frame["type"].as_str().unwrap_or(&event.name) {
            "response.output_text.delta" => deltas.extend(self.said(place, &frame, Delta::Text)),
            "response.refusal.delta" => {
                self.refused = true;
                deltas.extend(self.said(place, &frame, Delta::Text));
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                deltas.extend(self.said(place, &frame, Delta::Reasoning));
            }
            "response.reasoning_summary_part.added" => self.next_thought(place, deltas),
            "response.function_call_arguments.delta" => {
                let piece = frame["delta"].as_str().unwrap_or_default();
                self.items
                    .entry(place)
                    .or_default()
                    .arguments
                    .push_str(piece);
            }
            "response.output_item.done" => self.item(place, &frame["item"], deltas),
            "response.completed" | "response.incomplete" | "response.done" => {
                self.close(&frame["response"], deltas);
            }
            "response.failed" | "response.cancelled" | "error" => {
                return Err(self.error(&frame, now));
            }
            "keepalive" | "ping" => return Ok(Sign::Alive),
            _ if frame["type"].is_null() && !frame["error"].is_null() => {
                return Err(self.error(&frame, now));
            }
            _ => {}
        }
        Ok(Sign::Progress)
    }

    /// A failed response repeats the whole request; only its error is about the failure.
    fn error(&self, frame: &Value, now: Timestamp) -> Box<Failure> {
        let response = &frame["response"];
        let cause = match (&response["error"], &response["incomplete_details"]) {
            (Value::Null, Value::Null) if response.is_null() => frame,
            (Value::Null, details) => details,
            (error, _) => error,
        };
        in_band::error(&self.provider, &cause.to_string(), now)
    }

    fn said(&mut self, place: u64, frame: &Value, delta: fn(String) -> Delta) -> Option<Delta> {
        let piece = frame["delta"].as_str().filter(|piece| !piece.is_empty())?;
        self.items.entry(place).or_default().said.push_str(piece);
        Some(delta(piece.to_owned()))
    }

    /// Summaries come in paragraphs.
    fn next_thought(&mut self, place: u64, deltas: &mut Vec<Delta>) {
        let item = self.items.entry(place).or_default();
        if !item.said.is_empty() {
            item.said.push_str("\n\n");
            deltas.push(Delta::Reasoning("\n\n".to_owned()));
        }
    }

    /// An item that is complete.
    fn item(&mut self, place: u64, item: &Value, deltas: &mut Vec<Delta>) {
        let known = self.items.entry(place).or_default();
        if std::mem::replace(&mut known.done, true) {
            return;
        }
        let (said, arguments) = (
            std::mem::take(&mut known.said),
            std::mem::take(&mut known.arguments),
        );
        match item["type"].as_str().unwrap_or_default() {
            "message" => self.message(&said, &item["content"], deltas),
            "reasoning" => deltas.extend(reasoning(said, item)),
            "function_call" => {
                self.has_calls = true;
                deltas.push(Delta::ToolCall(call(item, arguments)));
            }
            _ => {}
        }
    }

    fn message(&mut self, said: &str, content: &Value, deltas: &mut Vec<Delta>) {
        let parts = content.as_array().map(Vec::as_slice).unwrap_or_default();
        let refusals = parts.iter().filter_map(|part| part["refusal"].as_str());
        self.refused |= refusals.clone().next().is_some();
        if said.is_empty() {
            let texts = parts.iter().filter_map(|part| part["text"].as_str());
            let texts = texts.chain(refusals).filter(|text| !text.is_empty());
            deltas.extend(texts.map(|text| Delta::Text(text.to_owned())));
        }
    }

    /// The last event: what it holds and no other event has told, its usage, and why it ended.
    fn close(&mut self, response: &Value, deltas: &mut Vec<Delta>) {
        let output = response["output"].as_array().map(Vec::as_slice);
        for (place, item) in (0..).zip(output.unwrap_or_default()) {
            // An item that the limit cut short is as complete as it will ever be, but no call to be run.
            let cut_short = item["status"] == "incomplete" && item["type"] == "function_call";
            if !cut_short {
                self.item(place, item, deltas);
            }
        }
        deltas.extend(usage(&response["usage"]));
        deltas.push(Delta::Stopped(self.stop_reason(response)));
    }

    fn stop_reason(&self, response: &Value) -> StopReason {
        match response["incomplete_details"]["reason"].as_str() {
            Some("max_output_tokens") => StopReason::Length,
            Some("content_filter") => StopReason::Refusal,
            Some(_) => StopReason::Other,
            None if response["status"] == "incomplete" => StopReason::Length,
            None if self.refused => StopReason::Refusal,
            None if self.has_calls => StopReason::ToolUse,
            None => StopReason::EndTurn,
        }
    }
}

/// What a response that came as a whole says.
pub fn read_whole(provider: &str, body: &str, now: Timestamp) -> Result<Vec<Delta>, Box<Failure>> {
    let response = in_band::json(provider, body, now)?;
    let mut stream = Stream::new(provider);
    let went_wrong = matches!(response["status"].as_str(), Some("failed" | "cancelled"));
    if went_wrong {
        let frame = serde_json::json!({ "response": response });
        return Err(stream.error(&frame, now));
    }
    if !response["output"].is_array() {
        return Err(in_band::error(provider, body, now));
    }
    let mut deltas = Vec::new();
    stream.close(&response, &mut deltas);
    Ok(deltas)
}

fn reasoning(said: String, item: &Value) -> Vec<Delta> {
    let texts = |name: &str| {
        let parts = item[name].as_array().map(Vec::as_slice);
        let texts = parts.unwrap_or_default().iter();
        let texts: Vec<&str> = texts.filter_map(|part| part["text"].as_str()).collect();
        texts.join("\n\n")
    };
    let mut deltas = Vec::new();
    let mut text = said;
    if text.is_empty() {
        text = texts("summary");
        if text.is_empty() {
            text = texts("content");
        }
        if !text.is_empty() {
            deltas.push(Delta::Reasoning(text.clone()));
        }
    }
    let proof = item["id"].as_str().map(|id| Proof::Encrypted {
        id: id.to_owned(),
        content: item["encrypted_content"].as_str().map(str::to_owned),
    });
    deltas.push(Delta::ReasoningDone(Reasoning { text, proof }));
    deltas
}

/// The item holds the whole arguments; a server that leaves them out has sent them in pieces.
fn call(item: &Value, pieces: String) -> ToolCall {
    let text = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
    let id = item["call_id"]
        .as_str()
        .map_or_else(|| text("id"), str::to_owned);
    let arguments = [text("arguments"), pieces, "{}".to_owned()]
        .into_iter()
        .find(|arguments| !arguments.is_empty())
        .unwrap_or_default();
    ToolCall {
        id,
        name: text("name"),
        arguments,
    }
}

/// Here the tokens read from the cache are counted among those read; with us they are counted apart.
fn usage(usage: &Value) -> Option<Delta> {
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let cached = number(&usage["input_tokens_details"]["cached_tokens"]);
    usage.is_object().then(|| {
        Delta::Usage(Usage {
            input: number(&usage["input_tokens"]).saturating_sub(cached),
            output: number(&usage["output_tokens"]),
            cache_read: cached,
            cache_write: 0,
        })
    })
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
