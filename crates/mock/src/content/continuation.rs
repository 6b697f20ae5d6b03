//! Continuations of interrupted completions.

use outlast_dialect::Delta;

/// Returns the rest of a completion, given the parts already sent. A part that is no prefix of the completion is
/// ignored.
pub(super) fn remaining_deltas(mut deltas: Vec<Delta>, begun: &[String]) -> Vec<Delta> {
    for said in begun {
        let text: String = deltas.iter().filter_map(text).collect();
        let said = match text.starts_with(said.as_str()) {
            true => said.len(),
            // A client may have added or removed whitespace at the end.
            false if text.starts_with(said.trim_end()) => said.trim_end().len(),
            false => 0,
        };
        deltas = skip_text(deltas, said);
    }
    deltas
}

fn text(delta: &Delta) -> Option<&str> {
    match delta {
        Delta::Text(text) => Some(text),
        _ => None,
    }
}

/// Returns the deltas without the first `bytes` bytes of text.
fn skip_text(deltas: Vec<Delta>, mut bytes: usize) -> Vec<Delta> {
    let shortened = |delta| match delta {
        Delta::Text(text) => {
            let (_, rest) = text.split_at(bytes.min(text.len()));
            bytes -= text.len() - rest.len();
            (!rest.is_empty()).then(|| Delta::Text(rest.to_owned()))
        }
        other => Some(other),
    };
    deltas.into_iter().filter_map(shortened).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::text_deltas;

    fn said_after(begun: &[&str]) -> String {
        let begun: Vec<String> = begun.iter().map(|text| (*text).to_owned()).collect();
        let rest = remaining_deltas(text_deltas("Hello from the älteste provider."), &begun);
        rest.iter().filter_map(text).collect()
    }

    #[test]
    fn continuation_sends_only_remaining_text() {
        let table: [(&[&str], &str); 10] = [
            (&["Hello from"], " the älteste provider."),
            (&["Hello from "], "the älteste provider."),
            (&["Hello from\n"], " the älteste provider."),
            (&["Hello from the ä"], "lteste provider."),
            (&["Hello", " from the "], "älteste provider."),
            (&["Hello ", "from the "], "älteste provider."),
            (&["Good bye"], "Hello from the älteste provider."),
            (&["Good bye", "Hello "], "from the älteste provider."),
            (&["Hello from the älteste provider."], ""),
            (&[], "Hello from the älteste provider."),
        ];
        for (begun, expected) in table {
            assert_eq!(said_after(begun), expected, "{begun:?}");
        }
    }

    #[test]
    fn continuation_repeats_non_text_deltas() {
        let thought = Delta::Reasoning("Hm.".to_owned());
        let deltas = vec![thought.clone(), Delta::Text("Hello".to_owned())];
        assert_eq!(remaining_deltas(deltas, &["Hello".to_owned()]), [thought]);
    }
}
