//! One mapping of a file: what stands in it, by name and as what it should be.
//!
//! Invariant: whoever asks for a field gets it as it should be or not at all, and in the latter case it is noted why.

use super::fault_log::FaultLog;
use super::names::{self, FieldNames};
use super::tree::{Entry, Node, Value};
use super::{MAX_STEPS, SourceSpan, Spanned, printable};
use std::num::NonZeroU64;

/// A mapping.
pub(super) struct Fields<'a> {
    pub(super) span: SourceSpan,
    pub(super) log: &'a FaultLog<'a>,
    entries: &'a [Entry],
    /// Whether there was a name that may not be there.
    pub(super) has_unknown: bool,
}

/// How long a list may be, and how many names a mapping may have.
const MAX_ITEMS: usize = MAX_STEPS;

fn too_many(what: &str) -> String {
    format!("expected at most {MAX_ITEMS} {what}")
}

/// The names and values of a mapping with free names.
pub(super) fn entries<'a>(node: &'a Node, what: &str, log: &FaultLog<'_>) -> &'a [Entry] {
    match &node.value {
        Value::Map(entries) if entries.len() <= MAX_ITEMS => entries,
        Value::Map(_) => {
            log.fault(node.span, too_many("names"));
            &[]
        }
        _ => {
            let message = format!("expected {what}, found {}", node.kind());
            log.fault(node.span, message);
            &[]
        }
    }
}

/// The items of a list.
pub(super) fn items<'a>(node: &'a Node, what: &str, log: &FaultLog<'_>) -> &'a [Node] {
    match &node.value {
        Value::List(list) if list.len() <= MAX_ITEMS => list,
        Value::List(_) => {
            log.fault(node.span, too_many(what));
            &[]
        }
        _ => {
            let message = format!("expected a list of {what}, found {}", node.kind());
            log.fault(node.span, message);
            &[]
        }
    }
}

/// A text.
pub(super) fn text(node: &Node, log: &FaultLog<'_>) -> Option<Spanned<String>> {
    let hint = match &node.value {
        Value::Text(text) if text.contains('\0') => {
            log.fault(node.span, "a text may not have a zero byte in it");
            return None;
        }
        Value::Text(text) => {
            return Some(Spanned {
                value: text.clone(),
                span: node.span,
            });
        }
        Value::Number(..) | Value::Bool(..) => "; put it in quotes",
        Value::Null | Value::List(_) | Value::Map(_) => "",
    };
    log.fault(
        node.span,
        format!("expected a text, found {}{hint}", node.kind()),
    );
    None
}

/// A text, or a number or truth value as it is written.
pub(super) fn scalar(node: &Node, log: &FaultLog<'_>) -> Option<Spanned<String>> {
    match node.scalar() {
        Some(written) if !written.contains('\0') => Some(Spanned {
            value: written.to_owned(),
            span: node.span,
        }),
        _ => text(node, log),
    }
}

/// A value that is written as text, or the sentence about what was expected.
pub(super) fn parsed<T>(
    node: &Node,
    log: &FaultLog<'_>,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Option<Spanned<T>> {
    let written = scalar(node, log)?;
    match parse(&written.value) {
        Ok(value) => Some(Spanned {
            value,
            span: node.span,
        }),
        Err(message) => {
            log.fault(node.span, message);
            None
        }
    }
}

impl<'a> Fields<'a> {
    /// The fields of a mapping; names that may not be there are noted.
    pub(super) fn new(node: &'a Node, names: &FieldNames, log: &'a FaultLog<'a>) -> Option<Self> {
        let what = format!("{} with {}", names.owner, names.allowed.join(", "));
        let mut fields = Self::unchecked(node, &what, log)?;
        fields.has_unknown = fields.reject_unknown(names.allowed, names.owner);
        Some(fields)
    }

    /// The fields of a mapping, whatever their names.
    pub(super) fn unchecked(node: &'a Node, what: &str, log: &'a FaultLog<'a>) -> Option<Self> {
        let Value::Map(entries) = &node.value else {
            let message = format!("expected {what}, found {}", node.kind());
            log.fault(node.span, message);
            return None;
        };
        if entries.len() > MAX_ITEMS {
            log.fault(node.span, too_many("names"));
            return None;
        }
        Some(Self {
            span: node.span,
            log,
            entries,
            has_unknown: false,
        })
    }

    /// Notes every name that is none of those; answers whether there was one.
    pub(super) fn reject_unknown(&self, known: &[&str], whose: &str) -> bool {
        let mut found = false;
        for entry in self.entries {
            if !known.contains(&entry.name.as_str()) {
                let message = names::unknown_field(&entry.name, whose, known);
                self.log.fault(entry.span, message);
                found = true;
            }
        }
        found
    }

    /// What stands under a name.
    pub(super) fn get(&self, name: &str) -> Option<&'a Node> {
        self.entry(name).map(|entry| &entry.value)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.entry(name).is_some()
    }

    /// Where a name stands; where the mapping begins if it is not there.
    pub(super) fn span_of(&self, name: &str) -> SourceSpan {
        self.entry(name).map_or(self.span, |entry| entry.span)
    }

    fn entry(&self, name: &str) -> Option<&'a Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// What stands under one of two names that mean the same.
    pub(super) fn either(&self, one: &'static str, other: &'static str) -> Option<&'static str> {
        match (self.has(one), self.has(other)) {
            (true, true) => {
                let message = format!("`{one}` and `{other}` mean the same; write one of them");
                self.log.fault(self.span_of(other), message);
                Some(one)
            }
            (true, false) => Some(one),
            (false, true) => Some(other),
            (false, false) => None,
        }
    }

    pub(super) fn text(&self, name: &str) -> Option<Spanned<String>> {
        text(self.get(name)?, self.log)
    }

    /// A text with something in it.
    pub(super) fn non_empty_text(&self, name: &str) -> Option<Spanned<String>> {
        let text = self.text(name)?;
        if text.value.trim().is_empty() {
            self.log.fault(text.span, format!("`{name}` is empty"));
            return None;
        }
        Some(text)
    }

    /// A text with something in it, which must be there.
    pub(super) fn required_text(&self, name: &str, whose: &str) -> Option<Spanned<String>> {
        self.require(name, whose)?;
        self.non_empty_text(name)
    }

    /// Notes that something is missing.
    pub(super) fn require(&self, name: &str, whose: &str) -> Option<&'a Node> {
        let node = self.get(name);
        if node.is_none() {
            self.log.fault(self.span, format!("{whose} needs `{name}`"));
        }
        node
    }

    pub(super) fn flag(&self, name: &str) -> Option<Spanned<bool>> {
        let node = self.get(name)?;
        if let Value::Bool(value, _) = node.value {
            return Some(Spanned {
                value,
                span: node.span,
            });
        }
        let found = node.kind();
        self.log
            .fault(node.span, format!("expected true or false, found {found}"));
        None
    }

    /// A whole number of at least 1.
    pub(super) fn count<T: TryFrom<NonZeroU64>>(&self, name: &str) -> Option<Spanned<T>> {
        let node = self.get(name)?;
        let number = match &node.value {
            Value::Number(number, _) => number.as_u64().and_then(NonZeroU64::new),
            _ => None,
        };
        let Some(value) = number.and_then(|number| T::try_from(number).ok()) else {
            let found = node.kind();
            self.log.fault(
                node.span,
                format!("expected a whole number of at least 1, found {found}"),
            );
            return None;
        };
        Some(Spanned {
            value,
            span: node.span,
        })
    }

    pub(super) fn parsed<T>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Spanned<T>> {
        parsed(self.get(name)?, self.log, parse)
    }

    /// As [`Self::parsed`], of a text only.
    pub(super) fn parsed_text<T>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Spanned<T>> {
        let node = self.get(name)?;
        text(node, self.log)?;
        parsed(node, self.log, parse)
    }

    /// One word of a list.
    pub(super) fn one_of(
        &self,
        name: &str,
        words: &[&'static str],
    ) -> Option<Spanned<&'static str>> {
        let word = self.text(name)?;
        match words.iter().find(|other| **other == word.value) {
            Some(found) => Some(Spanned {
                value: *found,
                span: word.span,
            }),
            None => {
                self.log
                    .fault(word.span, names::not_one_of(&word.value, words));
                None
            }
        }
    }

    /// A list of texts; nothing when it is not there.
    pub(super) fn texts(&self, name: &str, what: &str) -> Vec<Spanned<String>> {
        let Some(node) = self.get(name) else {
            return Vec::new();
        };
        let list = items(node, what, self.log).iter();
        list.filter_map(|item| text(item, self.log)).collect()
    }

    /// What stands under names that are free, each once.
    pub(super) fn free_entries(&self, name: &str, what: &str) -> &'a [Entry] {
        self.get(name)
            .map_or(&[], |node| entries(node, what, self.log))
    }

    /// Notes a field that means nothing beside the others.
    pub(super) fn reject(&self, name: &str, why: &str) {
        if self.has(name) {
            let message = format!("`{}` has no meaning here: {why}", printable(name));
            self.log.fault(self.span_of(name), message);
        }
    }
}
