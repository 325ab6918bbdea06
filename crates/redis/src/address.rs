//! The address of a Redis and how to connect to it, in one URL.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

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
/// `rediss`, `rediss-sentinel` and `rediss-cluster` speak TLS. User and password are percent-encoded. Options follow as
/// `?name=value&…`:
///
/// - `prefix`: the common prefix of all keys, `dwell` by default
/// - `connections`: the number of connections that share the calls, 1 to 64, 2 by default
/// - `timeout_ms`: how long one call to the server may take, 5,000 by default
/// - `retry_ms`: how long a call is retried while Redis is away, 10,000 by default and 60,000 at most, which is how long
///   the server keeps the answer for a repeated call
/// - `client`: the name of this process, for session leases; random by default
/// - `wait`, `waitaof`, `wait_ms`: the number of replicas that must have confirmed a write (and, with `waitaof=1`, that
///   this server's own append-only file has it) before it is answered, and the time limit for that, 1,000 by default
/// - `sentinel_user`, `sentinel_password`: the login at the Sentinels
/// - `ca`: a PEM file of certificate authorities, trusted in place of the system's; `certificate` and `key`: PEM files
///   with the client's certificate and its key
///
/// ```
/// use dwell_redis::{Address, AddressKind};
/// let address: Address = "redis://:secret@10.0.0.7/2?prefix=shop".parse().unwrap();
/// assert_eq!((address.kind(), address.prefix()), (AddressKind::Single, "shop"));
/// assert_eq!(address.to_string(), "redis://10.0.0.7:6379/2");
/// assert_eq!(address.shown(), "redis://…@10.0.0.7:6379/2?prefix=shop");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    pub(crate) kind: AddressKind,
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
    pub(crate) certificates: Certificates,
    /// The options as they were given, except for secrets.
    pub(crate) options: Vec<String>,
}

/// Files for TLS, in addition to what the system trusts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Certificates {
    pub(crate) ca: Option<PathBuf>,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
}

/// The kind of deployment that an address names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressKind {
    /// One server.
    Single,
    /// A primary and its replicas, watched by Sentinels.
    Sentinel,
    /// A cluster.
    Cluster,
}

/// The address of one server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Node {
    Tcp(String, u16),
    Unix(PathBuf),
}

/// The confirmations that a write needs before it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Confirm {
    pub(crate) replicas: u32,
    /// Whether the server's own append-only file must have it on disk, and those of the replicas.
    pub(crate) aof: bool,
    pub(crate) within_ms: u64,
}

impl Address {
    /// One server, a primary under Sentinels, or a cluster.
    pub fn kind(&self) -> AddressKind {
        self.kind
    }

    /// How long one call to the server may take.
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }

    /// The common prefix of all keys.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The URL as it was given, for display: with its options, and with `…` in place of the login.
    pub fn shown(&self) -> String {
        let plain = self.to_string();
        let mut shown = match (self.user.is_some() || self.password.is_some(), plain.split_once("://")) {
            (true, Some((scheme, rest))) => format!("{scheme}://…@{rest}"),
            _ => plain,
        };
        for (index, option) in self.options.iter().enumerate() {
            shown.push(if index == 0 { '?' } else { '&' });
            shown.push_str(option);
        }
        shown
    }

    /// The same Redis under another prefix.
    pub fn with_prefix(self, prefix: &str) -> Address {
        Address { prefix: prefix.to_owned(), ..self }
    }

    /// The same Redis for a process with this client name.
    pub fn with_client(self, client: &str) -> Address {
        Address { client: Some(client.to_owned()), ..self }
    }
}

impl FromStr for Address {
    type Err = OpenError;

    fn from_str(text: &str) -> Result<Address, OpenError> {
        parse(text).map_err(|reason| {
            let scheme = text.split_once("://").map(|(scheme, _)| scheme);
            let url = format!("{}://…", scheme.filter(|scheme| SCHEMES.contains(scheme)).unwrap_or("…"));
            // The text after a question mark may be the end of a password.
            let torn = text.split_once('?').is_some_and(|(_, query)| query.contains('@'));
            let hint = "; in user and password, / ? # @ and % are written as %2F %3F %23 %40 and %25";
            let hint = if text.contains('@') { hint } else { "" };
            let reason = if torn { "it cannot be read".to_owned() } else { reason };
            OpenError::Url { url, reason: reason + hint }
        })
    }
}

const SCHEMES: [&str; 7] =
    ["redis", "rediss", "redis+unix", "redis-sentinel", "rediss-sentinel", "redis-cluster", "rediss-cluster"];

/// The reasons contain nothing of the input that may be a secret.
fn parse(text: &str) -> Result<Address, String> {
    let (scheme, rest) = text.split_once("://").ok_or("it has no scheme such as redis://".to_owned())?;
    let (kind, tls, port) = match scheme {
        "redis" | "redis+unix" => (AddressKind::Single, false, 6379),
        "rediss" => (AddressKind::Single, true, 6379),
        "redis-sentinel" => (AddressKind::Sentinel, false, 26379),
        "rediss-sentinel" => (AddressKind::Sentinel, true, 26379),
        "redis-cluster" => (AddressKind::Cluster, false, 6379),
        "rediss-cluster" => (AddressKind::Cluster, true, 6379),
        _ => return Err(format!("its scheme is none of {}", SCHEMES.join(", "))),
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
        certificates: Certificates::default(),
        options: Vec::new(),
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
    if kind == AddressKind::Single && address.nodes.len() > 1 {
        return Err("one server has one host; write redis-cluster or redis-sentinel for more".to_owned());
    }
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    for pair in pairs {
        let (name, value) = pair.split_once('=').ok_or("an option is written as name=value".to_owned())?;
        option(&mut address, name, &decoded(value)?)?;
        if !matches!(name, "sentinel_user" | "sentinel_password") {
            address.options.push(pair.to_owned());
        }
    }
    let Certificates { ca, certificate, key } = &address.certificates;
    if certificate.is_some() != key.is_some() {
        return Err("certificate and key go together".to_owned());
    }
    if !address.tls && (ca.is_some() || certificate.is_some()) {
        return Err("ca, certificate and key are for TLS: write rediss".to_owned());
    }
    Ok(address)
}

fn node(host: &str, default_port: u16) -> Result<Node, String> {
    // An IPv6 address stands in brackets.
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => {
            (name, port.parse().map_err(|_| "what follows its host is no port".to_owned())?)
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
    if address.kind == AddressKind::Sentinel {
        let service = parts.next().ok_or("a Sentinel URL names its service: …/mymaster".to_owned())?;
        address.service = Some(decoded(service)?);
    }
    if let Some(db) = parts.next() {
        address.db = database(db)?;
    }
    if address.kind == AddressKind::Cluster && address.db != 0 {
        return Err("a cluster has database 0 only".to_owned());
    }
    parts.next().map_or(Ok(()), |_| Err("its path has a part too many".to_owned()))
}

fn database(text: &str) -> Result<i64, String> {
    text.parse()
        .ok()
        .filter(|db| (0..=65_535).contains(db))
        .ok_or("a database is a number from 0 to 65535".to_owned())
}

fn option(address: &mut Address, name: &str, value: &str) -> Result<(), String> {
    let number = |least: u64, most: u64| {
        let number = value.parse().ok().filter(|number| (least..=most).contains(number));
        number.ok_or(format!("{name} is a whole number from {least} to {most}"))
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
        "retry_ms" => address.retry_ms = number(0, 60_000)?,
        "client" => address.client = Some(value.to_owned()).filter(|name| !name.is_empty()),
        "wait" => address.confirm.get_or_insert(none).replicas = number(0, 1_000)? as u32,
        "waitaof" => address.confirm.get_or_insert(none).aof = number(0, 1)? == 1,
        "wait_ms" => address.confirm.get_or_insert(none).within_ms = number(1, 600_000)?,
        "sentinel_user" => address.sentinel_user = Some(value.to_owned()),
        "sentinel_password" => address.sentinel_password = Some(value.to_owned()),
        "ca" => address.certificates.ca = Some(path(value)?),
        "certificate" => address.certificates.certificate = Some(path(value)?),
        "key" => address.certificates.key = Some(path(value)?),
        _ => return Err(format!("there is no option '{name:.40}'")),
    }
    Ok(())
}

fn decoded(text: &str) -> Result<String, String> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(|text| text.into_owned()).map_err(|_| "a percent-encoded part is not UTF-8".to_owned())
}

fn path(value: &str) -> Result<PathBuf, String> {
    Some(PathBuf::from(value))
        .filter(|path| !path.as_os_str().is_empty())
        .ok_or("a file has a name".to_owned())
}

impl fmt::Display for Address {
    /// Without user, password and options: fit for a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tls = if self.tls { "s" } else { "" };
        if let Some(Node::Unix(path)) = self.nodes.first() {
            return write!(f, "redis+unix://{}", path.display());
        }
        let kind = match self.kind {
            AddressKind::Single => "",
            AddressKind::Sentinel => "-sentinel",
            AddressKind::Cluster => "-cluster",
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
        assert_eq!(
            (address.kind, address.tls, address.db, address.connections),
            (AddressKind::Single, true, 3, 4)
        );
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
        assert!(refused("http://x").contains("scheme"));
        assert!(refused("redis://a,b").contains("one host"));
        assert!(refused("redis://").contains("no host"));
        assert!(refused("redis://a/x").contains("database"));
        assert!(refused("redis-cluster://a/1").contains("database 0"));
        assert!(refused("redis-sentinel://a").contains("service"));
        assert!(refused("redis://a?prefix={x}").contains("prefix"));
        assert!(refused("redis://a?connections=0").contains("1 to 64"));
        assert!(refused("redis://a?x=1").contains("no option 'x'"));
        assert!(refused("rediss://a?key=k").contains("together"));
        assert!(refused("redis://a?ca=c").contains("rediss"));
    }

    #[test]
    fn no_refusal_and_nothing_that_is_shown_has_a_secret_in_it() {
        for url in [
            "redis://u:se-cret@a?x=1",
            "redis://u:se-cret",
            "redis://u:se-cret/0",
            "redis:/u:se-cret@a",
            "u:se-cret@a",
            "se-cret",
            "redis://u:x?se-cret@a",
            "redis://u:x?y=se-cret@a",
            "redis://u:x/se-cret@a/b/c",
            "redis://u:x#se-cret@a/0",
            "redis://u:x%se-cret@",
            "redis-sentinel://a/main?sentinel_password=se-cret&nonsense=1",
            "redis-sentinel://a?sentinel_password=se-cret",
            "http://u:se-cret@a",
        ] {
            // Some can be parsed, though they should be written differently.
            let said = match url.parse::<Address>() {
                Ok(address) => format!("{address} {address:?} {}", address.shown()),
                Err(refusal) => refusal.to_string(),
            };
            assert!(!said.contains("se-cret"), "{said}");
        }
        let url = "redis-sentinel://u:se-cret@a/main/1?prefix=p&sentinel_password=se-cret&wait=1";
        let address: Address = url.parse().unwrap();
        for shown in [address.to_string(), format!("{address:?}"), address.shown()] {
            assert!(!shown.contains("se-cret"), "{shown}");
        }
        assert_eq!(address.shown(), "redis-sentinel://…@a:26379/main/1?prefix=p&wait=1");
        let socket: Address = "redis+unix:///run/redis.sock?db=2".parse().unwrap();
        assert_eq!(socket.shown(), "redis+unix:///run/redis.sock?db=2");
    }
}
