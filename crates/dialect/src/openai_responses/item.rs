//! One item of a completion: the content emitted so far, and the content that is left.

use crate::Delta;
use crate::tool_arguments::{self, RunawayOutput};
use outlast_kernel::event::{Proof, Reasoning, ToolCall};
use serde_json::Value;
use std::collections::BTreeSet;

/// The known state of an item.
#[derive(Debug, Default)]
pub(super) struct Item {
    pub(super) kind: String,
    pub(super) id: String,
    /// The call, with its arguments as they came in pieces.
    pub(super) call: ToolCall,
    /// The arguments as received at once.
    complete_arguments: Option<String>,
    /// The arguments at its beginning, for an item without later ones.
    initial_arguments: String,
    /// Text or reasoning that was emitted.
    emitted_text: String,
    /// The parts that the emitted text belongs to.
    emitted_parts: BTreeSet<u64>,
    /// It began before the rest of the completion that is read: some of its whole content was emitted before. Its
    /// pieces bring the rest, and content that is only usable as a whole comes at its end.
    started_before_resume: bool,
    pub(super) is_done: bool,
    /// It is a call, and was emitted.
    pub(super) is_emitted: bool,
    /// The last event has listed it.
    pub(super) is_in_output_list: bool,
}

/// The content that is left at the end of an item.
#[derive(Debug, Default)]
pub(super) struct FinishedItem {
    pub(super) deltas: Vec<Delta>,
    pub(super) is_refusal: bool,
    pub(super) is_call: bool,
}

/// The whole content of an item, as it comes at its end.
pub(super) struct ItemSnapshot<'a> {
    item: &'a Value,
    text: String,
    arguments: String,
}

impl Item {
    pub(super) fn new(started_before_resume: bool) -> Self {
        Self {
            started_before_resume,
            ..Self::default()
        }
    }

    pub(super) fn start(&mut self, item: &Value) {
        self.started_before_resume = false;
        item["name"]
            .as_str()
            .unwrap_or_default()
            .clone_into(&mut self.call.name);
        self.initial_arguments = tool_arguments::from_value(&item["arguments"]);
    }

    /// Returns the text of a piece of a part, or of a whole part that did not come in pieces.
    pub(super) fn take_text(&mut self, event: &Value) -> Option<String> {
        let text = |name: &str| event[name].as_str().filter(|text| !text.is_empty());
        let number = |name: &str| event[name].as_u64();
        let part = number("content_index").or_else(|| number("summary_index"));
        let part = part.unwrap_or_default();
        let is_new = |text: &&str| {
            !self.is_done
                && !self.started_before_resume
                && !self.emitted_parts.contains(&part)
                && !self.emitted_text.ends_with(*text)
        };
        let whole = text("text").or_else(|| text("refusal"));
        let said = text("delta").or_else(|| whole.filter(is_new))?;
        self.emitted_parts.insert(part);
        self.emitted_text.push_str(said);
        Some(said.to_owned())
    }

    /// Returns the break before the next paragraph: summaries come in paragraphs.
    pub(super) fn next_paragraph(&mut self, event: &Value) -> Option<String> {
        let is_later = event["summary_index"].as_u64() > Some(0);
        let follows = !self.emitted_text.is_empty() || (self.started_before_resume && is_later);
        let gap = follows.then(|| "\n\n".to_owned())?;
        self.emitted_text.push_str(&gap);
        Some(gap)
    }

    /// Adds a piece of the arguments, or all of them.
    pub(super) fn add_arguments(&mut self, event: &Value) -> Result<(), RunawayOutput> {
        if let Some(piece) = event["delta"]
            .as_str()
            .filter(|_| !self.started_before_resume)
        {
            tool_arguments::append(&mut self.call, piece)?;
        }
        if !event["arguments"].is_null() {
            self.complete_arguments = Some(tool_arguments::from_value(&event["arguments"]));
        }
        if let Some(name) = event["name"].as_str().filter(|name| !name.is_empty()) {
            name.clone_into(&mut self.call.name);
        }
        Ok(())
    }

    /// Returns whether no content of this item was emitted yet.
    pub(super) fn is_empty(&self) -> bool {
        self.emitted_text.is_empty()
            && self.call.arguments.is_empty()
            && self.complete_arguments.is_none()
    }

    /// Returns whether the emitted content of this item equals the snapshot.
    pub(super) fn matches_snapshot(&self, told: &ItemSnapshot<'_>) -> bool {
        if self.kind != "function_call" {
            return !self.emitted_text.is_empty() && told.text.starts_with(&self.emitted_text);
        }
        let arguments = self.complete_arguments.as_ref();
        told.item["name"] == self.call.name.as_str()
            && *arguments.unwrap_or(&self.call.arguments) == told.arguments
    }

    /// Completes the item.
    pub(super) fn finish(&mut self, item: &Value) -> FinishedItem {
        if std::mem::replace(&mut self.is_done, true) {
            return FinishedItem::default();
        }
        let told = ItemSnapshot::from_item(item);
        match item["type"].as_str().unwrap_or_default() {
            "message" => self.finish_message(&told),
            "reasoning" => FinishedItem::from_deltas(self.finish_reasoning(&told)),
            "function_call" => {
                FinishedItem::from_deltas(self.finish_call(&told).into_iter().collect())
            }
            _ => FinishedItem::default(),
        }
    }

    fn finish_message(&mut self, told: &ItemSnapshot<'_>) -> FinishedItem {
        let rest = match told.text.strip_prefix(&self.emitted_text) {
            _ if self.started_before_resume => String::new(),
            Some(rest) => rest.to_owned(),
            None => {
                let unsaid = (0..).zip(told.part_texts("content"));
                let unsaid = unsaid.filter(|(part, _)| !self.emitted_parts.contains(part));
                unsaid.map(|(_, text)| text).collect()
            }
        };
        self.emitted_text.push_str(&rest);
        let is_refusal = |part: &Value| part["refusal"].is_string();
        let said = Some(Delta::Text(rest)).filter(Delta::is_content);
        FinishedItem {
            deltas: said.into_iter().collect(),
            is_refusal: told.list("content").iter().any(is_refusal),
            is_call: false,
        }
    }

    fn finish_reasoning(&mut self, told: &ItemSnapshot<'_>) -> Vec<Delta> {
        let mut deltas = Vec::new();
        let rest = told
            .text
            .strip_prefix(&self.emitted_text)
            .unwrap_or_default();
        if self.started_before_resume {
            if !told.text.is_empty() {
                told.text.clone_into(&mut self.emitted_text);
            }
        } else if !rest.is_empty() {
            self.emitted_text.push_str(rest);
            deltas.push(Delta::Reasoning(rest.to_owned()));
        }
        let proof = told.item["id"].as_str().map(|id| Proof::Encrypted {
            id: id.to_owned(),
            content: told.item["encrypted_content"].as_str().map(str::to_owned),
        });
        let text = self.emitted_text.clone();
        deltas.push(Delta::ReasoningDone(Reasoning {
            text,
            proof,
            ..Reasoning::default()
        }));
        deltas
    }

    /// Returns the call, unless the limit cut it short.
    fn finish_call(&mut self, told: &ItemSnapshot<'_>) -> Option<Delta> {
        let text = |name: &str| told.item[name].as_str().filter(|text| !text.is_empty());
        if let Some(name) = text("name") {
            name.clone_into(&mut self.call.name);
        }
        if self.call.id.is_empty() {
            text("id").unwrap_or_default().clone_into(&mut self.call.id);
        }
        if !told.arguments.is_empty() {
            self.complete_arguments = Some(told.arguments.clone());
        }
        // If pieces may have come before the resumption, only the end shows that there are no arguments.
        if !self.started_before_resume || !told.item["arguments"].is_null() {
            self.complete_arguments.get_or_insert_default();
        }
        (told.item["status"] != "incomplete").then(|| self.complete_call())?
    }

    /// Returns the call, if all of its arguments came in one way or another.
    pub(super) fn complete_call(&mut self) -> Option<Delta> {
        let whole = self.complete_arguments.as_deref();
        let ways = [
            whole.unwrap_or_default(),
            &self.call.arguments,
            &self.initial_arguments,
        ];
        let arguments = match ways.iter().all(|way| way.is_empty()) {
            true => whole?.to_owned(),
            false => ways
                .into_iter()
                .find(|way| tool_arguments::is_complete_json(way))?
                .to_owned(),
        };
        self.complete_arguments = Some(arguments.clone());
        let call = ToolCall {
            arguments,
            ..self.call.clone()
        };
        self.is_emitted = !call.name.is_empty();
        self.is_emitted.then_some(Delta::ToolCall(call))
    }
}

impl FinishedItem {
    pub(super) fn from_deltas(deltas: Vec<Delta>) -> Self {
        let is_call = |delta: &Delta| matches!(delta, Delta::ToolCall(_));
        Self {
            is_refusal: false,
            is_call: deltas.iter().any(is_call),
            deltas,
        }
    }
}

impl<'a> ItemSnapshot<'a> {
    pub(super) fn from_item(item: &'a Value) -> Self {
        let mut told = Self {
            item,
            text: String::new(),
            arguments: tool_arguments::from_value(&item["arguments"]),
        };
        told.text = match item["type"].as_str() {
            Some("message") => told.part_texts("content").collect(),
            _ => {
                let joined = |name: &str| told.part_texts(name).collect::<Vec<_>>().join("\n\n");
                let summary = joined("summary");
                match summary.is_empty() {
                    true => joined("content"),
                    false => summary,
                }
            }
        };
        told
    }

    fn list(&self, name: &str) -> &'a [Value] {
        self.item[name].as_array().map_or(&[], Vec::as_slice)
    }

    /// Returns the texts of its parts, those that are refusals included.
    fn part_texts(&self, name: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        let text = |part: &'a Value| {
            let text = part["text"].as_str().or_else(|| part["refusal"].as_str());
            text.unwrap_or_default()
        };
        self.list(name).iter().map(text)
    }
}
