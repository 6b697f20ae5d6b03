//! The HTTP transport: versions 1.1 and 2, proxies, extra headers, custom certificates.
//!
//! Invariants: one call sends one request, and the client never repeats it; redirects are not followed, because the key
//! would be sent along; nothing is read from the environment; no header value is printed.
//! Not here: time limits other than the connect timeout, which are the caller's.

pub(super) mod client_error;

use super::{Error, Method, Request, Response, Transport};
use crate::BoxFuture;
use futures_util::{StreamExt, TryStreamExt};
use outlast_kernel::failure::IoKind;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Certificate, Client, ClientBuilder, NoProxy, Proxy, Url};
use secrecy::{ExposeSecret, SecretString};
use std::time::Duration;

const USER_AGENT: &str = concat!("outlast/", env!("CARGO_PKG_VERSION"));

/// The connection settings of a provider.
#[derive(Clone, Debug, Default)]
pub struct HttpSettings {
    /// The provider's address, with or without a version at its end: `https://api.example.com`, `https://host/api/v1`.
    pub base_url: String,
    /// Headers that every request carries.
    pub headers: Vec<(String, SecretString)>,
    /// The maximum time for establishing a connection; zero means no limit.
    pub connect_timeout: Duration,
    /// The proxies between this machine and the provider.
    pub proxies: Proxies,
    /// Certificates in PEM to trust in addition to the machine's own.
    pub certificates: Option<Vec<u8>>,
}

/// The proxies to use. Their addresses may contain passwords.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    /// The proxy for `http` addresses.
    pub http: Option<SecretString>,
    /// The proxy for `https` addresses.
    pub https: Option<SecretString>,
    /// Hosts that are reached without a proxy, separated by commas.
    pub no_proxy: String,
}

/// An invalid setting.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// The base URL is invalid.
    #[error("the base URL `{url}` {problem}; it looks like https://api.example.com/v1")]
    BaseUrl {
        /// The URL without its secret parts.
        url: String,
        /// A description of the problem.
        problem: &'static str,
    },
    /// A header cannot be sent.
    #[error("the header `{name}` {problem}")]
    Header {
        /// The header's name.
        name: String,
        /// A description of the problem.
        problem: &'static str,
    },
    /// The address of a proxy is invalid.
    #[error("the address of the proxy is not valid; it looks like http://proxy.example.com:3128")]
    Proxy,
    /// The certificates cannot be read.
    #[error("the extra certificates are not in PEM form")]
    Certificates,
    /// TLS cannot be set up.
    #[error("secure connections cannot be set up: {0}")]
    Tls(String),
}

/// A transport over the network.
#[derive(Clone, Debug)]
pub struct Http {
    client: Client,
    base: Url,
}

impl Http {
    /// Creates a transport to the provider of these settings.
    pub fn new(settings: &HttpSettings) -> Result<Self, SettingError> {
        let base = parse_base_url(&settings.base_url)?;
        let client = build_client(client_builder(settings, &base)?.user_agent(USER_AGENT))?;
        Ok(Self { client, base })
    }
}

impl Transport for Http {
    fn send(&self, request: Request) -> BoxFuture<'static, Result<Response, Error>> {
        let url = request_url(&self.base, &request.path);
        let call = match request.method {
            Method::Get => self.client.get(url),
            Method::Post => self.client.post(url).body(request.body),
        };
        Box::pin(async move {
            let headers = request
                .headers
                .iter()
                .map(|(name, value)| parse_header(name, value))
                .collect::<Result<HeaderMap, _>>()
                .map_err(|error| Error::new(IoKind::Misconfigured, error))?;
            let response = call.headers(headers).send().await;
            response
                .map(convert_response)
                .map_err(|error| client_error::from_reqwest(&error))
        })
    }
}

/// Returns a client builder that sends one request for each call, through the configured proxies.
pub(super) fn client_builder(
    settings: &HttpSettings,
    base: &Url,
) -> Result<ClientBuilder, SettingError> {
    // Another part of the process may have installed a provider already; then this one is not needed.
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok();
    let mut client = Client::builder()
        .retry(reqwest::retry::never())
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .default_headers(parse_headers(&settings.headers)?)
        .no_proxy();
    if !settings.connect_timeout.is_zero() {
        client = client.connect_timeout(settings.connect_timeout);
    }
    client = with_proxies(client, &settings.proxies)?;
    with_certificates(client, settings, base)
}

pub(super) fn build_client(client: ClientBuilder) -> Result<Client, SettingError> {
    client
        .build()
        .map_err(|error| SettingError::Tls(client_error::chain(&error.without_url())))
}

/// Returns the URL of a path. A version at the end of the base replaces the path's own; both queries are kept.
pub(super) fn request_url(base: &Url, path: &str) -> Url {
    let (path, query) = match path.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (path, None),
    };
    let mut url = base.clone();
    url.set_path(&join_path(base, path));
    if let Some(query) = query {
        let queries: Vec<&str> = base.query().into_iter().chain([query]).collect();
        url.set_query(Some(&queries.join("&")));
    }
    url
}

/// Appends a path to the base's path.
pub(super) fn join_path(base: &Url, path: &str) -> String {
    let prefix = base.path().trim_end_matches('/');
    let is_version = |segment: &str| {
        let digits = segment.strip_prefix('v').unwrap_or_default();
        digits.starts_with(|c: char| c.is_ascii_digit())
    };
    let versioned = prefix.rsplit('/').next().is_some_and(is_version);
    let path = match path.strip_prefix("/v1") {
        Some(rest) if versioned => rest,
        _ => path,
    };
    [prefix, path].concat()
}

fn convert_response(response: reqwest::Response) -> Response {
    Response {
        status: response.status().as_u16(),
        headers: header_pairs(response.headers()),
        body: response
            .bytes_stream()
            .map_err(|error| client_error::from_reqwest(&error))
            .boxed(),
    }
}

/// Returns the headers as text.
pub fn header_pairs(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), text(value)))
        .collect()
}

pub(super) fn parse_base_url(text: &str) -> Result<Url, SettingError> {
    let wrong = |problem| {
        // The text before an `@` or after a `?` may be a secret.
        let url = text.rsplit('@').next().unwrap_or_default();
        let url = url.split(['?', '#']).next().unwrap_or_default();
        let url = outlast_kernel::text::bounded(url, 200).into_owned();
        SettingError::BaseUrl { url, problem }
    };
    let url = Url::parse(text).map_err(|_| wrong("is not an address"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(wrong("is not an http or https address"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("holds a user name or a password"));
    }
    Ok(url)
}

pub(super) fn parse_headers(headers: &[(String, SecretString)]) -> Result<HeaderMap, SettingError> {
    headers
        .iter()
        .map(|(name, value)| parse_header(name, value.expose_secret()))
        .collect()
}

fn parse_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), SettingError> {
    let wrong = |problem| SettingError::Header {
        name: outlast_kernel::text::bounded(name, 100).into_owned(),
        problem,
    };
    let key = HeaderName::try_from(name).map_err(|_| wrong("is not a valid name"))?;
    let mut value =
        HeaderValue::try_from(value).map_err(|_| wrong("has a value that cannot be sent"))?;
    value.set_sensitive(true);
    Ok((key, value))
}

fn with_proxies(client: ClientBuilder, proxies: &Proxies) -> Result<ClientBuilder, SettingError> {
    let except = NoProxy::from_string(&proxies.no_proxy);
    let proxy = |address: Result<Proxy, reqwest::Error>| {
        let proxy = address.map_err(|_| SettingError::Proxy)?;
        Ok(proxy.no_proxy(except.clone()))
    };
    let mut client = client;
    if let Some(address) = &proxies.http {
        client = client.proxy(proxy(Proxy::http(address.expose_secret()))?);
    }
    if let Some(address) = &proxies.https {
        client = client.proxy(proxy(Proxy::https(address.expose_secret()))?);
    }
    Ok(client)
}

/// An `http` address needs no certificates, and must work on a machine that has none.
fn with_certificates(
    client: ClientBuilder,
    settings: &HttpSettings,
    base: &Url,
) -> Result<ClientBuilder, SettingError> {
    let own = match &settings.certificates {
        Some(pem) => Certificate::from_pem_bundle(pem).map_err(|_| SettingError::Certificates)?,
        None => Vec::new(),
    };
    if settings.certificates.is_some() && own.is_empty() {
        return Err(SettingError::Certificates);
    }
    Ok(if base.scheme() == "http" {
        client.tls_certs_only(own)
    } else {
        client.tls_certs_merge(own)
    })
}
