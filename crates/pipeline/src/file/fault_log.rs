//! What is wrong with a file, as it is found.
//!
//! Invariant: bounded, whatever the file. The same thing at the same place is noted once: an alias repeats it.

use super::{Fault, Faults, SourceSpan, printable};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::Path;

/// How many faults are kept; the rest is counted.
const MAX_FAULTS: usize = 100;

/// What ends a line in YAML, alone or both together.
const LINE_BREAKS: [char; 2] = ['\n', '\r'];

/// The faults of a file, and its text to find places in.
pub(super) struct FaultLog<'a> {
    source: &'a str,
    faults: RefCell<BTreeSet<Fault>>,
    left_out: Cell<usize>,
}

impl<'a> FaultLog<'a> {
    pub(super) fn new(source: &'a str) -> Self {
        Self {
            source,
            faults: RefCell::default(),
            left_out: Cell::new(0),
        }
    }

    /// Notes a fault.
    pub(super) fn fault(&self, place: SourceSpan, message: impl Into<String>) {
        let fault = Fault {
            line: place.line,
            column: place.column,
            message: message.into(),
        };
        let mut faults = self.faults.borrow_mut();
        if faults.contains(&fault) {
            return;
        }
        if faults.len() >= MAX_FAULTS {
            self.left_out.set(self.left_out.get() + 1);
            return;
        }
        faults.insert(fault);
    }

    /// Notes that two fields that mean the same are both there.
    pub(super) fn same_meaning(&self, one: &str, other: &str, place: SourceSpan) {
        let message = format!("`{one}` and `{other}` mean the same; write one of them");
        self.fault(place, message);
    }

    /// Notes the fields that are there and mean nothing beside the others.
    pub(super) fn reject(&self, fields: &[(&str, Option<SourceSpan>)], why: &str) {
        for (name, place) in fields {
            if let Some(place) = place {
                self.fault(*place, format!("`{name}` has no meaning here: {why}"));
            }
        }
    }

    /// How a value is written.
    pub(super) fn written(&self, place: SourceSpan) -> &'a str {
        place.written(self.source)
    }

    /// Whether further faults are only counted, so that nobody need look for words for them.
    pub(super) fn is_full(&self) -> bool {
        self.faults.borrow().len() >= MAX_FAULTS
    }

    /// Where a piece of a text stands; `place`, where the text begins, when it is written otherwise there.
    pub(super) fn find(&self, piece: &str, place: SourceSpan) -> SourceSpan {
        let rest = self.source.get(place.offset..).unwrap_or_default();
        let Some(found) = rest.find(piece).map(|found| place.offset + found) else {
            return place;
        };
        let before = &self.source[..found];
        let line_start = before.rfind(LINE_BREAKS).map_or(0, |newline| newline + 1);
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX).saturating_add(1);
        SourceSpan {
            line: number(before.matches(LINE_BREAKS).count() - before.matches("\r\n").count()),
            column: number(before[line_start..].chars().count()),
            offset: found,
            len: piece.len(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.faults.borrow().is_empty()
    }

    /// All of them, in the order of the file.
    pub(super) fn into_faults(self, file: &Path) -> Faults {
        Faults {
            file: printable(&file.to_string_lossy()),
            list: self.faults.into_inner().into_iter().collect(),
            left_out: self.left_out.get(),
        }
    }
}
