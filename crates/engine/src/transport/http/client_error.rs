//! Classifies the HTTP client's errors.

use crate::transport::{self, Error};
use outlast_kernel::failure::IoKind;
use std::error::Error as StdError;

const MAX_CAUSES: usize = 8;

/// The body of the request could not be read.
#[derive(Debug, thiserror::Error)]
#[error("the request cannot be read back: {0}")]
pub(in crate::transport) struct RequestBodyError(pub(in crate::transport) std::io::Error);

/// Converts the client's error. Its URL is left out, as it may contain secrets.
pub(in crate::transport) fn from_reqwest(error: &reqwest::Error) -> Error {
    Error::new(io_kind(error), chain_without_url(error))
}

/// Returns the messages of an error and its causes.
pub(in crate::transport) fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut said: Vec<String> = Vec::new();
    for cause in causes(error) {
        let words = cause.to_string();
        if !said.iter().any(|known| known.contains(&words)) {
            said.push(words);
        }
    }
    said.join(": ")
}

/// Skips the client's own message, which contains the URL; the causes say what happened.
fn chain_without_url(error: &reqwest::Error) -> String {
    // The layer below does the same, with a message of its own.
    let said = |cause: &&(dyn StdError + 'static)| !cause.to_string().starts_with("client error");
    match causes(error).skip(1).find(said) {
        Some(cause) => chain(cause),
        None if error.is_timeout() => "the connection took too long".to_owned(),
        None => "the request could not be sent".to_owned(),
    }
}

fn causes<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source()).take(MAX_CAUSES)
}

fn io_kind(error: &reqwest::Error) -> IoKind {
    if causes(error).any(is_misconfiguration) {
        IoKind::Misconfigured
    } else if error.is_timeout() {
        IoKind::Timeout
    } else if error.is_dns() {
        IoKind::Dns
    } else if causes(error).any(|cause| tls_error(cause).is_some()) {
        IoKind::Tls
    } else if error.is_connect() {
        IoKind::Connect
    } else if error.is_decode() && !causes(error).any(|cause| cause.is::<hyper::Error>()) {
        IoKind::Protocol
    } else {
        causes(error)
            .find_map(io_kind_of_cause)
            .unwrap_or(IoKind::Other)
    }
}

/// Returns whether retrying cannot help: an untrusted certificate, or a proxy that requires authorization.
fn is_misconfiguration(cause: &(dyn StdError + 'static)) -> bool {
    let certificate = matches!(
        tls_error(cause),
        Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented)
    );
    certificate
        || cause.is::<RequestBodyError>()
        || cause.to_string().contains("proxy authorization required")
}

/// Returns the TLS error, which the layers above wrap in I/O errors.
fn tls_error<'a>(cause: &'a (dyn StdError + 'static)) -> Option<&'a rustls::Error> {
    let mut cause = cause;
    for _ in 0..MAX_CAUSES {
        if let Some(error) = cause.downcast_ref() {
            return Some(error);
        }
        cause = cause.downcast_ref::<std::io::Error>()?.get_ref()?;
    }
    None
}

fn io_kind_of_cause(cause: &(dyn StdError + 'static)) -> Option<IoKind> {
    if let Some(error) = cause.downcast_ref() {
        return Some(transport::io_kind(error)).filter(|kind| *kind != IoKind::Other);
    }
    let error = cause.downcast_ref::<hyper::Error>()?;
    if error.is_parse() {
        Some(IoKind::Protocol)
    } else if error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
        Some(IoKind::Reset)
    } else {
        None
    }
}
