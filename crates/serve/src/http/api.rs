//! The routes, and the OpenAPI document that describes them: each operation is added once, with both.

use super::app_state::AppState;
use axum::Router;
use axum::routing::MethodRouter;
use http::Method;
use outlast_gateway::problem;
use schemars::JsonSchema;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Location of the schemas within the document.
const SCHEMAS: &str = "/components/schemas";

/// The routes of a server and their description.
pub(super) struct Api {
    pub(super) router: Router<Arc<AppState>>,
    paths: Map<String, Value>,
    generator: SchemaGenerator,
}

/// One endpoint: its method, its path and its description.
pub(super) struct Operation {
    method: Method,
    path: String,
    value: Value,
    /// Parts that need the schema generator, which belongs to the whole document.
    parts: Vec<Part>,
}

type Part = Box<dyn FnOnce(&mut SchemaGenerator, &mut Value)>;

impl Operation {
    pub(super) fn get(path: &str, id: &str, about: &str) -> Self {
        Self::new(Method::GET, path, id, about)
    }

    pub(super) fn post(path: &str, id: &str, about: &str) -> Self {
        Self::new(Method::POST, path, id, about)
    }

    pub(super) fn patch(path: &str, id: &str, about: &str) -> Self {
        Self::new(Method::PATCH, path, id, about)
    }

    fn new(method: Method, path: &str, id: &str, about: &str) -> Self {
        let names = path.split('/').filter_map(|part| part.strip_prefix('{'));
        let names = names.filter_map(|part| part.strip_suffix('}'));
        let kind = |name: &str| match name {
            "port" => json!({ "type": "integer", "minimum": 1, "maximum": 65535 }),
            _ => json!({ "type": "string" }),
        };
        let parameters: Vec<Value> = names
            .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": kind(name) }))
            .collect();
        Self {
            method,
            path: path.to_owned(),
            value: json!({ "operationId": id, "summary": about, "parameters": parameters, "responses": {} }),
            parts: Vec::new(),
        }
    }

    fn with(mut self, part: impl FnOnce(&mut SchemaGenerator, &mut Value) + 'static) -> Self {
        self.parts.push(Box::new(part));
        self
    }

    /// Marks the operation as deprecated.
    pub(super) fn deprecated(mut self) -> Self {
        self.value["deprecated"] = true.into();
        self
    }

    /// Describes the query parameters.
    pub(super) fn query<T: JsonSchema>(self) -> Self {
        self.with(|generator, operation| {
            let schema = T::json_schema(generator).to_value();
            let fields = schema["properties"]
                .as_object()
                .cloned()
                .unwrap_or_default();
            for (name, mut field) in fields {
                let about = field["description"].take();
                field
                    .as_object_mut()
                    .map(|field| field.remove("description"));
                let parameter =
                    json!({ "name": name, "in": "query", "description": about, "schema": field });
                if let Some(all) = operation["parameters"].as_array_mut() {
                    all.push(parameter);
                }
            }
        })
    }

    /// Describes the request body.
    pub(super) fn body<T: JsonSchema + 'static>(self) -> Self {
        self.with(|generator, operation| {
            let schema = generator.subschema_for::<T>();
            let required = has_required_fields(generator, schema.as_value());
            operation["requestBody"] =
                json!({ "required": required, "content": { "application/json": { "schema": schema } } });
        })
    }

    fn response_with_status<T: JsonSchema + 'static>(
        self,
        status: &'static str,
        about: &'static str,
    ) -> Self {
        self.with(move |generator, operation| {
            let schema = generator.subschema_for::<T>();
            operation["responses"][status] =
                json!({ "description": about, "content": { "application/json": { "schema": schema } } });
        })
    }

    /// Describes the response with status 200.
    pub(super) fn response<T: JsonSchema + 'static>(self) -> Self {
        self.response_with_status::<T>("200", "Success.")
    }

    /// Describes the response with status 201, for a request that creates something.
    pub(super) fn created<T: JsonSchema + 'static>(self) -> Self {
        self.response_with_status::<T>("201", "Created.")
    }

    /// Describes the response with status 202, for a request that starts something.
    pub(super) fn accepted<T: JsonSchema + 'static>(self) -> Self {
        self.response_with_status::<T>("202", "Accepted.")
    }

    /// Describes an empty response with status 204.
    pub(super) fn no_content(mut self) -> Self {
        self.value["responses"]["204"] = json!({ "description": "Done." });
        self
    }

    /// Adds the streaming form of the 200 response: one `T` for each line or event, for as long as events come.
    pub(super) fn streams<T: JsonSchema + 'static>(self) -> Self {
        self.with(|generator, operation| {
            let each = json!({ "schema": generator.subschema_for::<T>() });
            let answer = &mut operation["responses"]["200"];
            answer["description"] =
                "Success; in the streaming forms, one event per line or message.".into();
            answer["content"]["application/x-ndjson"].clone_from(&each);
            answer["content"]["text/event-stream"] = each;
        })
    }
}

/// Returns whether the schema of a body has required fields.
fn has_required_fields(generator: &SchemaGenerator, schema: &Value) -> bool {
    let name = schema["$ref"]
        .as_str()
        .and_then(|path| path.rsplit('/').next());
    let definition = name.and_then(|name| generator.definitions().get(name));
    let required = definition.and_then(|definition| definition["required"].as_array());
    required.is_some_and(|required| !required.is_empty())
}

impl Api {
    pub(super) fn new() -> Self {
        let settings = SchemaSettings::draft2020_12();
        let generator = settings
            .with(|settings| settings.definitions_path = SCHEMAS.into())
            .into_generator();
        Self {
            router: Router::new(),
            paths: Map::new(),
            generator,
        }
    }

    /// Adds a route with its description.
    pub(super) fn add(&mut self, operation: Operation, handler: MethodRouter<Arc<AppState>>) {
        let Operation {
            method,
            path,
            mut value,
            parts,
        } = operation;
        for part in parts {
            part(&mut self.generator, &mut value);
        }
        let problem = self.generator.subschema_for::<problem::ProblemBody<'_>>();
        value["responses"]["default"] = json!({
            "description": "A problem.",
            "content": { problem::CONTENT_TYPE: { "schema": problem } },
        });
        let methods = self.paths.entry(path.clone()).or_insert_with(|| json!({}));
        methods[method.as_str().to_ascii_lowercase()] = value;
        self.router = std::mem::take(&mut self.router).route(&path, handler);
    }

    /// Returns the OpenAPI document.
    pub(super) fn document(&mut self) -> Value {
        let schemas = self.generator.take_definitions(true);
        json!({
            "openapi": "3.1.0",
            "info": {
                "title": "Outlast",
                "version": env!("CARGO_PKG_VERSION"),
                "description": "Sessions, runs and gateways over HTTP. See docs/serve.md for the streams and the WebSocket.",
                "license": { "name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT" },
            },
            "security": [{}, { "token": [] }],
            "paths": self.paths,
            "components": {
                "schemas": schemas,
                "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            },
        })
    }
}
