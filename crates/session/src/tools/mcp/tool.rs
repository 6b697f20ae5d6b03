//! One tool of a server, as the model sees it.

use super::server_handle::ServerHandle;
use super::{Error, MCP_PERMISSION, names};
use crate::tools::{Context, Effect, Output, Tool, input};
use outlast_engine::BoxFuture;
use outlast_kernel::text;
use rmcp::model::{CallToolRequestParams, JsonObject};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Maximum length of a description, which is part of every request, in bytes.
const MAX_DESCRIPTION_BYTES: usize = 4096;
/// Maximum length of a schema, in bytes.
const MAX_SCHEMA_BYTES: usize = 64 * 1024;

/// The tool.
pub(super) struct ServerTool {
    server: Arc<ServerHandle>,
    /// The server's name for the tool.
    own_name: String,
    definition: outlast_dialect::Tool,
    effect: Effect,
}

impl ServerTool {
    /// Creates the tool of that server.
    pub(super) fn new(host: &Arc<ServerHandle>, tool: rmcp::model::Tool) -> Result<Self, Error> {
        let server = &host.config;
        let own_name = tool.name.into_owned();
        let parameters = Arc::unwrap_or_clone(tool.input_schema);
        if serde_json::to_string(&parameters).map_or(0, |text| text.len()) > MAX_SCHEMA_BYTES {
            return Err(Error::SchemaTooLong {
                server: server.name.clone(),
                tool: display_name(&own_name),
                limit: MAX_SCHEMA_BYTES,
            });
        }
        let description = tool.description.map(String::from).or(tool.title);
        let description = description.unwrap_or_default();
        let description = text::plain(&description);
        let definition = outlast_dialect::Tool {
            name: names::full(&server.name, &own_name),
            description: text::bounded(&description, MAX_DESCRIPTION_BYTES).into_owned(),
            parameters: object_schema(parameters),
        };
        // The server's own statement about the effect is a hint from its author, and not trusted.
        let effect = server.effects.get(&own_name);
        Ok(Self {
            effect: effect.copied().unwrap_or(Effect::AtMostOnce),
            server: Arc::clone(host),
            own_name,
            definition,
        })
    }

    /// Returns the tool's own name and its server's name.
    pub(super) fn origin(&self) -> String {
        format!(
            "`{}` of `{}`",
            display_name(&self.own_name),
            self.server.config.name
        )
    }
}

impl Tool for ServerTool {
    fn describe(&self) -> outlast_dialect::Tool {
        self.definition.clone()
    }

    fn effect(&self) -> Effect {
        self.effect
    }

    /// The server is another party's program: even a pure tool has to be allowed.
    fn permissions(&self) -> Vec<String> {
        let server = self.server.config.name.clone();
        vec![
            self.definition.name.clone(),
            server,
            MCP_PERMISSION.to_owned(),
        ]
    }

    fn summary(&self, arguments: &Value) -> String {
        input::one_line(&format!("{}: {arguments}", self.definition.name))
    }

    fn time_limit(&self, _arguments: &Value) -> Duration {
        self.server.config.timeout
    }

    fn run<'a>(&'a self, arguments: Value, context: &'a Context) -> BoxFuture<'a, Output> {
        let mut call = CallToolRequestParams::new(self.own_name.clone());
        if let Value::Object(arguments) = arguments {
            call = call.with_arguments(arguments);
        }
        Box::pin(self.server.call(call, &context.cancel))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.server.close())
    }
}

/// Completes the schema to a form that providers accept: that of an object, with a list of its properties.
fn object_schema(mut schema: JsonObject) -> Value {
    schema.entry("type").or_insert_with(|| json!("object"));
    schema.entry("properties").or_insert_with(|| json!({}));
    Value::Object(schema)
}

/// Returns a tool's own name, short and in one line.
fn display_name(name: &str) -> String {
    const MAX_NAME_BYTES: usize = 80;
    let name = text::plain(name);
    text::bounded(&name, MAX_NAME_BYTES).replace('\n', " ")
}
