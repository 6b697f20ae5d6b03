//! Reads the relevant fields of a request without copying; no body makes it fail.

use crate::Dialect;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// The fields of a request that decide its treatment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeekedRequest<'a> {
    /// The requested model.
    pub model: Option<Cow<'a, str>>,
    /// Whether a streamed response is requested.
    pub stream: bool,
}

impl Dialect {
    /// Reads the fields of a request body; for a body that is no JSON object, all are unknown.
    pub fn peek_request(body: &[u8]) -> PeekedRequest<'_> {
        let mut json = serde_json::Deserializer::from_slice(body);
        json.deserialize_map(Fields).unwrap_or_default()
    }
}

struct Fields;

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum Field {
    Model,
    Stream,
    #[serde(other)]
    Other,
}

impl<'de> Visitor<'de> for Fields {
    type Value = PeekedRequest<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a request")
    }

    /// If a field is repeated, the last one counts, as it does for providers.
    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        let mut asked = PeekedRequest::default();
        while let Some(field) = fields.next_key()? {
            match field {
                Field::Model => asked.model = text(fields.next_value::<&RawValue>()?.get()),
                Field::Stream => asked.stream = fields.next_value::<&RawValue>()?.get() == "true",
                Field::Other => drop(fields.next_value::<IgnoredAny>()?),
            }
        }
        Ok(asked)
    }
}

fn text(json: &str) -> Option<Cow<'_, str>> {
    match serde_json::from_str::<&str>(json) {
        Ok(text) => Some(Cow::Borrowed(text)),
        Err(_) => serde_json::from_str::<String>(json).ok().map(Cow::Owned),
    }
}
