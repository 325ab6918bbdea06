//! The destination of a message: the URL of a sink, or one that a message names and whose host is allowed.

use std::fmt;
use std::str::FromStr;

use hyper::Uri;
use hyper::header::HeaderValue;
use hyper::http::uri::PathAndQuery;

use crate::error::excerpt;
use crate::{Error, Result};

/// The origin that a connection leads to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Origin {
    pub(super) is_tls: bool,
    /// A name in lower case or an address, without the brackets of IPv6.
    pub(super) host: String,
    pub(super) port: u16,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let colon = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{}{}{}:{}", colon.0, self.host, colon.1, self.port)
    }
}

/// A URL that requests can be sent to. Its path may be a secret, so no debug output shows it.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) origin: Origin,
    /// The value of `Host`.
    pub(super) authority: HeaderValue,
    pub(super) path: PathAndQuery,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Target").field(&self.origin).finish()
    }
}

impl FromStr for Target {
    type Err = Error;

    /// # Errors
    /// [`Error::InvalidSink`] for text that is not an `http://` or `https://` URL, and for one with a user or a
    /// password.
    fn from_str(text: &str) -> Result<Target> {
        let refuse = |reason: &str| {
            let reason = format!("'{}' {reason}; write https://host/path", without_secrets(text));
            Error::InvalidSink { reason: reason.into() }
        };
        let uri: Uri = text.parse().map_err(|_| refuse("is no URL"))?;
        let is_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(refuse("begins with neither http:// nor https://")),
        };
        let authority = uri.authority().ok_or_else(|| refuse("names no host"))?;
        if authority.as_str().contains('@') {
            return Err(refuse("has a user in it, which requests do not carry"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        // A name with a trailing dot is the same name.
        let host = host.strip_suffix('.').unwrap_or(&host).to_owned();
        // `port_u16` ignores text after a colon that is not a port.
        let port = match authority.as_str().rsplit_once(':') {
            Some((_, after)) if !after.ends_with(']') => authority.port_u16(),
            _ => Some(default_port(is_tls)),
        };
        let port = port.filter(|port| *port > 0).ok_or_else(|| refuse("has a port that is none"))?;
        if host.is_empty() {
            return Err(refuse("names no host"));
        }
        let value = HeaderValue::from_str(authority.as_str()).map_err(|_| refuse("is no URL"))?;
        let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        Ok(Target { origin: Origin { is_tls, host, port }, authority: value, path })
    }
}

fn default_port(is_tls: bool) -> u16 {
    if is_tls { 443 } else { 80 }
}

/// A URL as a refusal may show it: the parts before `@` and after the host may be secrets. Many services have one in
/// the path.
fn without_secrets(text: &str) -> Box<str> {
    let (scheme, rest) = text.split_once("://").map_or(("", text), |(scheme, rest)| (scheme, rest));
    let slashes = if scheme.is_empty() { "" } else { "://" };
    // A password may contain any character, including one that would end the host.
    if rest.contains('@') {
        return excerpt(&format!("{scheme}{slashes}…"));
    }
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let path = if host.len() == rest.len() { "" } else { "/…" };
    excerpt(&format!("{scheme}{slashes}{host}{path}"))
}

/// Hosts that a URL in a message may name: `example.com`, `*.example.com` for its subdomains, `*` for any. Without a
/// port, the one of the scheme alone; `example.com:8443` for another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostPattern {
    name: Name,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Name {
    Any,
    Is(String),
    /// With the leading dot.
    EndsWith(String),
}

impl HostPattern {
    pub(super) fn matches(&self, origin: &Origin) -> bool {
        if origin.port != self.port.unwrap_or(default_port(origin.is_tls)) {
            return false;
        }
        match &self.name {
            Name::Any => true,
            Name::Is(name) => *name == origin.host,
            Name::EndsWith(suffix) => origin.host.ends_with(suffix) && origin.host.len() > suffix.len(),
        }
    }
}

impl FromStr for HostPattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<HostPattern> {
        let refuse = || Error::InvalidSink {
            reason: format!(
                "'{}' names no host; write example.com, *.example.com or example.com:8443",
                excerpt(text)
            )
            .into(),
        };
        let lower = text.to_ascii_lowercase();
        let (host, port) = match lower.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, Some(port.parse().ok().filter(|port| *port > 0).ok_or_else(refuse)?))
            }
            _ => (&*lower, None),
        };
        let is_name = |name: &str| {
            let byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            !name.is_empty() && !name.starts_with('.') && !name.ends_with('.') && name.bytes().all(byte)
        };
        let name = if host == "*" {
            Name::Any
        } else if let Some(suffix) = host.strip_prefix("*.") {
            if !is_name(suffix) {
                return Err(refuse());
            }
            Name::EndsWith(format!(".{suffix}"))
        } else if let Some(address) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            let address: std::net::Ipv6Addr = address.parse().map_err(|_| refuse())?;
            Name::Is(address.to_string())
        } else if is_name(host) {
            Name::Is(host.to_owned())
        } else {
            return Err(refuse());
        };
        Ok(HostPattern { name, port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Target {
        url.parse().unwrap()
    }

    #[test]
    fn a_url_is_taken_apart() {
        let cases = [
            ("https://Example.com/a/b?c=d", true, "example.com", 443, "Example.com", "/a/b?c=d"),
            ("http://example.com", false, "example.com", 80, "example.com", "/"),
            ("http://example.com.:8080/", false, "example.com", 8080, "example.com.:8080", "/"),
            ("https://[2606:4700::1]/x", true, "2606:4700::1", 443, "[2606:4700::1]", "/x"),
            ("https://[2606:4700::1]:1/x", true, "2606:4700::1", 1, "[2606:4700::1]:1", "/x"),
        ];
        for (url, is_tls, host, port, authority, path) in cases {
            let target = target(url);
            assert_eq!(target.origin, Origin { is_tls, host: host.into(), port }, "{url}");
            assert_eq!((target.authority.to_str().unwrap(), target.path.as_str()), (authority, path));
        }
        assert_eq!(target("https://[2606:4700::1]/").origin.to_string(), "[2606:4700::1]:443");
    }

    #[test]
    fn a_url_that_cannot_be_sent_to_is_refused_without_its_secrets() {
        let cases = [
            "",
            "/path",
            "example.com",
            "ftp://example.com/",
            "http://",
            "http:///path",
            "http://example.com:0/",
            "http://example.com:70000/",
            "http://example.com:x/",
            "http://exa mple.com/",
            "https://me:s3cret@example.com/",
            "s3cret@example.com",
            "ftp://example.com/?token=s3cret",
            "ftp://example.com/services/s3cret",
            "example.com/services/s3cret",
            "ftp://me@example.com/s3cret",
            "https://me:a/s3cret@example.com/",
            "ftp://example.com/me@s3cret",
        ];
        for url in cases {
            let error = url.parse::<Target>().unwrap_err();
            assert_eq!(error.code(), "invalid_sink", "{url}");
            assert!(!error.to_string().contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn no_debug_output_shows_what_may_be_a_password() {
        let text = format!("{:?}", target("https://hooks.example.com/services/s3cret?token=s3cret"));
        assert!(text.contains("hooks.example.com") && !text.contains("s3cret"), "{text}");
    }

    #[test]
    fn a_pattern_matches_hosts_and_ports() {
        let matches =
            |pattern: &str, url: &str| pattern.parse::<HostPattern>().unwrap().matches(&target(url).origin);
        assert!(matches("Example.com", "https://example.com/x"));
        assert!(matches("example.com", "http://EXAMPLE.com./"));
        assert!(matches("example.com:8443", "https://example.com:8443/"));
        assert!(matches("*.example.com", "https://a.b.example.com/"));
        assert!(matches("*", "https://10.0.0.1/"));
        assert!(matches("[::1]:8080", "http://[::1]:8080/"));
        for (pattern, url) in [
            ("example.com", "https://a.example.com/"),
            ("example.com", "https://example.com.evil.net/"),
            ("example.com", "https://example.com:22/"),
            ("example.com", "http://example.com:443/"),
            ("example.com:8443", "https://example.com/"),
            ("*.example.com", "https://example.com/"),
            ("*.example.com", "https://evilexample.com/"),
            ("*", "https://example.com:6379/"),
        ] {
            assert!(!matches(pattern, url), "{pattern} {url}");
        }
    }

    #[test]
    fn what_names_no_host_is_refused() {
        for pattern in
            ["", "*.", "a*.example.com", "https://example.com", "a/b", "a:", "a:0", "[::g]", ".a", "a."]
        {
            let error = pattern.parse::<HostPattern>().unwrap_err();
            assert_eq!(error.code(), "invalid_sink", "{pattern}");
        }
    }
}
