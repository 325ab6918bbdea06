//! The address of a PostgreSQL and its connection options, in one URL.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, SslNegotiation};

use crate::OpenError;

/// A parsed URL: `postgres://[user[:password]@]host[:5432][,host2[:5432]][/database][?name=value&…]`.
///
/// The options of PostgreSQL itself are those of tokio-postgres: `target_session_attrs`, `connect_timeout`,
/// `application_name` and so on. With several hosts and no `target_session_attrs`, the host that accepts writes is used. The
/// options of dwell are:
///
/// - `schema`: the schema of the tables and functions, `dwell` by default
/// - `connections`: the size of the connection pool, 1 to 256, 8 by default
/// - `timeout_ms`: the timeout of a call in ms, including the wait for a connection, 10,000 by default
/// - `lock_ms`: how long a call waits for a key or message that an open transaction holds, in ms, before that item is `busy`;
///   1,000 by default. Shorter than `timeout_ms`, or the URL is refused
/// - `listen=on`: takes that wait are woken by NOTIFY of other processes with this option, besides polling. The hosts have to lead to
///   PostgreSQL itself: PgBouncer in transaction mode has no LISTEN
/// - `client`: the name of this process, for session leases; none by default
/// - `unsynced=allow`: opens the store even if `fsync` or `synchronous_commit` is off
/// - `sslmode`: `require` or `verify-full` for TLS. Both always verify the server's certificate and the host's name in it. `disable`, the
///   default, is plaintext. Other values are refused: they may fall back to plaintext, or verify less. Unix sockets have no TLS
/// - `ca`: a file of certificate authorities in PEM, trusted instead of the system's; `certificate` and `key`: the client's certificate and
///   key in PEM. They need TLS
///
/// ```
/// use dwell_postgres::Address;
/// let address: Address = "postgres://app:secret@db1,db2:5433/shop?schema=timers".parse().unwrap();
/// assert_eq!(address.to_string(), "postgres://db1:5432,db2:5433/shop?schema=timers");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    pub(crate) config: Config,
    pub(crate) schema: String,
    pub(crate) connections: usize,
    pub(crate) timeout: Duration,
    /// How long a call waits for what an open transaction holds, in ms; `None` for a second.
    pub(crate) lock_ms: Option<u64>,
    /// Whether hints between processes are sent and heard.
    pub(crate) listens: bool,
    pub(crate) client: Option<String>,
    pub(crate) allows_unsynced: bool,
    /// With what connections are encrypted; `None` for plaintext.
    pub(crate) tls: Option<Certificates>,
}

/// Files that TLS needs besides what the system trusts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Certificates {
    pub(crate) ca: Option<PathBuf>,
    /// Our certificate, with those behind it, and its key.
    pub(crate) own: Option<(PathBuf, PathBuf)>,
}

impl Address {
    /// The schema of the tables and functions.
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// The same address with this `client` name.
    pub fn with_client(self, client: &str) -> Address {
        Address { client: Some(client.to_owned()), ..self }
    }

    /// The same configuration for each of its hosts alone, in their order.
    pub(crate) fn by_host(&self) -> Vec<Config> {
        let all = &self.config;
        let (hosts, addresses, ports) = (all.get_hosts(), all.get_hostaddrs(), all.get_ports());
        let one = |index: usize| {
            let mut config = Config::new();
            match hosts.get(index) {
                Some(Host::Tcp(host)) => {
                    config.host(host);
                }
                #[cfg(unix)]
                Some(Host::Unix(folder)) => {
                    config.host_path(folder);
                }
                None => {}
            }
            macro_rules! take_over {
                ($($value:expr => $set:ident;)*) => { $(if let Some(value) = $value { config.$set(value.to_owned()); })* };
            }
            take_over! {
                addresses.get(index) => hostaddr;
                ports.get(index).or(ports.first()) => port;
                all.get_user() => user;
                all.get_password() => password;
                all.get_dbname() => dbname;
                all.get_options() => options;
                all.get_application_name() => application_name;
                all.get_connect_timeout() => connect_timeout;
                all.get_tcp_user_timeout() => tcp_user_timeout;
                all.get_keepalives_interval() => keepalives_interval;
                all.get_keepalives_retries() => keepalives_retries;
            }
            config
                .keepalives(all.get_keepalives())
                .keepalives_idle(all.get_keepalives_idle())
                .ssl_mode(all.get_ssl_mode())
                .ssl_negotiation(all.get_ssl_negotiation())
                .channel_binding(all.get_channel_binding())
                .target_session_attrs(all.get_target_session_attrs())
                .load_balance_hosts(all.get_load_balance_hosts());
            config
        };
        (0..hosts.len().max(addresses.len())).map(one).collect()
    }

    /// How long administration waits for what an open transaction holds, in ms.
    pub(crate) fn lock_timeout_ms(&self) -> u64 {
        self.lock_ms.unwrap_or(1_000)
    }

    /// The schema, quoted for SQL.
    pub(crate) fn quoted_schema(&self) -> String {
        crate::install::quoted(&self.schema)
    }
}

impl FromStr for Address {
    type Err = OpenError;

    fn from_str(text: &str) -> Result<Address, OpenError> {
        parse(text).map_err(|reason| {
            let url = match text.split_once("://") {
                Some((scheme @ ("postgres" | "postgresql"), _)) => format!("{scheme}://…"),
                _ => "…".to_owned(),
            };
            OpenError::Url { url, reason }
        })
    }
}

/// The reasons quote no part of the URL that may be secret.
fn parse(text: &str) -> Result<Address, String> {
    if !["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme)) {
        return Err("it begins with postgres:// or postgresql://".to_owned());
    }
    let (base, query) = text.split_once('?').unwrap_or((text, ""));
    let mut theirs = Vec::new();
    let mut address = Address {
        config: Config::new(),
        schema: "dwell".to_owned(),
        connections: 8,
        timeout: Duration::from_secs(10),
        lock_ms: None,
        listens: false,
        client: None,
        allows_unsynced: false,
        tls: None,
    };
    let mut is_encrypted = false;
    let (mut ca, mut certificate, mut key) = (None, None, None);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or("an option is name=value".to_owned())?;
        let value_is = |what: &str| format!("{name} is {what}");
        let decoded = percent_decode_str(value).decode_utf8().map_err(|_| value_is("text in UTF-8"))?;
        match name {
            "schema" => {
                // PostgreSQL truncates a name to 63 bytes.
                let is_name = (1..=63).contains(&decoded.len()) && !decoded.contains('\0');
                address.schema =
                    is_name.then(|| decoded.into_owned()).ok_or_else(|| value_is("1 to 63 bytes"))?;
            }
            "connections" => {
                let connections = decoded.parse().ok().filter(|number| (1..=256).contains(number));
                address.connections = connections.ok_or_else(|| value_is("1 to 256"))?;
            }
            "timeout_ms" => {
                let ms = decoded.parse().ok().filter(|ms| (1..=3_600_000).contains(ms));
                address.timeout = Duration::from_millis(ms.ok_or_else(|| value_is("1 to 3600000"))?);
            }
            "lock_ms" => {
                let ms = decoded.parse().ok().filter(|ms| (1..=600_000).contains(ms));
                address.lock_ms = Some(ms.ok_or_else(|| value_is("1 to 600000"))?);
            }
            "listen" if decoded == "on" => address.listens = true,
            "listen" => return Err(value_is("on, or it is left out")),
            "client" => {
                let is_name = (1..=200).contains(&decoded.len()) && !decoded.contains('\0');
                address.client =
                    Some(is_name.then(|| decoded.into_owned()).ok_or_else(|| value_is("1 to 200 bytes"))?);
            }
            "unsynced" if decoded == "allow" => address.allows_unsynced = true,
            "unsynced" => return Err(value_is("allow, or it is left out")),
            "sslmode" => {
                is_encrypted = match &*decoded {
                    "require" | "verify-full" => true,
                    "disable" => false,
                    _ => {
                        return Err(value_is(
                            "require or verify-full, which both verify the server's certificate and its name, or disable: \
                            allow and prefer may fall back to plaintext, and verify-ca ignores the name",
                        ));
                    }
                }
            }
            // It may be the end of a password that has a question mark, and errors name the file.
            "ca" | "certificate" | "key" if decoded.is_empty() || value.contains('@') => {
                return Err(value_is("a file's name, in which @ is written as %40"));
            }
            "ca" => ca = Some(PathBuf::from(&*decoded)),
            "certificate" => certificate = Some(PathBuf::from(&*decoded)),
            "key" => key = Some(PathBuf::from(&*decoded)),
            "sslrootcert" | "sslcert" | "sslkey" => {
                return Err("files of TLS are named by ca, certificate and key".to_owned());
            }
            _ => theirs.push(pair),
        }
    }
    // Otherwise the call would end first, with its outcome unknown.
    if address.lock_ms.is_some_and(|ms| u128::from(ms) >= address.timeout.as_millis()) {
        return Err("lock_ms is shorter than timeout_ms".to_owned());
    }
    let theirs = if theirs.is_empty() { String::new() } else { format!("?{}", theirs.join("&")) };
    // The error of tokio-postgres may quote a secret.
    address.config = format!("{base}{theirs}").parse().map_err(|_| {
        "host, port, database or an option cannot be read; in user and password, / ? # @ and % are written as %2F %3F %23 %40 and %25"
            .to_owned()
    })?;
    if address.config.get_hosts().is_empty() {
        return Err("it names no host".to_owned());
    }
    let own = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => return Err("certificate and key go together".to_owned()),
    };
    if is_encrypted {
        if !address.config.get_hosts().iter().all(|host| matches!(host, Host::Tcp(_))) {
            return Err("a Unix socket has no TLS: leave sslmode out, or name a host".to_owned());
        }
        address.tls = Some(Certificates { ca, own });
    } else if ca.is_some() || own.is_some() {
        return Err("ca, certificate and key are for TLS: write sslmode=require".to_owned());
    } else if address.config.get_ssl_negotiation() != SslNegotiation::Postgres {
        return Err("sslnegotiation is for TLS: write sslmode=require".to_owned());
    }
    address.config.ssl_mode(if is_encrypted { SslMode::Require } else { SslMode::Disable });
    if address.config.get_application_name().is_none() {
        address.config.application_name("dwell");
    }
    if address.config.get_hosts().len() > 1 && !theirs.contains("target_session_attrs=") {
        address.config.target_session_attrs(tokio_postgres::config::TargetSessionAttrs::ReadWrite);
    }
    Ok(address)
}

impl fmt::Display for Address {
    /// Leaves out user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports = self.config.get_ports();
        f.write_str("postgres://")?;
        for (index, host) in self.config.get_hosts().iter().enumerate() {
            let port = ports.get(index).or(ports.first()).copied().unwrap_or(5432);
            let comma = if index == 0 { "" } else { "," };
            match host {
                Host::Tcp(host) => write!(f, "{comma}{host}:{port}")?,
                #[cfg(unix)]
                Host::Unix(folder) => write!(f, "{comma}{}:{port}", folder.display())?,
            }
        }
        write!(f, "/{}?schema={}", self.config.get_dbname().unwrap_or_default(), self.schema)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_options_of_both_kinds() {
        let address: Address =
            "postgresql://u:p%40@a:1,b/shop?schema=s&target_session_attrs=any&connections=3&timeout_ms=50&client=web%201"
                .parse()
                .unwrap();
        assert_eq!((address.schema(), address.connections), ("s", 3));
        assert_eq!((address.timeout.as_millis(), address.client.as_deref()), (50, Some("web 1")));
        assert_eq!(address.config.get_password(), Some(&b"p@"[..]));
        assert!(!address.allows_unsynced);
        assert_eq!(address.config.get_application_name(), Some("dwell"));
        assert!(address.tls.is_none() && address.config.get_ssl_mode() == SslMode::Disable);
    }

    #[test]
    fn each_host_has_all_options() {
        let options = "schema=s&connect_timeout=3&tcp_user_timeout=4&keepalives_idle=5&keepalives_interval=6&keepalives_retries=7\
            &options=-cgeqo%3Doff&application_name=app&sslmode=require&channel_binding=require&sslnegotiation=direct\
            &target_session_attrs=read-write&load_balance_hosts=random";
        let url = |hosts: &str| format!("postgres://u:p@{hosts}/shop?{options}");
        let config = |hosts: &str| url(hosts).parse::<Address>().unwrap().config;
        let all: Address = url("a:1,b:2,c:3").parse().unwrap();
        assert_eq!(all.by_host(), [config("a:1"), config("b:2"), config("c:3")]);
        let all: Address = format!("{}&hostaddr=127.0.0.1,127.0.0.2", url("a,b")).parse().unwrap();
        let one = |host: &str, address: &str| {
            format!("{}&hostaddr={address}", url(host)).parse::<Address>().unwrap().config
        };
        assert_eq!(all.by_host(), [one("a", "127.0.0.1"), one("b", "127.0.0.2")]);
    }

    #[test]
    fn tls_is_on_or_off_and_nothing_between() {
        let url = "postgres://u:s3cret@a,b/shop?sslmode=";
        for mode in ["require", "verify-full"] {
            let address: Address =
                format!("{url}{mode}&ca=/a%20b.pem&certificate=c.pem&key=k%40.pem").parse().unwrap();
            let own = Some((PathBuf::from("c.pem"), PathBuf::from("k@.pem")));
            assert_eq!(address.tls, Some(Certificates { ca: Some(PathBuf::from("/a b.pem")), own }));
            assert_eq!(address.config.get_ssl_mode(), SslMode::Require);
            assert!(!format!("{address} {address:?}").contains("s3cret"));
        }
        let plain: Address = format!("{url}disable").parse().unwrap();
        assert_eq!((plain.config.get_ssl_mode(), &plain.tls), (SslMode::Disable, &None));
        assert!(plain.clone() == plain && plain != format!("{url}require").parse().unwrap());
        for (options, part) in [
            ("sslmode=prefer", "fall back to plaintext"),
            ("sslmode=allow", "require"),
            ("sslmode=verify-ca", "ignores the name"),
            ("sslmode=", "require"),
            ("ca=a", "sslmode=require"),
            ("certificate=a&key=b", "sslmode=require"),
            ("sslmode=disable&ca=a", "sslmode=require"),
            ("sslnegotiation=direct", "sslmode=require"),
            ("sslmode=require&key=b", "together"),
            ("sslmode=require&certificate=b", "together"),
            ("sslmode=require&ca=", "file"),
            ("sslmode=require&sslrootcert=a", "ca"),
        ] {
            for url in ["postgres://u:s3cret@a/", "postgres://u:s3cret@a,%2Frun/"] {
                let text = format!("{url}?{options}").parse::<Address>().unwrap_err().to_string();
                assert!(text.contains(part) && !text.contains("s3cret"), "{options}: {text}");
            }
        }
        for url in ["postgres://u@%2Frun/?sslmode=require", "postgres://u@a,%2Frun/?sslmode=require"] {
            let text = url.parse::<Address>().unwrap_err().to_string();
            assert!(text.contains("Unix socket"), "{url}: {text}");
        }
        // The end of a password, if it was written as it is.
        let torn = "postgres://u:5432?ca=s3cret@a&sslmode=require".parse::<Address>().unwrap_err();
        assert!(torn.to_string().contains("%40") && !torn.to_string().contains("s3cret"), "{torn}");
    }

    #[test]
    fn what_is_wrong_is_said_and_no_secret_with_it() {
        for (url, part) in [
            ("redis://x", "postgres://"),
            ("postgres:///shop", "host"),
            ("postgres://h/?connections=0", "connections"),
            ("postgres://h/?schema=", "schema"),
            ("postgres://h/?timeout_ms=x", "timeout_ms"),
            ("postgres://h/?lock_ms=0", "lock_ms"),
            ("postgres://h/?lock_ms=10000", "lock_ms"),
            ("postgres://h/?lock_ms=500&timeout_ms=500", "lock_ms"),
            ("postgres://h/?listen=maybe", "listen"),
            ("postgres://h/?unsynced=yes", "unsynced"),
            ("postgres://u:s3cret@h:port/", "host, port"),
            ("postgres://u:s3cret@h/?nonsense=s3cret", "option"),
        ] {
            let error = url.parse::<Address>().unwrap_err();
            let text = error.to_string();
            assert_eq!(error.code(), "postgres_url", "{url}");
            assert!(text.contains(part) && !text.contains("s3cret"), "{url}: {text}");
        }
    }
}
