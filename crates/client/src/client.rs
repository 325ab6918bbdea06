//! The client: the server's address, the credentials and the timeouts.

use std::fmt;
use std::sync::{Arc, OnceLock};

use dwell_model::Limits;
use dwell_wire::ServerInfo;
use hyper::Uri;
use hyper::header::HeaderValue;

use crate::OpenError;
use crate::reactor::Reactor;
use crate::takes::Takes;
use crate::tls::{self, Credentials};
use crate::transport::{ServerAddress, Transport};

/// The address where `dwell serve` listens by default.
pub const DEFAULT_SERVER: &str = "http://127.0.0.1:7411";

/// The store of a server. Cloning is cheap, and clones share their connections.
///
/// Its calls run on the thread that polls them, and need no async runtime.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
}

/// What all calls of a client share.
pub(crate) struct Inner {
    pub(crate) transport: Transport,
    pub(crate) reactor: Arc<Reactor>,
    /// The address as it was given.
    pub(crate) server: Box<str>,
    /// `Bearer TOKEN`; marked as secret.
    pub(crate) authorization: Option<HeaderValue>,
    pub(crate) answer_ms: u64,
    pub(crate) patience_ms: u64,
    /// The server's limits, once they have been requested.
    pub(crate) info: OnceLock<(ServerInfo, Limits)>,
    /// The limits that are assumed before that.
    pub(crate) default_limits: Limits,
    pub(crate) takes: Takes,
}

/// A secret text: it is sent to the server, and shown nowhere else.
#[derive(Clone)]
struct Secret(Box<str>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("server", &self.inner.server).finish_non_exhaustive()
    }
}

/// The options of a [`Client`].
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
    /// The token that identifies the caller to the server.
    #[must_use]
    pub fn token(self, token: &str) -> Builder {
        Builder { token: Some(Secret(token.into())), ..self }
    }

    /// Certificates in PEM: the server's has to be signed by one of them. By default, by one that Mozilla trusts.
    #[must_use]
    pub fn ca_pem(self, pem: &[u8]) -> Builder {
        Builder { ca: Some(pem.into()), ..self }
    }

    /// The client's own certificate with its chain, and its key, in PEM.
    #[must_use]
    pub fn certificate_pem(self, certificate: &[u8], key: &str) -> Builder {
        Builder { certificate: Some((certificate.into(), Secret(key.into()))), ..self }
    }

    /// The timeout for connecting, in milliseconds; 5,000 by default.
    #[must_use]
    pub fn connect_ms(self, connect_ms: u64) -> Builder {
        Builder { connect_ms, ..self }
    }

    /// The timeout for an answer, beyond the wait of a take, in milliseconds; 60,000 by default.
    #[must_use]
    pub fn answer_ms(self, answer_ms: u64) -> Builder {
        Builder { answer_ms, ..self }
    }

    /// How long a harmless call is retried after its answer was lost, in milliseconds; 5,000 by default.
    #[must_use]
    pub fn patience_ms(self, patience_ms: u64) -> Builder {
        Builder { patience_ms, ..self }
    }

    /// Makes the client. It connects on first use.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn build(self) -> Result<Client, OpenError> {
        let mut place = place(&self.server)?;
        let authorization = self.token.as_ref().map(authorization).transpose()?;
        // Checked even without TLS, so that a bad file is reported at once.
        let certificate = self.certificate.as_ref().map(|(certificate, key)| (&**certificate, &*key.0));
        let config = tls::config(&Credentials { ca: self.ca.as_deref(), certificate })?;
        if self.server.starts_with("https:") {
            place.tls = Some(config);
        }
        let inner = Inner {
            transport: Transport::new(place, self.connect_ms),
            reactor: Reactor::shared()?,
            server: self.server.trim_end_matches('/').into(),
            authorization,
            answer_ms: self.answer_ms,
            patience_ms: self.patience_ms,
            info: OnceLock::new(),
            default_limits: Limits::default(),
            takes: Takes::default(),
        };
        Ok(Client { inner: Arc::new(inner) })
    }
}

/// The value of the `Authorization` header. A token with bytes that no header may have is refused.
fn authorization(token: &Secret) -> Result<HeaderValue, OpenError> {
    let token = token.0.trim_ascii();
    let value = HeaderValue::try_from(format!("Bearer {token}")).ok();
    let value = value.filter(|_| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()));
    let mut value = value.ok_or_else(|| OpenError::BadCredentials {
        reason: "a token has visible ASCII characters alone, and one at least".into(),
    })?;
    value.set_sensitive(true);
    Ok(value)
}

impl Client {
    /// A client of the server at `url`, such as `http://127.0.0.1:7411`.
    ///
    /// # Errors
    /// [`OpenError::BadServer`], [`OpenError::Threads`].
    pub fn new(url: &str) -> Result<Client, OpenError> {
        Client::builder(url).build()
    }

    /// A client with options.
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
        &self.inner.server
    }

    /// The number of queues that takes of this client wait on, for tests.
    #[doc(hidden)]
    pub fn waits_for_test(&self) -> u64 {
        self.inner.takes.waits()
    }

    /// Whether nothing is under way for callers that have been dropped, for tests.
    #[doc(hidden)]
    pub fn is_quiet_for_test(&self) -> bool {
        self.inner.takes.are_quiet()
    }
}

/// Parses a URL into the server's address.
fn place(url: &str) -> Result<ServerAddress, OpenError> {
    let bad = |reason: &str| OpenError::BadServer { url: url.into(), reason: reason.into() };
    let uri: Uri = url.parse().map_err(|_| bad("it is no URL"))?;
    let port = match uri.scheme_str() {
        Some("http") => 80,
        Some("https") => 443,
        _ => return Err(bad("http:// or https:// is missing")),
    };
    let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'));
    let authority = authority.ok_or_else(|| bad("a host is needed, and no user"))?;
    if !uri.path().trim_end_matches('/').is_empty() || uri.query().is_some() {
        return Err(bad("a path has no place in it"));
    }
    Ok(ServerAddress {
        host: authority.host().trim_matches(['[', ']']).to_owned(),
        port: authority.port_u16().unwrap_or(port),
        authority: HeaderValue::try_from(authority.as_str()).map_err(|_| bad("it is no URL"))?,
        tls: None,
    })
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
        assert_eq!(place("http://[::1]:7411/").unwrap().host, "::1");
        assert_eq!(place("https://dwell.example").unwrap().port, 443);
    }

    #[test]
    fn a_token_is_checked_and_never_shown() {
        let with = |token: &str| Client::builder("http://localhost").token(token).build();
        let client = with("hush\n").unwrap();
        assert_eq!(client.inner.authorization.as_ref().unwrap(), "Bearer hush");
        assert!(!format!("{client:?} {:?}", client.inner.authorization).contains("hush"));
        assert!(!format!("{:?}", Client::builder("http://localhost").token("hush")).contains("hush"));
        for bad in ["", " ", "two words", "a\nb", "t\u{f6}ken"] {
            assert_eq!(with(bad).unwrap_err().code(), "bad_credentials", "{bad}");
        }
        let no_pem = Client::builder("https://localhost").ca_pem(b"no PEM").build();
        assert_eq!(no_pem.unwrap_err().code(), "bad_credentials");
    }
}
