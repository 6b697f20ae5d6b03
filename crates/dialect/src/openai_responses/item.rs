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
    whole_arguments: Option<String>,
    /// The arguments at its beginning, for an item without later ones.
    first_arguments: String,
    /// Text or reasoning that was emitted.
    said: String,
    /// The parts that the emitted text belongs to.
    parts: BTreeSet<u64>,
    /// It began before the rest of the completion that is read: some of its whole content was emitted before. Its
    /// pieces bring the rest, and content that is only usable as a whole comes at its end.
    began_before: bool,
    pub(super) is_done: bool,
    /// It is a call, and was emitted.
    pub(super) is_told: bool,
    /// The last event has listed it.
    pub(super) is_listed: bool,
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
    pub(super) fn new(began_before: bool) -> Self {
        Self {
            began_before,
            ..Self::default()
        }
    }

    pub(super) fn begin(&mut self, item: &Value) {
        self.began_before = false;
        item["name"]
            .as_str()
            .unwrap_or_default()
            .clone_into(&mut self.call.name);
        self.first_arguments = tool_arguments::in_field(&item["arguments"]);
    }

    /// Returns the text of a piece of a part, or of a whole part that did not come in pieces.
    pub(super) fn say(&mut self, event: &Value) -> Option<String> {
        let text = |name: &str| event[name].as_str().filter(|text| !text.is_empty());
        let number = |name: &str| event[name].as_u64();
        let part = number("content_index").or_else(|| number("summary_index"));
        let part = part.unwrap_or_default();
        let is_new = |text: &&str| {
            !self.is_done
                && !self.began_before
                && !self.parts.contains(&part)
                && !self.said.ends_with(*text)
        };
        let whole = text("text").or_else(|| text("refusal"));
        let said = text("delta").or_else(|| whole.filter(is_new))?;
        self.parts.insert(part);
        self.said.push_str(said);
        Some(said.to_owned())
    }

    /// Returns the break before the next paragraph: summaries come in paragraphs.
    pub(super) fn next_paragraph(&mut self, event: &Value) -> Option<String> {
        let is_later = event["summary_index"].as_u64() > Some(0);
        let follows = !self.said.is_empty() || (self.began_before && is_later);
        let gap = follows.then(|| "\n\n".to_owned())?;
        self.said.push_str(&gap);
        Some(gap)
    }

    /// Adds a piece of the arguments, or all of them.
    pub(super) fn add_arguments(&mut self, event: &Value) -> Result<(), RunawayOutput> {
        if let Some(piece) = event["delta"].as_str().filter(|_| !self.began_before) {
            tool_arguments::add(&mut self.call, piece)?;
        }
        if !event["arguments"].is_null() {
            self.whole_arguments = Some(tool_arguments::in_field(&event["arguments"]));
        }
        if let Some(name) = event["name"].as_str().filter(|name| !name.is_empty()) {
            name.clone_into(&mut self.call.name);
        }
        Ok(())
    }

    /// Returns whether no content of this item was emitted yet.
    pub(super) fn is_silent(&self) -> bool {
        self.said.is_empty() && self.call.arguments.is_empty() && self.whole_arguments.is_none()
    }

    /// Returns whether the emitted content of this item equals the snapshot.
    pub(super) fn matches_snapshot(&self, told: &ItemSnapshot<'_>) -> bool {
        if self.kind != "function_call" {
            return !self.said.is_empty() && told.text.starts_with(&self.said);
        }
        let arguments = self.whole_arguments.as_ref();
        told.item["name"] == self.call.name.as_str()
            && *arguments.unwrap_or(&self.call.arguments) == told.arguments
    }

    /// Completes the item.
    pub(super) fn end(&mut self, item: &Value) -> FinishedItem {
        if std::mem::replace(&mut self.is_done, true) {
            return FinishedItem::default();
        }
        let told = ItemSnapshot::of(item);
        match item["type"].as_str().unwrap_or_default() {
            "message" => self.finish_message(&told),
            "reasoning" => FinishedItem::of(self.end_reasoning(&told)),
            "function_call" => FinishedItem::of(self.finish_call(&told).into_iter().collect()),
            _ => FinishedItem::default(),
        }
    }

    fn finish_message(&mut self, told: &ItemSnapshot<'_>) -> FinishedItem {
        let rest = match told.text.strip_prefix(&self.said) {
            _ if self.began_before => String::new(),
            Some(rest) => rest.to_owned(),
            None => {
                let unsaid = (0..).zip(told.parts("content"));
                let unsaid = unsaid.filter(|(part, _)| !self.parts.contains(part));
                unsaid.map(|(_, text)| text).collect()
            }
        };
        self.said.push_str(&rest);
        let is_refusal = |part: &Value| part["refusal"].is_string();
        let said = Some(Delta::Text(rest)).filter(Delta::is_content);
        FinishedItem {
            deltas: said.into_iter().collect(),
            is_refusal: told.list("content").iter().any(is_refusal),
            is_call: false,
        }
    }

    fn end_reasoning(&mut self, told: &ItemSnapshot<'_>) -> Vec<Delta> {
        let mut deltas = Vec::new();
        let rest = told.text.strip_prefix(&self.said).unwrap_or_default();
        if self.began_before {
            if !told.text.is_empty() {
                told.text.clone_into(&mut self.said);
            }
        } else if !rest.is_empty() {
            self.said.push_str(rest);
            deltas.push(Delta::Reasoning(rest.to_owned()));
        }
        let proof = told.item["id"].as_str().map(|id| Proof::Encrypted {
            id: id.to_owned(),
            content: told.item["encrypted_content"].as_str().map(str::to_owned),
        });
        let text = self.said.clone();
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
            self.whole_arguments = Some(told.arguments.clone());
        }
        // If pieces may have come before the resumption, only the end shows that there are no arguments.
        if !self.began_before || !told.item["arguments"].is_null() {
            self.whole_arguments.get_or_insert_default();
        }
        (told.item["status"] != "incomplete").then(|| self.complete_call())?
    }

    /// Returns the call, if all of its arguments came in one way or another.
    pub(super) fn complete_call(&mut self) -> Option<Delta> {
        let whole = self.whole_arguments.as_deref();
        let ways = [
            whole.unwrap_or_default(),
            &self.call.arguments,
            &self.first_arguments,
        ];
        let arguments = match ways.iter().all(|way| way.is_empty()) {
            true => whole?.to_owned(),
            false => ways
                .into_iter()
                .find(|way| tool_arguments::are_whole(way))?
                .to_owned(),
        };
        self.whole_arguments = Some(arguments.clone());
        let call = ToolCall {
            arguments,
            ..self.call.clone()
        };
        self.is_told = !call.name.is_empty();
        self.is_told.then_some(Delta::ToolCall(call))
    }
}

impl FinishedItem {
    pub(super) fn of(deltas: Vec<Delta>) -> Self {
        let is_call = |delta: &Delta| matches!(delta, Delta::ToolCall(_));
        Self {
            is_refusal: false,
            is_call: deltas.iter().any(is_call),
            deltas,
        }
    }
}

impl<'a> ItemSnapshot<'a> {
    pub(super) fn of(item: &'a Value) -> Self {
        let mut told = Self {
            item,
            text: String::new(),
            arguments: tool_arguments::in_field(&item["arguments"]),
        };
        told.text = match item["type"].as_str() {
            Some("message") => told.parts("content").collect(),
            _ => {
                let joined = |name: &str| told.parts(name).collect::<Vec<_>>().join("\n\n");
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
    fn parts(&self, name: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        let text = |part: &'a Value| {
            let text = part["text"].as_str().or_else(|| part["refusal"].as_str());
            text.unwrap_or_default()
        };
        self.list(name).iter().map(text)
    }
}
