//! Answers that think, stop oddly or break off, and what a consumer shows of them.

use crate::support::{Call, Item, Listener, START, World};
use outlast_agent::session::Setup;
use outlast_dialect::{Delta, Message, Part, Tool};
use outlast_kernel::decision::AfterContent;
use outlast_kernel::event::{Body, Event, Proof, Reasoning};
use outlast_kernel::failure::{Failure, IoKind};
use outlast_kernel::models::{ContinueBy, Traits};
use std::collections::BTreeMap;

/// A piece of reasoning.
pub(crate) fn thinks(text: &str) -> Item {
    Ok(Delta::Reasoning(text.to_owned()))
}

/// The end of reasoning, with what proves it.
pub(crate) fn thought(text: &str) -> Item {
    let signature = "signed".to_owned();
    Ok(Delta::ReasoningDone(Reasoning {
        text: text.to_owned(),
        proof: Some(Proof::Signature { signature }),
        ..Reasoning::default()
    }))
}

pub(crate) fn lost() -> Failure {
    Failure::thrown("scripted", "the connection was lost", START).with_io(IoKind::Reset)
}

/// Says these things, and then the connection is lost.
pub(crate) fn breaks(mut items: Vec<Item>) -> Call {
    items.push(Err(Box::new(lost())));
    items.into()
}

/// A session in which that becomes of answers that broke off.
pub(crate) fn after_content(world: &World, after_content: AfterContent) -> Setup {
    Setup {
        after_content,
        ..world.setup()
    }
}

/// A session that goes on with answers that broke off, in that way.
pub(crate) fn continues(world: &World, continues_by: ContinueBy) -> Setup {
    Setup {
        traits: Traits {
            continues_by,
            ..Traits::default()
        },
        ..after_content(world, AfterContent::Continue)
    }
}

/// A session that offers a tool, and takes back what does not count.
pub(crate) fn with_tools(world: &World) -> Setup {
    Setup {
        offered: vec![Tool {
            name: "read".to_owned(),
            description: "Reads.".to_owned(),
            parameters: serde_json::json!({}),
        }],
        ..after_content(world, AfterContent::Retract)
    }
}

/// The text that a consumer shows that drops what was retracted; a `|` stands where an answer goes on.
pub(crate) fn shown(heard: &Listener) -> String {
    let mut attempts: BTreeMap<(String, u32), String> = BTreeMap::new();
    for event in heard.events() {
        let number = number(&event);
        let turn = event.turn_id;
        match event.body {
            Body::TextDelta { text } => {
                let said = attempts.entry((turn, number)).or_default();
                said.push_str(&text);
            }
            Body::Seam { .. } => attempts.entry((turn, number)).or_default().push('|'),
            Body::Retracted { attempt } => drop(attempts.remove(&(turn, attempt))),
            _ => {}
        }
    }
    attempts.into_values().collect()
}

/// The number of an event's attempt; 0 before the first one.
pub(crate) fn number(event: &Event) -> u32 {
    let id = event.attempt_id.as_deref();
    let number = id.and_then(|id| {
        id.strip_prefix(&format!("{}.", event.turn_id))?
            .parse()
            .ok()
    });
    number.unwrap_or_default()
}

/// Every call has one result, in the message that follows it, and no result is without its call.
pub(crate) fn assert_well_formed(messages: &[Message]) {
    let mut wanted: Vec<&str> = Vec::new();
    for message in messages {
        assert!(!message.parts.is_empty(), "{messages:?}");
        let results = message.parts.iter().filter_map(|part| match part {
            Part::ToolResult(result) => Some(result.id.as_str()),
            _ => None,
        });
        assert_eq!(results.collect::<Vec<_>>(), wanted, "{messages:?}");
        wanted = message.tool_calls().map(|call| call.id.as_str()).collect();
    }
    assert_eq!(wanted, Vec::<&str>::new(), "{messages:?}");
}
