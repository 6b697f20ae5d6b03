//! What a run is given.

use super::definition::Pipeline;
use std::collections::BTreeMap;

/// What is wrong with what a run is to be given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The pipeline does not know it.
    #[error("the pipeline has no input `{name}`; {}", match known.is_empty() {
        true => "it has none".to_owned(),
        false => format!("there are {}", known.join(", ")),
    })]
    Unknown {
        /// Its name.
        name: String,
        /// Those that it knows.
        known: Vec<String>,
    },
    /// It must be given.
    #[error("the pipeline needs the input `{name}`")]
    Missing {
        /// Its name.
        name: String,
    },
}

/// All that a run is given: what was said, else what the pipeline says.
pub fn given(
    pipeline: &Pipeline,
    said: BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, Error> {
    let is_unknown = |name: &&String| !pipeline.inputs.contains_key(*name);
    if let Some(name) = said.keys().find(is_unknown) {
        return Err(Error::Unknown {
            name: super::file::shown(name),
            known: pipeline.inputs.keys().cloned().collect(),
        });
    }
    let mut given = said;
    for (name, input) in &pipeline.inputs {
        match &input.default {
            _ if given.contains_key(name) => {}
            Some(default) => drop(given.insert(name.clone(), default.clone())),
            None => return Err(Error::Missing { name: name.clone() }),
        }
    }
    Ok(given)
}
