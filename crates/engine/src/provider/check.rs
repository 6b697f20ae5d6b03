//! Checks that a provider is reachable and accepts the key, without calling a model.

use super::Adapter;
use super::response::{StreamBody, Timer};
use crate::transport::{Method, Request};
use bytes::Bytes;
use outlast_dialect::stream_error;
use outlast_kernel::failure::Failure;

const MODELS_PATH: &str = "/v1/models";

/// The result of checking a provider.
#[derive(Clone, Debug)]
pub struct ProviderCheck {
    /// The `date` header of the response, if there was a response.
    pub date: Option<String>,
    /// Whether the provider would serve requests, or the failure that prevents it.
    pub result: Result<(), Box<Failure>>,
}

impl Adapter {
    /// Requests the list of models, which costs nothing and needs the key.
    pub async fn check(&self) -> ProviderCheck {
        let request = Request {
            method: Method::Get,
            path: MODELS_PATH.to_owned(),
            headers: self.headers("application/json"),
            body: Bytes::new(),
        };
        let response = match self.send(request).await {
            Ok(response) => response,
            Err(failure) => {
                return ProviderCheck {
                    date: None,
                    result: Err(self.scrubbed(failure)),
                };
            }
        };
        let named = |(name, _): &&(String, String)| name.eq_ignore_ascii_case("date");
        let date = response.headers.iter().find(named);
        let date = date.map(|(_, value)| value.clone());
        let result = if (200..300).contains(&response.status) {
            self.verify_model_list(self.error_text(&mut StreamBody(response.body)).await)
        } else {
            Err(self.scrubbed(self.error_response(response).await))
        };
        ProviderCheck { date, result }
    }

    /// Verifies that the body is a list of models, and not the page of an intermediary.
    fn verify_model_list(&self, body: String) -> Result<(), Box<Failure>> {
        if body.trim_start().starts_with(['{', '[']) {
            return Ok(());
        }
        let failure = stream_error::not_an_event_stream(&self.name, &body, self.clock.now());
        Err(self.scrubbed(failure))
    }
}
