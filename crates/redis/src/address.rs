//! Where a Redis is, and how to speak to it: all of it in one URL.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use percent_encoding::percent_decode_str;

use crate::OpenError;

/// A parsed URL.
///
/// | URL | means |
/// |---|---|
/// | `redis://[user:password@]host[:6379][/db]` | one server |
/// | `redis+unix:///path/to/socket[?db=1]` | one server, over its socket |
/// | `redis-sentinel://[user:password@]host:26379,host2:26379/service[/db]` | the primary that Sentinels name |
/// | `redis-cluster://[user:password@]host:7000,host2:7000` | a cluster, found through these nodes |
///
/// `rediss`, `rediss-sentinel` and `rediss-cluster` speak TLS, with the certificates that the system trusts. User and
/// password are percent-encoded. Options follow as `?name=value&…`:
///
/// - `prefix`: what all keys begin with, `dwell` by default
/// - `connections`: how many connections share the calls, 1 to 64, 2 by default
/// - `timeout_ms`: how long one call to the server may take, 5,000 by default
/// - `retry_ms`: how long a call is tried again while Redis is away, 10,000 by default
/// - `client`: the name of this process, for leases that are bound to it; random by default
/// - `wait`, `waitaof`, `wait_ms`: how many replicas must have confirmed a write (and, with `waitaof=1`, that this
///   server's own append-only file has it) within so long, 1,000 by default, before it is answered
/// - `sentinel_user`, `sentinel_password`: the login at the Sentinels
///
/// ```
/// use dwell_redis::{Address, Kind};
/// let address: Address = "redis://:secret@10.0.0.7/2?prefix=shop".parse().unwrap();
/// assert_eq!((address.kind(), address.prefix()), (Kind::Single, "shop"));
/// assert_eq!(address.to_string(), "redis://10.0.0.7:6379/2");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    pub(crate) kind: Kind,
    pub(crate) tls: bool,
    pub(crate) nodes: Vec<Node>,
    pub(crate) service: Option<String>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) sentinel_user: Option<String>,
    pub(crate) sentinel_password: Option<String>,
    pub(crate) db: i64,
    pub(crate) prefix: String,
    pub(crate) connections: usize,
    pub(crate) timeout_ms: u64,
    pub(crate) retry_ms: u64,
    pub(crate) client: Option<String>,
    pub(crate) confirm: Option<Confirm>,
}

/// What kind of deployment an address names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// One server.
    Single,
    /// A primary and its replicas, watched by Sentinels.
    Sentinel,
    /// A cluster.
    Cluster,
}

/// Where one server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Node {
    Tcp(String, u16),
    Unix(PathBuf),
}

/// What has to be confirmed before a write is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Confirm {
    pub(crate) replicas: u32,
    /// Whether the server's own append-only file must have it on disk, and those of the replicas.
    pub(crate) aof: bool,
    pub(crate) within_ms: u64,
}

impl Address {
    /// One server, a primary under Sentinels, or a cluster.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What all keys begin with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The same Redis under another prefix.
    pub fn with_prefix(self, prefix: &str) -> Address {
        Address { prefix: prefix.to_owned(), ..self }
    }

    /// The same Redis for a process of this name.
    pub fn with_client(self, client: &str) -> Address {
        Address { client: Some(client.to_owned()), ..self }
    }
}

impl FromStr for Address {
    type Err = OpenError;

    fn from_str(text: &str) -> Result<Address, OpenError> {
        parse(text).map_err(|reason| OpenError::Url { url: without_login(text), reason })
    }
}

fn parse(text: &str) -> Result<Address, String> {
    let (scheme, rest) = text.split_once("://").ok_or("it has no scheme such as redis://".to_owned())?;
    let (kind, tls, port) = match scheme {
        "redis" | "redis+unix" => (Kind::Single, false, 6379),
        "rediss" => (Kind::Single, true, 6379),
        "redis-sentinel" => (Kind::Sentinel, false, 26379),
        "rediss-sentinel" => (Kind::Sentinel, true, 26379),
        "redis-cluster" => (Kind::Cluster, false, 6379),
        "rediss-cluster" => (Kind::Cluster, true, 6379),
        other => {
            return Err(format!(
                "'{other}' is no scheme of ours: write redis, rediss, redis+unix, redis-sentinel or redis-cluster"
            ));
        }
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut address = Address {
        kind,
        tls,
        nodes: Vec::new(),
        service: None,
        user: None,
        password: None,
        sentinel_user: None,
        sentinel_password: None,
        db: 0,
        prefix: "dwell".to_owned(),
        connections: 2,
        timeout_ms: 5_000,
        retry_ms: 10_000,
        client: None,
        confirm: None,
    };
    let rest = match rest.rsplit_once('@') {
        Some((login, rest)) => {
            let (user, password) = login.split_once(':').unwrap_or((login, ""));
            address.user = Some(decoded(user)?).filter(|user| !user.is_empty());
            address.password = Some(decoded(password)?).filter(|password| !password.is_empty());
            rest
        }
        None => rest,
    };
    if scheme == "redis+unix" {
        if !rest.starts_with('/') {
            return Err("a socket's path is absolute: redis+unix:///run/redis.sock".to_owned());
        }
        address.nodes.push(Node::Unix(PathBuf::from(decoded(rest)?)));
    } else {
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        for host in hosts.split(',') {
            address.nodes.push(node(host, port)?);
        }
        path_of(&mut address, path)?;
    }
    if kind == Kind::Single && address.nodes.len() > 1 {
        return Err("one server has one host; write redis-cluster or redis-sentinel for more".to_owned());
    }
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    for pair in pairs {
        let (name, value) = pair.split_once('=').ok_or(format!("option '{pair}' has no value"))?;
        option(&mut address, name, &decoded(value)?)?;
    }
    Ok(address)
}

fn node(host: &str, default_port: u16) -> Result<Node, String> {
    // An IPv6 address stands in brackets.
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => {
            (name, port.parse().map_err(|_| format!("'{port}' is no port"))?)
        }
        _ => (host, default_port),
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    if name.is_empty() {
        return Err("it names no host".to_owned());
    }
    Ok(Node::Tcp(name.to_owned(), port))
}

fn path_of(address: &mut Address, path: &str) -> Result<(), String> {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    if address.kind == Kind::Sentinel {
        let service = parts.next().ok_or("a Sentinel URL names its service: …/mymaster".to_owned())?;
        address.service = Some(decoded(service)?);
    }
    if let Some(db) = parts.next() {
        address.db = database(db)?;
    }
    if address.kind == Kind::Cluster && address.db != 0 {
        return Err("a cluster has database 0 only".to_owned());
    }
    parts.next().map_or(Ok(()), |part| Err(format!("'/{part}' means nothing there")))
}

fn database(text: &str) -> Result<i64, String> {
    text.parse().ok().filter(|db| (0..=65_535).contains(db)).ok_or(format!("'{text}' is no database number"))
}

fn option(address: &mut Address, name: &str, value: &str) -> Result<(), String> {
    let number = |least: u64, most: u64| {
        let number = value.parse().ok().filter(|number| (least..=most).contains(number));
        number.ok_or(format!("{name}={value}: a whole number from {least} to {most} is expected"))
    };
    let none = Confirm { replicas: 0, aof: false, within_ms: 1_000 };
    match name {
        "prefix" => {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
            if value.is_empty() || value.len() > 64 || !value.bytes().all(plain) {
                return Err("a prefix is 1 to 64 of A-Z a-z 0-9 - _ . :".to_owned());
            }
            address.prefix = value.to_owned();
        }
        "db" => address.db = database(value)?,
        "connections" => address.connections = number(1, 64)? as usize,
        "timeout_ms" => address.timeout_ms = number(1, 600_000)?,
        "retry_ms" => address.retry_ms = number(0, 600_000)?,
        "client" => address.client = Some(value.to_owned()).filter(|name| !name.is_empty()),
        "wait" => address.confirm.get_or_insert(none).replicas = number(0, 1_000)? as u32,
        "waitaof" => address.confirm.get_or_insert(none).aof = number(0, 1)? == 1,
        "wait_ms" => address.confirm.get_or_insert(none).within_ms = number(1, 600_000)?,
        "sentinel_user" => address.sentinel_user = Some(value.to_owned()),
        "sentinel_password" => address.sentinel_password = Some(value.to_owned()),
        _ => return Err(format!("'{name}' is no option")),
    }
    Ok(())
}

fn decoded(text: &str) -> Result<String, String> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(|text| text.into_owned()).map_err(|_| "a percent-encoded part is not UTF-8".to_owned())
}

fn without_login(text: &str) -> String {
    match (text.split_once("://"), text.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://…@{rest}"),
        _ => text.to_owned(),
    }
}

impl fmt::Display for Address {
    /// Without user, password and options: fit for a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tls = if self.tls { "s" } else { "" };
        if let Some(Node::Unix(path)) = self.nodes.first() {
            return write!(f, "redis+unix://{}", path.display());
        }
        let kind = match self.kind {
            Kind::Single => "",
            Kind::Sentinel => "-sentinel",
            Kind::Cluster => "-cluster",
        };
        write!(f, "redis{tls}{kind}://")?;
        for (index, node) in self.nodes.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{node}")?;
        }
        if let Some(service) = &self.service {
            write!(f, "/{service}")?;
        }
        if self.db != 0 { write!(f, "/{}", self.db) } else { Ok(()) }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Node::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Node::Tcp(host, port) => write!(f, "{host}:{port}"),
            Node::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> String {
        url.parse::<Address>().expect_err(url).to_string()
    }

    #[test]
    fn every_part_of_a_url_is_read() {
        let address: Address =
            "rediss://me:p%40ss@[::1]:7000/3?connections=4&client=a&wait=1&wait_ms=50".parse().unwrap();
        assert_eq!((address.kind, address.tls, address.db, address.connections), (Kind::Single, true, 3, 4));
        assert_eq!(address.nodes, [Node::Tcp("::1".to_owned(), 7000)]);
        assert_eq!((address.user.as_deref(), address.password.as_deref()), (Some("me"), Some("p@ss")));
        assert_eq!(address.confirm, Some(Confirm { replicas: 1, aof: false, within_ms: 50 }));
        assert_eq!(format!("{address:?}"), "rediss://[::1]:7000/3");
        let address: Address = "redis-sentinel://a,b:1/main/2".parse().unwrap();
        assert_eq!((address.service.as_deref(), address.db), (Some("main"), 2));
        assert_eq!(address.nodes, [Node::Tcp("a".to_owned(), 26379), Node::Tcp("b".to_owned(), 1)]);
        let address: Address = "redis+unix:///run/r%20s.sock?db=4".parse().unwrap();
        assert_eq!((&address.nodes[0], address.db), (&Node::Unix("/run/r s.sock".into()), 4));
    }

    #[test]
    fn a_bad_url_is_refused_with_the_reason_and_without_its_password() {
        assert!(refused("http://x").contains("no scheme of ours"));
        assert!(refused("redis://a,b").contains("one host"));
        assert!(refused("redis://").contains("no host"));
        assert!(refused("redis://a/x").contains("database"));
        assert!(refused("redis-cluster://a/1").contains("database 0"));
        assert!(refused("redis-sentinel://a").contains("service"));
        assert!(refused("redis://a?prefix={x}").contains("prefix"));
        assert!(refused("redis://a?connections=0").contains("1 to 64"));
        assert!(!refused("redis://u:secret@a?x=1").contains("secret"));
    }
}
