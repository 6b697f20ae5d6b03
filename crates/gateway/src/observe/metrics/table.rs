//! Series that are found by number instead of by hashing their labels.
//!
//! A series is created when it is first counted, so that an event that never happened takes no line; after that,
//! finding it is one load. Invariant: the values of each label are known at the start, so the number of series is
//! bounded.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::{Metric, Registry};
use std::sync::{Arc, OnceLock};

/// A label and all its possible values. Clones share the values.
#[derive(Clone, Debug)]
pub(super) struct LabelValues {
    label: &'static str,
    /// The values; the last one stands for everything else.
    values: Arc<[&'static str]>,
}

impl LabelValues {
    pub(super) fn new(
        label: &'static str,
        words: impl IntoIterator<Item = &'static str>,
        other: &'static str,
    ) -> Self {
        let mut all: Vec<_> = words.into_iter().filter(|word| *word != other).collect();
        all.push(other);
        let values = all.into();
        Self { label, values }
    }

    /// Returns the number of that value, or of the one for everything else.
    pub(super) fn index_of(&self, word: &str) -> usize {
        let last = self.values.len() - 1;
        let found = self.values.iter().position(|known| *known == word);
        found.unwrap_or(last)
    }
}

type Labels<const N: usize> = [(&'static str, &'static str); N];

/// The series of one metric with `N` labels.
pub(super) struct SeriesTable<const N: usize, M> {
    labels: [LabelValues; N],
    family: Family<Labels<N>, M>,
    cells: Box<[OnceLock<M>]>,
}

impl<const N: usize, M: Clone> SeriesTable<N, M> {
    pub(super) fn new(labels: [&LabelValues; N], make: fn() -> M) -> Self {
        let labels = labels.map(LabelValues::clone);
        let number = labels.iter().map(|words| words.values.len()).product();
        Self {
            labels,
            family: Family::new_with_constructor(make),
            cells: std::iter::repeat_with(OnceLock::new).take(number).collect(),
        }
    }

    /// Returns the series at that place: for each label the number of its value.
    pub(super) fn series(&self, place: [usize; N]) -> &M {
        let words = |at: usize| &self.labels[at].values;
        let cell = (0..N).fold(0, |cell, at| cell * words(at).len() + place[at]);
        self.cells[cell].get_or_init(|| {
            let label = |at: usize| (self.labels[at].label, words(at)[place[at]]);
            self.family.get_or_create_owned(&std::array::from_fn(label))
        })
    }
}

impl<const N: usize, M> SeriesTable<N, M>
where
    Family<Labels<N>, M>: Metric + Clone,
{
    pub(super) fn register(&self, registry: &mut Registry, name: &str, help: &str) {
        registry.register(name, help, self.family.clone());
    }
}

impl<const N: usize> SeriesTable<N, Counter> {
    /// Returns the sum of all series whose last label has a wanted value, by its number.
    pub(super) fn sum(&self, wanted: impl Fn(usize) -> bool) -> u64 {
        let last = self.labels.last().map_or(1, |words| words.values.len());
        let all = self.cells.iter().enumerate();
        let chosen = all.filter(|(cell, _)| wanted(cell % last));
        chosen.filter_map(|(_, cell)| Some(cell.get()?.get())).sum()
    }
}
