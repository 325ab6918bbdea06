//! Checks a request's `Host` and `Origin`: the defence against foreign web pages.
//!
//! A foreign page can make a browser send requests to a port of this machine, in two ways:
//! 1. Directly to `http://localhost:7411`. The browser then names the page in `Origin` (of all requests that can change
//!    something), and that is not one of ours.
//! 2. By DNS rebinding: its own name is made to resolve to 127.0.0.1, and its requests have the same origin as far as
//!    the browser knows. But then `Host` is that name, which is not one of ours either.

use std::net::{IpAddr, SocketAddr};

use axum::http::uri::Authority;
use axum::http::{Uri, header, request};

use super::{HttpRefusal, Problem};

/// The host names that this server accepts.
#[derive(Debug)]
pub(crate) struct Hosts {
    port: u16,
    configured: Vec<(String, Option<u16>)>,
}

impl Hosts {
    /// For a listener on `port`, with further names as in [`HttpConfig::hosts`](crate::HttpConfig::hosts). An invalid
    /// name matches nothing.
    pub(crate) fn new(port: u16, names: &[String]) -> Hosts {
        let configured = names.iter().filter_map(|name| authority(name)).collect();
        Hosts { port, configured }
    }

    /// Refuses requests for other hosts, and those from foreign pages. `local` is the address that the connection came
    /// in on.
    pub(crate) fn check(&self, request: &request::Parts, local: SocketAddr) -> Result<(), Problem> {
        let mut hosts = request.headers.get_all(header::HOST).iter();
        let host = hosts.next().and_then(|host| host.to_str().ok()).unwrap_or_default();
        let in_target = request.uri.authority().map_or(host, Authority::as_str);
        if hosts.next().is_some() || !self.has_host(host, local) || !self.has_host(in_target, local) {
            let named = if host.is_empty() { "no host" } else { host };
            return Err(Problem::new(
                HttpRefusal::ForeignHost,
                format!(
                    "the request names {named:.200} as its host; this server is localhost, 127.0.0.1, [::1] and \
                     {local}, with port {}, and the names it was configured with",
                    self.port
                ),
            ));
        }
        for origin in request.headers.get_all(header::ORIGIN) {
            let origin = origin.to_str().unwrap_or_default();
            if !self.has_origin(origin, local) {
                return Err(Problem::new(
                    HttpRefusal::ForeignOrigin,
                    format!(
                        "the request comes from a page of '{origin:.200}', which is not this server's own"
                    ),
                ));
            }
        }
        Ok(())
    }

    /// A host without a port is taken to have the listener's.
    fn has_host(&self, host: &str, local: SocketAddr) -> bool {
        authority(host).is_some_and(|(name, port)| self.has(&name, port.unwrap_or(self.port), local))
    }

    /// An origin without a port has its scheme's default.
    fn has_origin(&self, origin: &str, local: SocketAddr) -> bool {
        let Ok(uri) = origin.parse::<Uri>() else { return false };
        let scheme_port = match uri.scheme_str() {
            Some("http") => 80,
            Some("https") => 443,
            _ => return false,
        };
        let named = uri.authority().and_then(|named| authority(named.as_str()));
        named.is_some_and(|(name, port)| self.has(&name, port.unwrap_or(scheme_port), local))
    }

    fn has(&self, name: &str, port: u16, local: SocketAddr) -> bool {
        let own = port == self.port && (name == "localhost" || is_own_address(name, local.ip()));
        own || self
            .configured
            .iter()
            .any(|(own, own_port)| own == name && own_port.is_none_or(|own| own == port))
    }
}

/// Whether it is loopback, or the address that the client has connected to.
fn is_own_address(name: &str, local: IpAddr) -> bool {
    let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    let Ok(address) = bare.parse::<IpAddr>() else { return false };
    address == IpAddr::from([127, 0, 0, 1])
        || address == IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])
        || address.to_canonical() == local.to_canonical()
}

/// A name in lower case and a port, if there is one.
fn authority(text: &str) -> Option<(String, Option<u16>)> {
    let authority: Authority = text.parse().ok()?;
    let plain = !text.contains('@');
    let port = match authority.port() {
        Some(port) => Some(port.as_str().parse().ok()?),
        None => None,
    };
    plain.then(|| (authority.host().to_ascii_lowercase(), port))
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn refusal(headers: &[(&str, &str)], target: &str) -> Option<String> {
        let hosts = Hosts::new(7411, &["dwell.example".to_owned(), "proxy.example:80".to_owned()]);
        let mut request = Request::builder().uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let problem = hosts.check(&parts, "10.0.0.5:7411".parse().unwrap()).err()?;
        Some(serde_json::to_value(problem).unwrap()["code"].as_str().unwrap().to_owned())
    }

    #[test]
    fn own_hosts_pass() {
        for host in [
            "localhost:7411",
            "localhost",
            "LOCALHOST:7411",
            "127.0.0.1:7411",
            "[::1]:7411",
            "[::1]",
            "10.0.0.5:7411",
            "dwell.example",
            "dwell.example:9",
            "proxy.example:80",
        ] {
            assert_eq!(refusal(&[("host", host)], "/"), None, "{host}");
        }
    }

    #[test]
    fn foreign_hosts_are_refused() {
        for host in [
            "",
            "evil.example",
            "evil.example:7411",
            "localhost:80",
            "localhost.evil.example:7411",
            "127.0.0.2",
            "localhost.",
            "10.0.0.6:7411",
            "a@localhost:7411",
            "[::2]:7411",
            "proxy.example:7412",
            "local host",
        ] {
            assert_eq!(refusal(&[("host", host)], "/").as_deref(), Some("foreign_host"), "{host}");
        }
        assert_eq!(refusal(&[], "/").as_deref(), Some("foreign_host"));
        let twice = [("host", "localhost"), ("host", "evil.example")];
        assert_eq!(refusal(&twice, "/").as_deref(), Some("foreign_host"));
        assert_eq!(
            refusal(&[("host", "localhost")], "http://evil.example/").as_deref(),
            Some("foreign_host")
        );
    }

    #[test]
    fn foreign_origins_are_refused() {
        let origin = |origin| refusal(&[("host", "localhost:7411"), ("origin", origin)], "/");
        for own in [
            "http://localhost:7411",
            "http://127.0.0.1:7411",
            "https://dwell.example",
            "http://proxy.example",
        ] {
            assert_eq!(origin(own), None, "{own}");
        }
        for foreign in
            ["null", "", "http://evil.example", "http://localhost:3000", "http://localhost", "file://"]
        {
            assert_eq!(origin(foreign).as_deref(), Some("foreign_origin"), "{foreign}");
        }
    }
}
