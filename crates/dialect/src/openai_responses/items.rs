//! Tracks the items of a completion and matches events to them.
//!
//! An item is identified by its id or its call's, and only then by its index: some servers omit the indexes, some
//! number all items alike, and some give an item another id in each event. So the items of a final list are also
//! matched by their content.
//! Invariant: the content of an item is emitted once.

use super::item::{FinishedItem, Item, ItemSnapshot};
use crate::tool_arguments::RunawayOutput;
use serde_json::Value;
use std::collections::HashMap;

/// The maximum number of items in one completion; more are an error of the model.
const MAX_ITEMS: usize = 1000;

#[derive(Debug, Default)]
pub(super) struct Items {
    /// Only the rest of the completion is read: an item without a start event began before the resumption.
    is_resumed: bool,
    items: Vec<Item>,
    by_id: HashMap<String, usize>,
    by_index: HashMap<u64, usize>,
}

/// The keys by which an event names its item.
struct ItemKey<'a> {
    id: &'a str,
    call_id: &'a str,
    kind: &'a str,
    index: Option<u64>,
}

impl Items {
    /// Creates the items of the rest of a completion.
    pub(super) fn resumed() -> Self {
        Self {
            is_resumed: true,
            ..Self::default()
        }
    }

    /// Returns the item of an event about a part of it.
    pub(super) fn for_event(
        &mut self,
        event: &Value,
        kind: &str,
    ) -> Result<&mut Item, RunawayOutput> {
        let key = ItemKey {
            id: text(&event["item_id"]),
            call_id: text(&event["call_id"]),
            kind,
            index: event["output_index"].as_u64(),
        };
        let known = self.find(&key);
        self.get_or_insert(known, &key)
    }

    /// Begins an item. The same index with another id is another item.
    pub(super) fn start(&mut self, item: &Value, index: Option<u64>) -> Result<(), RunawayOutput> {
        let key = ItemKey::from_item(item, index);
        let known = self.find(&key).filter(|place| {
            let known = &self.items[*place];
            !known.is_done && (known.id.is_empty() || known.id == key.id)
        });
        let known = self.get_or_insert(known, &key)?;
        known.start(item);
        Ok(())
    }

    /// Completes an item.
    pub(super) fn for_finished(
        &mut self,
        item: &Value,
        index: Option<u64>,
    ) -> Result<&mut Item, RunawayOutput> {
        let key = ItemKey::from_item(item, index);
        let known = self.find(&key);
        let known = known.or_else(|| self.find_identical(item, &key, |known| !known.is_done));
        self.get_or_insert(known, &key)
    }

    /// Completes an item in the final list. An item without earlier events was complete before the rest began.
    pub(super) fn finish_listed(
        &mut self,
        item: &Value,
        place: u64,
    ) -> Result<FinishedItem, RunawayOutput> {
        let key = ItemKey::from_item(item, Some(place));
        let is_free = |place: &usize| {
            key.is_compatible(&self.items[*place]) && !self.items[*place].is_in_output_list
        };
        let is_silent = |place: &usize| self.items[*place].is_empty();
        let by_id = self.by_id(&key).filter(is_free);
        let by_index = || self.by_index.get(&place).copied().filter(is_free);
        let known = by_id
            .or_else(|| self.find_identical(item, &key, |known| !known.is_in_output_list))
            .or_else(by_index)
            .or_else(|| self.last_open(&key).filter(is_free).filter(is_silent));
        let was_complete = self.is_resumed && known.is_none();
        let known = self.get_or_insert(known, &key)?;
        known.is_in_output_list = true;
        let mut end = known.finish(item);
        if was_complete {
            end.deltas.clear();
        }
        Ok(end)
    }

    /// Completes the calls whose end was not reported.
    pub(super) fn finish_open_calls(&mut self) -> FinishedItem {
        let is_open = |item: &&mut Item| !item.is_done && item.kind == "function_call";
        let open = self.items.iter_mut().filter(is_open);
        FinishedItem::from_deltas(open.filter_map(|item| item.complete_call()).collect())
    }

    /// Returns the names of the calls that began and were never complete.
    pub(super) fn incomplete_calls(&self) -> impl Iterator<Item = &str> {
        let calls = self
            .items
            .iter()
            .filter(|item| item.kind == "function_call");
        let is_told = |name: &str| {
            self.items
                .iter()
                .any(|item| item.is_emitted && item.call.name == name)
        };
        // A call without arguments beside one that was emitted is the same one, by another id.
        let is_cut =
            move |item: &&Item| !(item.is_emitted || item.is_empty() && is_told(&item.call.name));
        calls.filter(is_cut).map(|item| item.call.name.as_str())
    }

    fn find(&self, key: &ItemKey<'_>) -> Option<usize> {
        let fits = |place: &usize| key.is_compatible(&self.items[*place]);
        let is_open = |place: &usize| !self.items[*place].is_done;
        let by_id = self.by_id(key).filter(fits);
        match key.index {
            _ if by_id.is_some() => by_id,
            Some(index) => self
                .by_index
                .get(&index)
                .copied()
                .filter(fits)
                .filter(is_open),
            None => self.last_open(key),
        }
    }

    fn by_id(&self, key: &ItemKey<'_>) -> Option<usize> {
        let ids = [key.call_id, key.id].into_iter();
        ids.filter(|id| !id.is_empty())
            .find_map(|id| self.by_id.get(id).copied())
    }

    /// Returns the last item that has not ended, if the event has no other key.
    fn last_open(&self, key: &ItemKey<'_>) -> Option<usize> {
        self.items.iter().rposition(|item| {
            let is_nameless = item.id.is_empty() || key.id.is_empty();
            !item.is_done && is_nameless && key.is_compatible(item)
        })
    }

    /// Returns an item that has already emitted the same content.
    fn find_identical(
        &self,
        item: &Value,
        key: &ItemKey<'_>,
        is_free: fn(&Item) -> bool,
    ) -> Option<usize> {
        let told = ItemSnapshot::from_item(item);
        self.items.iter().position(|known| {
            is_free(known)
                && known.kind == key.kind
                && key.is_compatible(known)
                && known.matches_snapshot(&told)
        })
    }

    fn get_or_insert(
        &mut self,
        known: Option<usize>,
        key: &ItemKey<'_>,
    ) -> Result<&mut Item, RunawayOutput> {
        let place = known.unwrap_or(self.items.len());
        if place == MAX_ITEMS {
            return Err(RunawayOutput::TooManyParts("items"));
        }
        if known.is_none() {
            self.items.push(Item::new(self.is_resumed));
        }
        for id in [key.id, key.call_id] {
            if !id.is_empty() && self.by_id.get(id) != Some(&place) {
                self.by_id.insert(id.to_owned(), place);
            }
        }
        if let Some(index) = key.index {
            self.by_index.insert(index, place);
        }
        let item = &mut self.items[place];
        for (known, new) in [
            (&mut item.kind, key.kind),
            (&mut item.id, key.id),
            (&mut item.call.id, key.call_id),
        ] {
            if known.is_empty() {
                new.clone_into(known);
            }
        }
        Ok(item)
    }
}

impl ItemKey<'_> {
    fn is_compatible(&self, item: &Item) -> bool {
        let may_be = |known: &str, new: &str| known.is_empty() || new.is_empty() || known == new;
        may_be(&item.kind, self.kind) && may_be(&item.call.id, self.call_id)
    }
}

impl<'a> ItemKey<'a> {
    fn from_item(item: &'a Value, index: Option<u64>) -> Self {
        Self {
            id: text(&item["id"]),
            call_id: text(&item["call_id"]),
            kind: text(&item["type"]),
            index,
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
