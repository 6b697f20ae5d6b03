//! Exports the gateway's requests as spans to a collector, if that is built in and configured.

use crate::config::Settings;
use crate::factory::provider;
use crate::platform::exit::UsageError;
use outlast_engine::transport::HttpSettings;
use outlast_gateway::observe::log::Sink;
#[cfg(feature = "otel")]
use outlast_gateway::observe::otel::{self, ExporterTask};
use secrecy::{ExposeSecret, SecretString};
use std::sync::Arc;

/// The running export to a collector, if there is one.
#[derive(Default)]
pub(super) struct Traces {
    #[cfg(feature = "otel")]
    exporting: Option<ExporterTask>,
}

impl Traces {
    /// Starts the export beside the log. Must be called within a runtime.
    pub(super) fn attach(
        log: Arc<dyn Sink>,
        settings: &Settings,
    ) -> anyhow::Result<(Arc<dyn Sink>, Self)> {
        let Some(endpoint) = &settings.gateway.otlp_endpoint else {
            return Ok((log, Self::default()));
        };
        let headers = settings.gateway.otlp_headers.iter().map(header);
        let collector = HttpSettings {
            headers: headers.collect::<Result<_, _>>()?,
            ..provider::http_settings(settings, endpoint)?
        };
        Ok(Self::begin(log, &collector)?)
    }

    #[cfg(feature = "otel")]
    fn begin(
        log: Arc<dyn Sink>,
        collector: &HttpSettings,
    ) -> Result<(Arc<dyn Sink>, Self), UsageError> {
        let (otel, exporting) = otel::start(collector)
            .map_err(|error| UsageError(format!("gateway.otlp_endpoint: {error}")))?;
        let both: Vec<Arc<dyn Sink>> = vec![log, Arc::new(otel)];
        let exporting = Some(exporting);
        Ok((Arc::new(both), Self { exporting }))
    }

    #[cfg(not(feature = "otel"))]
    fn begin(log: Arc<dyn Sink>, _: &HttpSettings) -> Result<(Arc<dyn Sink>, Self), UsageError> {
        crate::print_diagnostic(
            "warning: gateway.otlp_endpoint: traces are not built into this outlast; build it with \
             `cargo install --path crates/cli --features otel`",
        );
        Ok((log, Self::default()))
    }

    /// Sends the remaining spans.
    #[cfg(feature = "otel")]
    pub(super) async fn end(self) {
        if let Some(exporting) = self.exporting {
            exporting.shutdown().await;
        }
    }

    /// Does nothing: the export is not built in.
    #[cfg(not(feature = "otel"))]
    pub(super) fn end(self) -> std::future::Ready<()> {
        std::future::ready(())
    }
}

/// Parses a header from `name=value`; a blank in it is written `%20`, as in the variable of OpenTelemetry.
fn header(text: &SecretString) -> Result<(String, SecretString), UsageError> {
    // The error leaves out the malformed text: it may be a key.
    let problem = || UsageError("gateway.otlp_headers: each is written as name=value".to_owned());
    let (name, value) = text.expose_secret().split_once('=').ok_or_else(problem)?;
    Ok((name.to_owned(), value.replace("%20", " ").into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_value_is_decoded_and_hidden_from_errors() {
        let read = |text: &str| header(&SecretString::from(text.to_owned()));
        let (name, value) = read("authorization=Basic%20abc==").unwrap();
        assert_eq!(
            (name.as_str(), value.expose_secret()),
            ("authorization", "Basic abc==")
        );
        let problem = read("hushhush").unwrap_err().to_string();
        assert!(!problem.contains("hushhush"), "{problem}");
    }
}
