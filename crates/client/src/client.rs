//! The client: which server, and how long to wait for it.

use std::fmt;
use std::time::Duration;

use ureq::tls::{Certificate, ClientCert, PemItem, RootCerts, TlsConfig, parse_pem};

use crate::{Error, Result};

/// Where `dwell serve` listens unless told otherwise.
pub const DEFAULT_SERVER: &str = "http://127.0.0.1:7411";

/// A connection to a server. Cloning is cheap, and clones share their connections.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) agent: ureq::Agent,
    pub(crate) server: Box<str>,
    pub(crate) answer_ms: u64,
    /// `Bearer TOKEN`.
    pub(crate) authorization: Option<Secret>,
    patience_ms: u64,
}

/// A text that is shown to nobody but the server.
#[derive(Clone)]
pub(crate) struct Secret(pub(crate) Box<str>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// How a [`Client`] behaves.
#[derive(Clone, Debug)]
pub struct Builder {
    server: String,
    connect_ms: u64,
    answer_ms: u64,
    patience_ms: u64,
    token: Option<Secret>,
    ca: Option<Box<[u8]>>,
    certificate: Option<(Box<[u8]>, Secret)>,
}

impl Builder {
    /// The token that the server is to know the caller by.
    pub fn token(self, token: &str) -> Builder {
        Builder { token: Some(Secret(token.into())), ..self }
    }

    /// Certificates in PEM: the server's has to be signed by one of them, or be one of them. Without any, by one
    /// of those that Mozilla trusts.
    pub fn ca_pem(self, pem: &[u8]) -> Builder {
        Builder { ca: Some(pem.into()), ..self }
    }

    /// The client's own certificate with those behind it, and its key, in PEM.
    pub fn certificate_pem(self, certificate: &[u8], key: &str) -> Builder {
        Builder { certificate: Some((certificate.into(), Secret(key.into()))), ..self }
    }

    /// How long a connection may take to come about, in milliseconds; 5,000 by default.
    pub fn connect_ms(self, connect_ms: u64) -> Builder {
        Builder { connect_ms, ..self }
    }

    /// How long an answer may take over what a take waits anyway, in milliseconds; 60,000 by default.
    pub fn answer_ms(self, answer_ms: u64) -> Builder {
        Builder { answer_ms, ..self }
    }

    /// How long a harmless call is repeated after its answer was lost, in milliseconds; 5,000 by default.
    pub fn patience_ms(self, patience_ms: u64) -> Builder {
        Builder { patience_ms, ..self }
    }

    /// The client. It connects when it is first used.
    ///
    /// # Errors
    /// [`Error::BadServer`], [`Error::BadCredentials`].
    pub fn build(self) -> Result<Client> {
        let server = self.server.trim_end_matches('/').into();
        check(&self.server)?;
        let authorization = self.token.as_ref().map(authorization).transpose()?;
        let tls = self.tls()?;
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .user_agent(concat!("dwell/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(Duration::from_millis(self.connect_ms)))
            .max_idle_connections_per_host(16)
            .tls_config(tls)
            .build()
            .into();
        let (answer_ms, patience_ms) = (self.answer_ms, self.patience_ms);
        Ok(Client { agent, server, answer_ms, authorization, patience_ms })
    }

    fn tls(&self) -> Result<TlsConfig> {
        let mut tls = TlsConfig::builder();
        if let Some(pem) = &self.ca {
            tls = tls.root_certs(RootCerts::new_with_certs(&certificates(pem, "the authority's file")?));
        }
        if let Some((certificate, key)) = &self.certificate {
            let chain = certificates(certificate, "the certificate's file")?;
            let mut items = parse_pem(key.0.as_bytes()).filter_map(std::result::Result::ok);
            let key = items.find_map(|item| match item {
                PemItem::PrivateKey(key) => Some(key),
                _ => None,
            });
            let key = key.ok_or_else(|| bad_credentials("the key's file holds no private key in PEM"))?;
            tls = tls.client_cert(Some(ClientCert::new_with_certs(&chain, key)));
        }
        Ok(tls.build())
    }
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<Certificate<'static>>> {
    let certificates: Vec<_> = parse_pem(pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if certificates.is_empty() {
        return Err(bad_credentials(&format!("{what} holds no certificate in PEM")));
    }
    Ok(certificates)
}

/// The header's value; what can not stand in a header is no token.
fn authorization(token: &Secret) -> Result<Secret> {
    let token = token.0.trim_ascii();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(bad_credentials("a token has visible ASCII characters alone, and one at least"));
    }
    Ok(Secret(format!("Bearer {token}").into()))
}

fn bad_credentials(reason: &str) -> Error {
    Error::BadCredentials { reason: reason.into() }
}

impl Client {
    /// A client of the server at `url`, such as `http://127.0.0.1:7411`.
    ///
    /// # Errors
    /// [`Error::BadServer`].
    pub fn new(url: &str) -> Result<Client> {
        Client::builder(url).build()
    }

    /// A client that behaves differently.
    pub fn builder(url: &str) -> Builder {
        Builder {
            server: url.to_owned(),
            connect_ms: 5_000,
            answer_ms: 60_000,
            patience_ms: 5_000,
            token: None,
            ca: None,
            certificate: None,
        }
    }

    /// The server's address as it was given.
    pub fn server(&self) -> &str {
        &self.server
    }

    pub(crate) fn patience_ms(&self) -> u64 {
        self.patience_ms
    }
}

fn check(url: &str) -> Result<()> {
    let bad = |reason: &str| Error::BadServer { url: url.into(), reason: reason.into() };
    let uri: ureq::http::Uri = url.parse().map_err(|_| bad("it is no URL"))?;
    match uri.scheme_str() {
        Some("http" | "https") => {}
        _ => return Err(bad("http:// or https:// is missing")),
    }
    if uri.authority().is_none_or(|authority| authority.as_str().contains('@')) {
        return Err(bad("a host is needed, and no user"));
    }
    if !uri.path().trim_end_matches('/').is_empty() || uri.query().is_some() {
        return Err(bad("a path has no place in it"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_checked_before_it_is_used() {
        for good in
            ["http://127.0.0.1:7411", "http://localhost", "http://[::1]:7411/", "https://dwell.example"]
        {
            assert!(Client::new(good).is_ok(), "{good}");
        }
        for bad in
            ["", "127.0.0.1:7411", "localhost:7411", "http://x/y", "https://x/y", "http://u@x", "ftp://x"]
        {
            assert_eq!(Client::new(bad).unwrap_err().code(), "bad_server", "{bad}");
        }
    }
    #[test]
    fn a_token_is_checked_and_never_shown() {
        let with = |token: &str| Client::builder("http://localhost").token(token).build();
        let client = with("hush\n").unwrap();
        assert_eq!(client.authorization.as_ref().map(|secret| &*secret.0), Some("Bearer hush"));
        assert!(!format!("{client:?}").contains("hush"));
        for bad in ["", " ", "two words", "a\nb", "t\u{f6}ken"] {
            assert_eq!(with(bad).unwrap_err().code(), "bad_credentials", "{bad}");
        }
        let no_pem = Client::builder("https://localhost").ca_pem(b"no PEM").build();
        assert_eq!(no_pem.unwrap_err().code(), "bad_credentials");
    }
}
