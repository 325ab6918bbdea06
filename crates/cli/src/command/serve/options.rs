//! Command line options of a server: for `serve`, and for `config`, which inspects the same configuration.

use std::path::PathBuf;

use clap::Args;
use dwell_server::{ConfigError, Layers, Loaded, check_value};

use crate::exit::{Exit, Failure};
use crate::output::Output;

/// Options, which override environment and file. Each is a key of the file: see `docs/configuration.md`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Configuration")]
pub(crate) struct ServerOptions {
    /// A configuration file in TOML
    #[arg(long, env = "DWELL_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// The data directory; created if it does not exist [default: dwell-data]
    #[arg(long, value_parser = valued("store.data"), value_name = "DIR")]
    data: Option<String>,
    /// The store: `engine` (in files), `memory`, or the URL of a Redis or a PostgreSQL, which servers may share
    /// [default: engine]
    // Its value may contain a password, which clap would repeat if it were checked here.
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
    /// The address of HTTP; port 0 chooses a free one [default: 127.0.0.1:7411]
    #[arg(long, value_parser = valued("http.listen"), value_name = "ADDRESS")]
    listen: Option<String>,
    /// The address of beanstalkd's protocol; port 0 chooses a free one, `off` disables it [default: 127.0.0.1:11300]
    #[arg(long, value_parser = valued("beanstalkd.listen"), value_name = "ADDRESS")]
    beanstalkd: Option<String>,
    /// A host name, in addition to the loopback's and the address itself, that callers may use; may be repeated
    #[arg(long = "host", value_parser = valued("http.hosts"), value_name = "NAME")]
    hosts: Vec<String>,
    /// Listen for HTTP where other machines can reach it, although callers are not authenticated
    #[arg(long)]
    insecure_http: bool,
    /// Listen for beanstalkd's protocol where other machines can reach it, although it has no authentication
    #[arg(long)]
    insecure_beanstalkd: bool,
    /// The server's certificate in PEM, and the intermediate ones; with --tls-key HTTP uses TLS
    #[arg(long, value_parser = valued("tls.certificate"), value_name = "FILE")]
    tls_certificate: Option<String>,
    /// The certificate's private key in PEM
    #[arg(long, value_parser = valued("tls.key"), value_name = "FILE")]
    tls_key: Option<String>,
    /// When a change is synced: `always` (before it is answered), `os`, or `interval:100ms` [default: always]
    #[arg(long, value_parser = valued("store.durability"), value_name = "WHEN")]
    durability: Option<String>,
    /// The maximum length of a body, at most 64MiB [default: 1MiB]
    #[arg(long, value_parser = valued("limits.body"), value_name = "SIZE")]
    max_body: Option<String>,
    /// The maximum number of items per call
    #[arg(long, value_parser = valued("limits.batch"), value_name = "COUNT")]
    max_batch: Option<String>,
    /// The maximum number of leased messages
    #[arg(long, value_parser = valued("limits.leased"), value_name = "COUNT")]
    max_leased: Option<String>,
    /// The maximum number of leased messages of one queue [default: 100000]
    #[arg(long, value_parser = valued("limits.leased_per_queue"), value_name = "COUNT")]
    max_leased_per_queue: Option<String>,
    /// The maximum number of takes that wait on one queue [default: 100000]
    #[arg(long, value_parser = valued("limits.waiting_per_queue"), value_name = "COUNT")]
    max_waiting_per_queue: Option<String>,
    /// The maximum number of queues
    #[arg(long, value_parser = valued("limits.queues"), value_name = "COUNT")]
    max_queues: Option<String>,
    /// The maximum number of remembered idempotency keys, at about 72 bytes each [default: 16000000]
    #[arg(long, value_parser = valued("limits.idempotency_keys"), value_name = "COUNT")]
    max_idempotency_keys: Option<String>,
    /// The maximum number of remembered idempotency keys of one queue [default: 8000000]
    #[arg(long, value_parser = valued("limits.idempotency_keys_per_queue"), value_name = "COUNT")]
    max_idempotency_keys_per_queue: Option<String>,
    /// The memory for bodies of requests and answers in progress, all connections together [default: 512MiB]
    #[arg(long, value_parser = valued("limits.bodies"), value_name = "SIZE")]
    max_bodies: Option<String>,
    /// The size of a segment of the journal [default: 64MiB]. Disk space is allocated a segment at a time, and a
    /// quarter of one is kept free for acks and cancels
    #[arg(long, value_parser = valued("store.segment"), value_name = "SIZE")]
    segment: Option<String>,
    /// The memory for messages, at least 16MiB; `off` keeps all of them in memory [default: 256MiB]
    #[arg(long, value_parser = valued("store.memory_limit"), value_name = "SIZE")]
    memory_limit: Option<String>,
    /// How long a shutdown waits for requests in progress [default: 10s]
    #[arg(long, value_parser = valued("shutdown.drain"), allow_hyphen_values = true, value_name = "DURATION")]
    drain: Option<String>,
    /// Also move due elements of Redisson's delayed queues in this Redis
    #[arg(long, value_name = "URL", help_heading = "Delayed queues of Redisson")]
    redisson: Option<String>,
    /// Such a queue by its name in Java; may be repeated
    #[arg(long = "redisson-queue", value_name = "NAME", help_heading = "Delayed queues of Redisson")]
    redisson_queues: Vec<String>,
    /// What the Java clients read: elements in the other layout are rewritten before they are due [default: any]
    #[arg(long, value_parser = ["any", "new", "old"], value_name = "RELEASES", help_heading = "Delayed queues of Redisson")]
    redisson_java: Option<String>,
    /// The level of the log on standard error: `off`, `error`, `warn`, `info` (a line for each change of state) or
    /// `debug` (and one for each request) [default: info]
    #[arg(long, value_parser = valued("log.level"), value_name = "LEVEL")]
    log: Option<String>,
    /// The form of the log: `text` or `json` [default: text]
    #[arg(long, value_parser = valued("log.format"), value_name = "FORMAT")]
    log_format: Option<String>,
}

/// Checks a value with the key that it sets.
fn valued(path: &'static str) -> impl Fn(&str) -> Result<String, String> + Clone + Send + Sync + 'static {
    move |text| check_value(path, text).map(|()| text.to_owned())
}

impl ServerOptions {
    /// Reads file, environment and options.
    ///
    /// # Errors
    /// Every error.
    pub(crate) fn load(&self) -> Result<Loaded, Vec<ConfigError>> {
        // Text that is not Unicode is not a valid value.
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Loaded::load(&Layers { file: self.file(), environment: environment.collect(), flags: self.flags() })
    }

    /// The same; all errors but the last are printed, and the last one is the failure.
    pub(crate) fn load_or_fail(&self, output: &Output) -> Result<Loaded, Failure> {
        self.load().map_err(|errors| {
            let mut failures: Vec<Failure> = errors
                .iter()
                .map(|error| Failure::new(Exit::CannotStart, error.kind.code(), error))
                .collect();
            let last = failures.pop().expect("a configuration is refused for a reason");
            failures.iter().for_each(|failure| output.failure(failure));
            last
        })
    }

    /// An empty path means none, as an empty variable does.
    fn file(&self) -> Option<PathBuf> {
        self.config.clone().filter(|file| !file.as_os_str().is_empty())
    }

    fn flags(&self) -> Vec<(&'static str, Vec<String>)> {
        let texts = [
            ("store.data", &self.data),
            ("store.url", &self.store),
            ("http.listen", &self.listen),
            ("beanstalkd.listen", &self.beanstalkd),
            ("tls.certificate", &self.tls_certificate),
            ("tls.key", &self.tls_key),
            ("store.durability", &self.durability),
            ("limits.body", &self.max_body),
            ("limits.batch", &self.max_batch),
            ("limits.leased", &self.max_leased),
            ("limits.leased_per_queue", &self.max_leased_per_queue),
            ("limits.waiting_per_queue", &self.max_waiting_per_queue),
            ("limits.queues", &self.max_queues),
            ("limits.idempotency_keys", &self.max_idempotency_keys),
            ("limits.idempotency_keys_per_queue", &self.max_idempotency_keys_per_queue),
            ("limits.bodies", &self.max_bodies),
            ("store.segment", &self.segment),
            ("store.memory_limit", &self.memory_limit),
            ("shutdown.drain", &self.drain),
            ("redisson.url", &self.redisson),
            ("redisson.java", &self.redisson_java),
            ("log.level", &self.log),
            ("log.format", &self.log_format),
        ];
        let switches =
            [("http.insecure", self.insecure_http), ("beanstalkd.insecure", self.insecure_beanstalkd)];
        let texts = texts.into_iter().filter_map(|(path, text)| Some((path, vec![text.clone()?])));
        let switches =
            switches.into_iter().filter(|(_, on)| *on).map(|(path, _)| (path, vec!["true".to_owned()]));
        let several = [("http.hosts", &self.hosts), ("redisson.queues", &self.redisson_queues)];
        let several = several
            .into_iter()
            .filter(|(_, texts)| !texts.is_empty())
            .map(|(path, texts)| (path, texts.clone()));
        texts.chain(switches).chain(several).collect()
    }
}
