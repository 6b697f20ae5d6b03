//! The table of commands: the name of each, its purpose and its fields.

use outlast_kernel::event::Body;
use serde_json::{Map, Value, json};

struct Command {
    name: &'static str,
    purpose: &'static str,
    fields: &'static [Field],
}

struct Field {
    name: &'static str,
    field_type: FieldType,
    is_required: bool,
}

#[derive(Clone, Copy)]
enum FieldType {
    Text,
    Flag,
    Number,
    Images,
    Kinds,
    OneOf(&'static [&'static str]),
}

const fn required(name: &'static str, field_type: FieldType) -> Field {
    Field {
        name,
        field_type,
        is_required: true,
    }
}

const fn optional(name: &'static str, field_type: FieldType) -> Field {
    Field {
        name,
        field_type,
        is_required: false,
    }
}

const fn command(name: &'static str, purpose: &'static str, fields: &'static [Field]) -> Command {
    Command {
        name,
        purpose,
        fields,
    }
}

const MESSAGE: Field = required("message", FieldType::Text);
const IMAGES: Field = optional("images", FieldType::Images);
const ENABLED: Field = required("enabled", FieldType::Flag);
const MODE: Field = required("mode", FieldType::OneOf(&["all", "one-at-a-time"]));
const STREAMING_BEHAVIOR: Field = optional(
    "streamingBehavior",
    FieldType::OneOf(&["steer", "followUp"]),
);

/// All commands, those of the native dialect last.
#[rustfmt::skip]
const COMMANDS: &[Command] = &[
    command("prompt", "Says something to the model.", &[MESSAGE, IMAGES, STREAMING_BEHAVIOR]),
    command("steer", "Says something as soon as the model can be told.", &[MESSAGE, IMAGES]),
    command("follow_up", "Says something when the model has answered.", &[MESSAGE, IMAGES]),
    command("abort", "Ends what is running.", &[]),
    command("clear_queue", "Takes back what waits to be said.", &[]),
    command("new_session", "Begins a session.", &[optional("parentSession", FieldType::Text)]),
    command("get_state", "Says how the session is set.", &[]),
    command("set_model", "Chooses the model.", &[required("provider", FieldType::Text), required("modelId", FieldType::Text)]),
    command("cycle_model", "Chooses the next model.", &[]),
    command("get_available_models", "Says which models can be chosen.", &[]),
    command("set_thinking_level", "Says how much the model shall think.", &[required("level", FieldType::Text)]),
    command("cycle_thinking_level", "Chooses the next level of thinking.", &[]),
    command("get_available_thinking_levels", "Says which levels of thinking there are.", &[]),
    command("set_steering_mode", "Says how many steering messages are said at a time.", &[MODE]),
    command("set_follow_up_mode", "Says how many follow-ups are said at a time.", &[MODE]),
    command("compact", "Makes the conversation smaller.", &[optional("customInstructions", FieldType::Text)]),
    command("set_auto_compaction", "Says whether that is done without being asked.", &[ENABLED]),
    command("set_auto_retry", "Says whether failures are retried, in this session.", &[ENABLED]),
    command("abort_retry", "Ends the wait for a retry, and fails with what it waited out.", &[]),
    command("bash", "Runs a command and shows it to the model.", &[required("command", FieldType::Text), optional("excludeFromContext", FieldType::Flag)]),
    command("abort_bash", "Ends that command.", &[]),
    command("get_session_stats", "Counts messages, tokens and cost.", &[]),
    command("export_html", "Writes the session as a page.", &[optional("outputPath", FieldType::Text)]),
    command("switch_session", "Opens another session.", &[required("sessionPath", FieldType::Text)]),
    command("fork", "Begins a session with what was said before an entry.", &[required("entryId", FieldType::Text)]),
    command("clone", "Begins a session with all that was said.", &[]),
    command("get_fork_messages", "Says where the session can be forked.", &[]),
    command("get_last_assistant_text", "Says what the model answered last.", &[]),
    command("set_session_name", "Names the session.", &[required("name", FieldType::Text)]),
    command("get_messages", "Says the conversation.", &[]),
    command("get_entries", "Says what happened, also what failed.", &[optional("since", FieldType::Text)]),
    command("get_tree", "Says the same as a tree.", &[]),
    command("get_commands", "Says which commands a prompt can hold.", &[]),
    command("retry_now", "Ends the wait for a retry, and tries at once.", &[]),
    command("resume", "Carries an unfinished turn on.", &[]),
    command("snapshot", "Says where the session stands.", &[]),
    command("follow", "Says which events are said from here on.", &[optional("after", FieldType::Number), optional("only", FieldType::Kinds)]),
];

/// Returns the names of all commands.
pub fn names() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().map(|command| command.name)
}

/// Returns the schema of a command line.
pub(super) fn schema() -> Value {
    let all: Vec<Value> = COMMANDS.iter().map(Command::schema).collect();
    json!({ "description": "A line that is read.", "oneOf": all })
}

impl Command {
    fn schema(&self) -> Value {
        let mut properties = Map::new();
        properties.insert("id".to_owned(), json!({ "type": "string" }));
        let name = json!({ "type": "string", "const": self.name });
        properties.insert("type".to_owned(), name);
        for field in self.fields {
            properties.insert(field.name.to_owned(), field.field_type.schema());
        }
        let required = self.fields.iter().filter(|field| field.is_required);
        let required = required.map(|field| field.name);
        let required: Vec<&str> = std::iter::once("type").chain(required).collect();
        json!({
            "description": self.purpose,
            "type": "object",
            "properties": properties,
            "required": required,
        })
    }
}

impl FieldType {
    fn schema(self) -> Value {
        match self {
            Self::Text => json!({ "type": "string" }),
            Self::Flag => json!({ "type": "boolean" }),
            Self::Number => json!({ "type": "integer", "minimum": 0 }),
            Self::OneOf(words) => json!({ "type": "string", "enum": words }),
            Self::Kinds => {
                json!({ "type": "array", "items": { "type": "string", "enum": Body::KINDS } })
            }
            Self::Images => json!({
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "type": { "type": "string", "const": "image" },
                        "data": { "description": "In base64.", "type": "string" },
                        "mimeType": { "type": "string" },
                    },
                    "required": ["type", "data", "mimeType"],
                },
            }),
        }
    }
}
