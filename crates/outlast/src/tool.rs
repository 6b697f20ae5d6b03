//! Tools that are functions.

use futures_util::future::BoxFuture;
use outlast_session::tools::{Context, Effect, Output, Tool};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::Display;
use std::sync::Arc;

/// Returns a tool that calls the function with the model's arguments, whose schema the model sees.
///
/// The result's text, or the error's, goes to the model. Adding the tool to a session allows the model to call it. After a
/// crash in the middle of a call, the model is told that the call was interrupted; the function is not called again, unless
/// the tool is [`idempotent`](FunctionTool::idempotent) or [`read_only`](FunctionTool::read_only).
///
/// ```
/// use serde::Deserialize;
///
/// #[derive(Deserialize, schemars::JsonSchema)]
/// struct City {
///     name: String,
/// }
///
/// let weather = outlast::tool("weather", "Returns the weather of a city.", |city: City| async move {
///     Ok::<_, String>(format!("{}: 21 C", city.name))
/// });
/// # let _ = weather.read_only();
/// ```
pub fn tool<Arguments, Function, Running, Failure>(
    name: impl Into<String>,
    description: impl Into<String>,
    function: Function,
) -> FunctionTool
where
    Arguments: DeserializeOwned + JsonSchema + 'static,
    Function: Fn(Arguments) -> Running + Send + Sync + 'static,
    Running: Future<Output = Result<String, Failure>> + Send + 'static,
    Failure: Display,
{
    let run = move |arguments| -> BoxFuture<'static, Output> {
        match serde_json::from_value(arguments) {
            Ok(arguments) => {
                let running = function(arguments);
                Box::pin(async move {
                    match running.await {
                        Ok(text) => Output::ok(text),
                        Err(failure) => Output::error(failure.to_string()),
                    }
                })
            }
            Err(error) => {
                let output = Output::error(error.to_string());
                Box::pin(async move { output })
            }
        }
    };
    FunctionTool {
        definition: outlast_dialect::Tool {
            name: name.into(),
            description: description.into(),
            parameters: schemars::schema_for!(Arguments).to_value(),
        },
        effect: Effect::AtMostOnce,
        check: |arguments| {
            let parsed = serde_json::from_value::<Arguments>(arguments);
            parsed.map(drop).map_err(|error| error.to_string())
        },
        run: Arc::new(run),
    }
}

/// A tool that calls a function; made by [`tool`].
#[derive(Clone)]
pub struct FunctionTool {
    definition: outlast_dialect::Tool,
    effect: Effect,
    check: fn(Value) -> Result<(), String>,
    run: Arc<dyn Fn(Value) -> BoxFuture<'static, Output> + Send + Sync>,
}

impl FunctionTool {
    /// Declares that calling it twice has the same result as calling it once: an interrupted call runs again.
    #[must_use]
    pub fn idempotent(self) -> Self {
        let effect = Effect::Idempotent;
        Self { effect, ..self }
    }

    /// Declares that it changes nothing: an interrupted call runs again.
    #[must_use]
    pub fn read_only(self) -> Self {
        let effect = Effect::Pure;
        Self { effect, ..self }
    }
}

impl Tool for FunctionTool {
    fn describe(&self) -> outlast_dialect::Tool {
        self.definition.clone()
    }

    fn effect(&self) -> Effect {
        self.effect
    }

    fn summary(&self, arguments: &Value) -> String {
        format!("{}: {arguments}", self.definition.name)
    }

    fn check(&self, arguments: &Value) -> Result<(), String> {
        (self.check)(arguments.clone())
    }

    fn run<'a>(&'a self, arguments: Value, context: &'a Context) -> BoxFuture<'a, Output> {
        let running = (self.run)(arguments);
        Box::pin(async move {
            tokio::select! {
                output = running => output,
                () = context.cancel.cancelled() => Output::error("it was cancelled"),
            }
        })
    }
}
