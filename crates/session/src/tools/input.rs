//! Parses a call's arguments, from the model's text to a tool's own type.
//!
//! Invariant: an error names the field, so that the model can correct it.

use super::Context;
use outlast_engine::tools::Output;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Maximum length of a summary, in characters.
const SUMMARY_LIMIT: usize = 400;

/// Parses the arguments as JSON; empty text is valid, since a tool without arguments may be called with nothing at all.
pub(super) fn parse(text: &str) -> Result<Value, String> {
    if text.trim().is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    let value: Value = serde_json::from_str(text)
        .map_err(|error| format!("its arguments are not valid JSON: {error}"))?;
    if value.is_object() {
        Ok(value)
    } else {
        Err("its arguments must be a JSON object".to_owned())
    }
}

/// Converts the arguments to the tool's own type.
pub(super) fn deserialize<T: DeserializeOwned>(arguments: &Value) -> Result<T, String> {
    serde_path_to_error::deserialize(arguments).map_err(|error| {
        let field = error.path().to_string();
        let wrong = error.into_inner();
        // The message itself names a missing field, and there is no path.
        if field == "." {
            format!("wrong arguments: {wrong}")
        } else {
            format!("wrong argument `{field}`: {wrong}")
        }
    })
}

/// Runs the tool's work, which may block on the file system, on a thread of its own.
pub(super) async fn run_blocking<T: DeserializeOwned + Send + 'static>(
    arguments: Value,
    context: &Context,
    work: fn(&T, &Context) -> Result<String, String>,
) -> Output {
    let context = context.clone();
    let work = move || work(&deserialize(&arguments)?, &context);
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(text)) => Output::ok(text),
        Ok(Err(why)) => Output::error(why),
        Err(broke_down) => Output::error(format!("{broke_down}; it may have partly run")),
    }
}

/// Returns one line for a person: no control characters, line ends made visible, and the omitted part counted.
pub(super) fn one_line(text: &str) -> String {
    let shown = text.trim().replace('\n', " ⏎ ");
    let shown = outlast_kernel::text::plain(&shown);
    let more = shown.chars().count().saturating_sub(SUMMARY_LIMIT);
    if more == 0 {
        return shown.into_owned();
    }
    let begin: String = shown.chars().take(SUMMARY_LIMIT).collect();
    format!("{begin}… ({more} more characters)")
}

/// Returns the field as text, or empty text: for summaries of arguments that passed the check.
pub(super) fn text_field<'a>(arguments: &'a Value, field: &str) -> &'a str {
    arguments[field].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    #[derive(Debug, Deserialize)]
    struct Example {
        #[expect(dead_code, reason = "only its type matters")]
        path: String,
        #[expect(dead_code, reason = "only its type matters")]
        limit: Option<usize>,
    }

    #[test]
    fn argument_error_names_the_field() {
        let table = [
            (json!({}), "missing field `path`"),
            (json!({"path": 5}), "`path`: invalid type: integer `5`"),
            (
                json!({"path": "x", "limit": "many"}),
                "`limit`: invalid type: string \"many\"",
            ),
            (
                json!({"path": "x", "limit": -1}),
                "`limit`: invalid value: integer `-1`",
            ),
        ];
        for (arguments, expected) in table {
            let said = deserialize::<Example>(&arguments).unwrap_err();
            assert!(said.contains(expected), "{said}");
        }
        assert!(deserialize::<Example>(&json!({"path": "x", "limit": null, "unknown": 1})).is_ok());
    }

    #[test]
    fn summary_is_one_line_and_counts_omitted_characters() {
        assert_eq!(one_line("a\n\u{1b}[31mb\n"), "a ⏎ b");
        let long = one_line(&"é".repeat(SUMMARY_LIMIT + 7));
        assert!(long.ends_with("… (7 more characters)"), "{long}");
    }
}
