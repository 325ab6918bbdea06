//! Where a PostgreSQL is, and how to speak to it: all of it in one URL.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::Host;

use crate::OpenError;

/// A parsed URL: `postgres://[user[:password]@]host[:5432][,host2[:5432]][/database][?name=value&…]`.
///
/// Options of PostgreSQL's own are those that tokio-postgres knows: `target_session_attrs`, `connect_timeout`, `application_name`,
/// `sslmode` and so on. With several hosts and no `target_session_attrs` the one that takes writes is looked for. Those of dwell:
///
/// - `schema`: where tables and functions are, `dwell` by default
/// - `connections`: how many connections the calls share, 1 to 256, 8 by default
/// - `timeout_ms`: how long one call may take, waiting for a connection included, 10,000 by default
/// - `client`: the name of this process, for leases that are bound to it; none by default
/// - `unsynced=allow`: opens also where `fsync` or `synchronous_commit` is off
///
/// ```
/// use dwell_postgres::Address;
/// let address: Address = "postgres://app:secret@db1,db2:5433/shop?schema=timers".parse().unwrap();
/// assert_eq!(address.to_string(), "postgres://db1:5432,db2:5433/shop?schema=timers");
/// ```
#[derive(Clone)]
pub struct Address {
    pub(crate) config: Config,
    pub(crate) schema: String,
    pub(crate) connections: usize,
    pub(crate) timeout: Duration,
    pub(crate) client: Option<String>,
    pub(crate) allows_unsynced: bool,
}

impl Address {
    /// Where tables and functions are.
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// The same PostgreSQL for a process of this name.
    pub fn with_client(self, client: &str) -> Address {
        Address { client: Some(client.to_owned()), ..self }
    }

    /// The schema as SQL has it.
    pub(crate) fn quoted_schema(&self) -> String {
        format!("\"{}\"", self.schema.replace('"', "\"\""))
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

/// The reasons name nothing of what was given that may be a secret.
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
        client: None,
        allows_unsynced: false,
    };
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or("an option is name=value".to_owned())?;
        let value_is = |what: &str| format!("{name} is {what}");
        let decoded = percent_decode_str(value).decode_utf8().map_err(|_| value_is("text in UTF-8"))?;
        match name {
            "schema" => {
                // 63 bytes are all that PostgreSQL keeps of a name.
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
            "client" => {
                let is_name = (1..=200).contains(&decoded.len()) && !decoded.contains('\0');
                address.client =
                    Some(is_name.then(|| decoded.into_owned()).ok_or_else(|| value_is("1 to 200 bytes"))?);
            }
            "unsynced" if decoded == "allow" => address.allows_unsynced = true,
            "unsynced" => return Err(value_is("allow, or it is left out")),
            _ => theirs.push(pair),
        }
    }
    let theirs = if theirs.is_empty() { String::new() } else { format!("?{}", theirs.join("&")) };
    // What its error quotes may be a secret.
    address.config = format!("{base}{theirs}").parse().map_err(|_| {
        "host, port, database or an option cannot be read; in user and password, / ? # @ and % are written as %2F %3F %23 %40 and %25"
            .to_owned()
    })?;
    if address.config.get_hosts().is_empty() {
        return Err("it names no host".to_owned());
    }
    if address.config.get_application_name().is_none() {
        address.config.application_name("dwell");
    }
    if address.config.get_connect_timeout().is_none() {
        address.config.connect_timeout(address.timeout);
    }
    if address.config.get_hosts().len() > 1 && !theirs.contains("target_session_attrs=") {
        address.config.target_session_attrs(tokio_postgres::config::TargetSessionAttrs::ReadWrite);
    }
    Ok(address)
}

impl fmt::Display for Address {
    /// Without anything of a login.
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
    }

    #[test]
    fn what_is_wrong_is_said_and_no_secret_with_it() {
        for (url, part) in [
            ("redis://x", "postgres://"),
            ("postgres:///shop", "host"),
            ("postgres://h/?connections=0", "connections"),
            ("postgres://h/?schema=", "schema"),
            ("postgres://h/?timeout_ms=x", "timeout_ms"),
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
