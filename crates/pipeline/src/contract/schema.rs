//! The contract that the output matches a JSON Schema.
//!
//! Invariants: no reference outside of the schema is fetched; a violation states the place, the mistake and the value
//! there; the message omits the value, so that it stays the same as long as the mistake does.

use super::json::{self, ParseError};
use super::{
    Artifact, Breach, CheckContext, Finding, MAX_VIOLATION_BYTES, MAX_VIOLATIONS, quoted, sanitize,
};
use crate::entry::Problem;
use jsonschema::error::ValidationErrorKind;
use jsonschema::paths::{Location, LocationSegment};
use jsonschema::{ValidationError, Validator};
use outlast_kernel::verdict::Cause;
use serde_json::Value;

/// Maximum number of mistakes in the message.
const MAX_ERRORS_IN_MESSAGE: usize = 4;
/// Maximum number of a schema's alternatives to explain, and of mistakes within each.
const MAX_ALTERNATIVES: usize = 4;
const MAX_ERRORS_PER_ALTERNATIVE: usize = 3;
/// Maximum bytes of a value to show.
const MAX_VALUE_BYTES: usize = 80;
/// Maximum size of a document to check, in bytes.
const MAX_DOCUMENT_BYTES: usize = 16 * 1024 * 1024;

/// Compiles the schema; the error states its fault.
pub(crate) fn validator(schema: &Value) -> Result<Validator, String> {
    jsonschema::options()
        .offline()
        .should_validate_formats(true)
        .build(schema)
        .map_err(|error| {
            let place = match error.instance_path().as_str() {
                "" => String::new(),
                place => format!(", at `{place}`"),
            };
            sanitize(&format!("{error}{place}"), MAX_VIOLATION_BYTES)
        })
}

pub(super) async fn check(
    scene: &CheckContext<'_>,
    schema: &Value,
    (name, bytes): Artifact<'_>,
) -> Result<Finding, Problem> {
    let validator = validator(schema).map_err(|what| {
        let message = format!("the schema of `{name}` cannot be used: {what}");
        Problem::new(Cause::Misconfigured, message)
    })?;
    if bytes.len() > MAX_DOCUMENT_BYTES {
        let message = format!("`{name}` is larger than 16 MiB, which is no longer looked at");
        return Ok(Finding::breached(
            Cause::MalformedOutput,
            message.clone(),
            message,
        ));
    }
    // A regular expression may take long, and would block all other work on this thread.
    let (name, bytes) = (name.to_owned(), bytes.to_vec());
    let work = tokio::task::spawn_blocking(move || validate(&validator, &name, &bytes));
    tokio::select! {
        found = work => found.map_err(|error| Problem::new(Cause::Internal, error.to_string())),
        () = scene.stop.cancelled() => Err(CheckContext::interrupted()),
    }
}

fn validate(validator: &Validator, name: &str, bytes: &[u8]) -> Finding {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let message = format!("`{name}` is not JSON: it is not UTF-8");
            let violation = format!("{message} from byte {} on", error.valid_up_to());
            return Finding::breached(Cause::MalformedOutput, message, violation);
        }
    };
    let read = match json::read(text) {
        Ok(read) => read,
        Err(error) => return parse_failure(name, &error),
    };
    let fenced = format!("`{name}` has its JSON between fences: what is around it was ignored");
    Finding {
        warnings: read.was_fenced.then_some(fenced).into_iter().collect(),
        breach: schema_breach(validator, name, &read.value),
    }
}

fn parse_failure(name: &str, error: &ParseError) -> Finding {
    let message = format!("`{name}` is not JSON: {}", error.message);
    let violation = sanitize(
        &format!("`{name}` is not JSON: {error}"),
        MAX_VIOLATION_BYTES,
    );
    Finding::breached(Cause::MalformedOutput, message, violation)
}

fn schema_breach(validator: &Validator, name: &str, value: &Value) -> Option<Breach> {
    let (mut named, mut violations) = (Vec::new(), Vec::new());
    let mut others: usize = 0;
    for error in validator.iter_errors(value) {
        if named.len() < MAX_ERRORS_IN_MESSAGE {
            named.push(error_summary(&error));
        }
        if violations.len() < MAX_VIOLATIONS {
            violations.push(sanitize(&violation(name, &error), MAX_VIOLATION_BYTES));
        } else {
            others += 1;
        }
    }
    if others > 0 {
        // This line takes the place of one violation, which then counts as omitted as well.
        violations.pop();
        violations.push(format!("and {} more", others + 1));
    }
    (!violations.is_empty()).then(|| Breach {
        cause: Cause::SchemaMismatch,
        message: format!("`{name}` does not match its schema: {}", named.join(", ")),
        violations,
    })
}

/// Describes a mistake: the place and the fault, without the value.
fn error_summary(error: &ValidationError<'_>) -> String {
    sanitize(
        &format!("{}: {}", json_path(error.instance_path()), error.masked()),
        MAX_VALUE_BYTES * 2,
    )
}

/// Describes a violation: the place, the fault and the value, with the faults of each alternative if there are several.
fn violation(name: &str, error: &ValidationError<'_>) -> String {
    let mut said = format!(
        "{} of `{name}`: {} (value: {})",
        json_path(error.instance_path()),
        error.masked(),
        describe_value(error.instance())
    );
    let (ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context }) =
        error.kind()
    else {
        return said;
    };
    for (number, errors) in context.iter().take(MAX_ALTERNATIVES).enumerate() {
        let within: Vec<_> = errors
            .iter()
            .take(MAX_ERRORS_PER_ALTERNATIVE)
            .map(error_summary)
            .collect();
        said += &format!("; by alternative {}: {}", number + 1, within.join(", "));
    }
    said
}

/// Writes a place in the value like an expression: `$.items[0].name`.
fn json_path(location: &Location) -> String {
    let mut path = "$".to_owned();
    for segment in location {
        match segment {
            LocationSegment::Index(index) => path += &format!("[{index}]"),
            LocationSegment::Property(name) if is_plain(&name) => path += &format!(".{name}"),
            LocationSegment::Property(name) => {
                path += &format!("[{}]", quoted(&name, MAX_VALUE_BYTES))
            }
        }
    }
    path
}

fn is_plain(name: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    !name.is_empty() && name.len() <= MAX_VALUE_BYTES && name.chars().all(is_word)
}

/// Writes a value in a few words.
fn describe_value(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text, MAX_VALUE_BYTES),
        Value::Array(items) => format!("an array of {}", items.len()),
        Value::Object(fields) => format!("an object of {}", fields.len()),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn look_at(schema: &Value, text: &str) -> Finding {
        validate(&validator(schema).unwrap(), "output", text.as_bytes())
    }

    fn order() -> Value {
        json!({
            "type": "object",
            "required": ["id", "items"],
            "additionalProperties": false,
            "properties": {
                "id": {"type": "string", "pattern": "^o-"},
                "state": {"enum": ["open", "done"]},
                "items": {"type": "array", "minItems": 1, "items": {
                    "type": "object",
                    "required": ["price"],
                    "properties": {"price": {"type": "number", "minimum": 0}, "a b": {"type": "string"}},
                }},
                "who": {"anyOf": [{"type": "string"}, {"type": "object", "required": ["name"]}]},
                "mail": {"type": "string", "format": "email"},
            },
        })
    }

    #[test]
    fn schema_violation_reports_path_problem_and_value() {
        let table: [(Value, &[&str]); 8] = [
            (
                json!({"items": [{"price": 1}]}),
                &["$ of `output`: \"id\" is a required property (value: an object of 1)"],
            ),
            (
                json!({"id": "o-1", "items": [{"price": "12"}, {"price": -1}]}),
                &[
                    "$.items[0].price of `output`: value is not of type \"number\" (value: \"12\")",
                    "$.items[1].price of `output`: value is less than the minimum of 0 (value: -1)",
                ],
            ),
            (
                json!({"id": 7, "items": []}),
                &[
                    "$.id of `output`: value is not of type \"string\" (value: 7)",
                    "$.items of `output`: value has less than 1 item (value: an array of 0)",
                ],
            ),
            (
                json!({"id": "x", "items": [{"price": 1, "a b": true}]}),
                &[
                    "$.id of `output`: value does not match \"^o-\" (value: \"x\")",
                    "$.items[0][\"a b\"] of `output`: value is not of type \"string\" (value: true)",
                ],
            ),
            (
                json!({"id": "o-1", "items": [{"price": 1}], "state": "lost"}),
                &[
                    "$.state of `output`: value is not one of \"open\" or \"done\" (value: \"lost\")",
                ],
            ),
            (
                json!({"id": "o-1", "items": [{"price": 1}], "note": 1}),
                &[
                    "$ of `output`: Additional properties are not allowed ('note' was unexpected) (value: an object of 3)",
                ],
            ),
            (
                json!({"id": "o-1", "items": [{"price": 1}], "who": {"nam": "Ann"}}),
                &[
                    "$.who of `output`: value is not valid under any of the schemas listed in the 'anyOf' keyword (value: an object of 1); \
                     by alternative 1: $.who: value is not of type \"string\"; \
                     by alternative 2: $.who: \"name\" is a required property",
                ],
            ),
            (
                json!({"id": "o-1", "items": [{"price": 1}], "mail": "ann"}),
                &["$.mail of `output`: value is not a \"email\" (value: \"ann\")"],
            ),
        ];
        for (value, expected) in table {
            let broken = look_at(&order(), &value.to_string()).breach.unwrap();
            assert_eq!(broken.violations, expected, "{value}");
            assert_eq!(broken.cause, Cause::SchemaMismatch);
        }
    }

    #[test]
    fn schema_message_depends_on_mistake_not_on_value() {
        let message = |value: Value| {
            let broken = look_at(&order(), &value.to_string()).breach;
            broken.unwrap().message
        };
        let one = message(json!({"id": "o-1", "items": [{"price": "12"}]}));
        assert_eq!(
            one,
            "`output` does not match its schema: $.items[0].price: value is not of type \"number\""
        );
        assert_eq!(
            one,
            message(json!({"id": "o-2", "items": [{"price": "thirteen"}]}))
        );
        assert_ne!(one, message(json!({"id": "o-1", "items": [{"cost": 12}]})));
        assert_ne!(one, message(json!({"id": 1, "items": [{"price": "12"}]})));
    }

    #[test]
    fn matching_output_passes_and_fences_cause_warning() {
        let good = json!({"id": "o-1", "items": [{"price": 1}]});
        let finding = look_at(&order(), &good.to_string());
        assert!(finding.breach.is_none() && finding.warnings.is_empty());
        let finding = look_at(&order(), &format!("There:\n```json\n{good}\n```"));
        assert!(finding.breach.is_none());
        assert_eq!(
            finding.warnings,
            ["`output` has its JSON between fences: what is around it was ignored"]
        );
    }

    #[test]
    fn non_json_output_is_malformed_with_position() {
        let broken = look_at(&order(), "{\"id\": o-1}").breach.unwrap();
        assert_eq!(broken.cause, Cause::MalformedOutput);
        assert_eq!(broken.message, "`output` is not JSON: expected value");
        assert_eq!(
            broken.violations,
            ["`output` is not JSON: line 1, column 8: expected value, near \"{\\\"id\\\": o-1}\""]
        );
        let broken = validate(&validator(&order()).unwrap(), "plan", b"{\"\xff").breach;
        let broken = broken.unwrap();
        assert_eq!(broken.cause, Cause::MalformedOutput);
        assert_eq!(
            broken.violations,
            ["`plan` is not JSON: it is not UTF-8 from byte 2 on"]
        );
    }

    #[test]
    fn violations_are_bounded_and_remainder_is_counted() {
        let items: Vec<_> = (0..200)
            .map(|_| json!({"price": "é".repeat(5000)}))
            .collect();
        let value = json!({"id": "x".repeat(100_000), "items": items});
        let broken = look_at(&order(), &value.to_string()).breach.unwrap();
        assert_eq!(broken.violations.len(), MAX_VIOLATIONS);
        assert_eq!(broken.violations.last().unwrap(), "and 152 more");
        assert!(broken.violations.iter().all(|it| it.len() < 300));
        assert!(broken.message.len() < 800, "{}", broken.message.len());
    }

    #[test]
    fn external_schema_reference_is_refused_and_internal_works() {
        for elsewhere in ["http://127.0.0.1:9/s.json", "file:///etc/passwd", "s.json"] {
            let error = validator(&json!({"$ref": elsewhere})).unwrap_err();
            assert!(
                !error.is_empty() && error.len() <= MAX_VIOLATION_BYTES,
                "{error}"
            );
        }
        let own = json!({"$ref": "#/$defs/word", "$defs": {"word": {"type": "string"}}});
        assert!(look_at(&own, "\"a\"").breach.is_none());
        assert!(look_at(&own, "1").breach.is_some());
    }
}
