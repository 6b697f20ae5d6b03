//! Requests of the gateway as spans for a collector, where that is built in and set.

use crate::config::Settings;
use outlast_server::gateway::log::Sink;
use std::sync::Arc;

#[cfg(feature = "otel")]
use outlast_server::gateway::otel::{self, Exporting};

/// What is under way to a collector, if there is one.
#[derive(Default)]
pub(super) struct Traces {
    #[cfg(feature = "otel")]
    exporting: Option<Exporting>,
}

#[cfg(feature = "otel")]
impl Traces {
    /// From now on a collector is told beside the log. Must be called within a runtime.
    pub(super) fn beside(
        log: Arc<dyn Sink>,
        settings: &Settings,
    ) -> anyhow::Result<(Arc<dyn Sink>, Self)> {
        let Some(endpoint) = &settings.gateway.otlp_endpoint else {
            return Ok((log, Self::default()));
        };
        let headers = settings.gateway.otlp_headers.iter().map(header);
        let collector = outlast_engine::transport::HttpSettings {
            headers: headers.collect::<Result<_, _>>()?,
            ..crate::reach::http_settings(settings, endpoint)?
        };
        let usage =
            |error: otel::OtelError| crate::exit::Usage(format!("gateway.otlp_endpoint: {error}"));
        let (otel, exporting) = otel::start(&collector).map_err(usage)?;
        let both: Vec<Arc<dyn Sink>> = vec![log, Arc::new(otel)];
        let traces = Self {
            exporting: Some(exporting),
        };
        Ok((Arc::new(both), traces))
    }

    /// Sends what there is.
    pub(super) async fn end(self) {
        if let Some(exporting) = self.exporting {
            exporting.end().await;
        }
    }
}

/// The header in `name=value`, in which a blank is written as it is in the variable of OpenTelemetry.
#[cfg(feature = "otel")]
fn header(
    text: &secrecy::SecretString,
) -> Result<(String, secrecy::SecretString), crate::exit::Usage> {
    use secrecy::ExposeSecret;
    let (name, value) = text.expose_secret().split_once('=').ok_or_else(|| {
        // The text is not shown: it may be a key.
        crate::exit::Usage("gateway.otlp_headers: each is written as name=value".to_owned())
    })?;
    Ok((name.to_owned(), value.replace("%20", " ").into()))
}

#[cfg(not(feature = "otel"))]
impl Traces {
    /// There is nobody to tell but the log.
    pub(super) fn beside(
        log: Arc<dyn Sink>,
        settings: &Settings,
    ) -> anyhow::Result<(Arc<dyn Sink>, Self)> {
        if settings.gateway.otlp_endpoint.is_some() {
            crate::complain(
                "warning: gateway.otlp_endpoint: traces are not built into this outlast; build it with `cargo install --path crates/app --features otel`",
            );
        }
        Ok((log, Self::default()))
    }

    /// There is nothing to send.
    pub(super) fn end(self) -> std::future::Ready<()> {
        std::future::ready(())
    }
}
