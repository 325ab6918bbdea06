//! The client: which server, and how long to wait for it.

use std::time::Duration;

use crate::{Error, Result};

/// Where `dwell serve` listens unless told otherwise.
pub const DEFAULT_SERVER: &str = "http://127.0.0.1:7411";

/// A connection to a server. Cloning is cheap, and clones share their connections.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) agent: ureq::Agent,
    pub(crate) server: Box<str>,
    pub(crate) answer_ms: u64,
    patience_ms: u64,
}

/// How a [`Client`] behaves.
#[derive(Clone, Debug)]
pub struct Builder {
    server: String,
    connect_ms: u64,
    answer_ms: u64,
    patience_ms: u64,
}

impl Builder {
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
    /// [`Error::BadServer`].
    pub fn build(self) -> Result<Client> {
        let server = self.server.trim_end_matches('/').into();
        check(&self.server)?;
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .user_agent(concat!("dwell/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(Duration::from_millis(self.connect_ms)))
            .max_idle_connections_per_host(16)
            .build()
            .into();
        Ok(Client { agent, server, answer_ms: self.answer_ms, patience_ms: self.patience_ms })
    }
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
        Builder { server: url.to_owned(), connect_ms: 5_000, answer_ms: 60_000, patience_ms: 5_000 }
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
        Some("http") => {}
        Some("https") => return Err(bad("this client speaks no TLS; let a proxy of yours do so")),
        _ => return Err(bad("http:// is missing")),
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
        for good in ["http://127.0.0.1:7411", "http://localhost", "http://[::1]:7411/"] {
            assert!(Client::new(good).is_ok(), "{good}");
        }
        for bad in
            ["", "127.0.0.1:7411", "localhost:7411", "https://x", "http://x/y", "http://u@x", "ftp://x"]
        {
            assert_eq!(Client::new(bad).unwrap_err().code(), "bad_server", "{bad}");
        }
    }
}
