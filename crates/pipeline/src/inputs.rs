//! The inputs of a run.

use super::definition::Pipeline;
use std::collections::BTreeMap;

/// The error of invalid inputs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The pipeline has no such input.
    #[error("the pipeline has no input `{name}`; {}", match known.is_empty() {
        true => "it has none".to_owned(),
        false => format!("there are {}", known.join(", ")),
    })]
    Unknown {
        /// The given name.
        name: String,
        /// The names of the pipeline's inputs.
        known: Vec<String>,
    },
    /// A required input is missing.
    #[error("the pipeline needs the input `{name}`")]
    Missing {
        /// The name of the input.
        name: String,
    },
}

/// Returns all inputs of a run: the given values, with the pipeline's defaults for the others.
pub fn resolve(
    pipeline: &Pipeline,
    said: BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, Error> {
    let is_unknown = |name: &&String| !pipeline.inputs.contains_key(*name);
    if let Some(name) = said.keys().find(is_unknown) {
        return Err(Error::Unknown {
            name: super::file::printable(name),
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
