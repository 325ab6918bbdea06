//! The webhook: each message is the body of a request over HTTP, signed as [Standard Webhooks](https://www.standardwebhooks.com) has it.
//!
//! # What an answer means
//! See [`Verdict`]: 2xx acks, 429 and 502 to 504 are the destination's failure and spend no attempt, 410 pauses the sink, 400, 413, 415 and
//! 422 bury the message, any other is a failed attempt.
//!
//! # Layout
//! - [`Webhook`], [`Builder`]: the sink and its configuration
//! - `verdict`, `signature`, `address`, `target`, `request`: pure parts: the meaning of an answer, the signature,
//!   allowed addresses, accepted URLs, the request
//! - `hosts`: a breaker for each host, where messages name their own
//! - [`Meter`]: its counts
//! - `transport`: connections

mod address;
mod hosts;
mod meter;
mod request;
mod signature;
mod target;
mod transport;
mod verdict;

use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dwell_model::MessageId;
use dwell_store::Delivery;
use dwell_time::{Clock, SystemClock};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

pub use address::{Network, check};
pub use meter::{Lateness, Meter};
pub use signature::{Secret, sign};
pub use verdict::{MAX_RETRY_AFTER_MS, Verdict, verdict};

use self::hosts::Hosts;
use self::meter::Code;
use self::target::{HostPattern, Origin, Target};
use self::transport::{NoAnswer, Reach, Resolver, Transport};
use crate::breaker::{Blame, FIRST_PROBE_MS, LAST_PROBE_MS, Report};
use crate::outcome::IntoOutcome as _;
use crate::{Error, Failure, Fired, Job, Lane, Outcome, Result, Switch, jitter};

/// Sends messages as webhooks. Cloning is cheap; clones share their connections and their switch.
///
/// ```no_run
/// use dwell_delivery::Worker;
/// use dwell_delivery::sinks::webhook::{Secret, Webhook};
/// # async fn run(store: std::sync::Arc<dyn dwell_store::Store>) -> Result<(), dwell_delivery::Error> {
///
/// let orders = Webhook::to("https://shop.example.com/hooks/orders")
///     .secrets([Secret::load("file:/etc/dwell/new.secret")?, Secret::load("file:/etc/dwell/old.secret")?])
///     .build()?;
/// Worker::new(store).lane(orders.lane("orders").concurrency(32)).run().await
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Webhook(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    goal: Goal,
    secrets: Vec<Secret>,
    timeout: Duration,
    transport: Transport,
    switch: Switch,
    clock: Arc<dyn Clock>,
    meter: Meter,
}

/// The result of connecting to the destination without a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tried {
    /// It accepts connections, TLS included.
    Reached,
    /// It does not; the error.
    Failed(String),
    /// Each message names its own destination.
    NoneToTry,
}

/// The destination of messages.
#[derive(Debug)]
enum Goal {
    /// All to one URL, which the sink's owner has set.
    Fixed(Target),
    /// Each to the URL in one of its headers.
    Header { name: String, hosts: Vec<HostPattern>, allowed: Vec<Network>, breakers: Mutex<Hosts> },
}

/// The configuration of a [`Webhook`].
#[must_use = "a builder does nothing before it is built"]
pub struct Builder {
    place: UrlSource,
    hosts: Vec<String>,
    allowed: Vec<Network>,
    secrets: Vec<Secret>,
    timeout: Duration,
    ca: Option<Box<[u8]>>,
    resolver: Resolver,
    switch: Switch,
    clock: Arc<dyn Clock>,
}

enum UrlSource {
    Url(String),
    Header(String),
}

impl Webhook {
    /// The default timeout of an answer: see [`Builder::timeout`].
    pub const TIMEOUT: Duration = Duration::from_secs(20);
    /// The longest timeout.
    pub const MAX_TIMEOUT: Duration = Duration::from_secs(300);

    /// Messages go to this URL, which may lead anywhere.
    pub fn to(url: &str) -> Builder {
        Builder::new(UrlSource::Url(url.to_owned()))
    }

    /// Messages go to the URL in their header of this name. Its host must be one of [`Builder::hosts`], and its address
    /// has to be public or in an [allowed](Builder::allow) network.
    pub fn by_header(name: &str) -> Builder {
        Builder::new(UrlSource::Header(name.to_owned()))
    }

    /// A lane that sends the messages of `queue`. An answer of 410 pauses it, and all others of this webhook: see [`switch`](Webhook::switch).
    pub fn lane(&self, queue: &str) -> Lane {
        let webhook = self.clone();
        let lane = Lane::new(queue, move |job: Job| {
            let webhook = webhook.clone();
            async move { webhook.deliver_while_leased(&job).await }
        });
        let lane = lane.switch(&self.0.switch);
        match &self.0.goal {
            Goal::Header { .. } => lane,
            Goal::Fixed(_) => {
                let webhook = self.clone();
                lane.probe(move || {
                    let webhook = webhook.clone();
                    async move { webhook.probe().await }
                })
            }
        }
    }

    /// The switch that pauses and resumes the lanes of this webhook. An answer of 410 pauses them.
    pub fn switch(&self) -> &Switch {
        &self.0.switch
    }

    /// Sends the message of a job while its lease is held. Once the lease is lost, another consumer may send the message, so
    /// an unanswered request is dropped with its connection.
    async fn deliver_while_leased(&self, job: &Job) -> Outcome {
        let lost = async {
            // A token fires once: at a drain or at its time's end the worker says how long the handler has.
            if job.token().wait().await != Fired::LeaseLost {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            // Thrown away by the worker, whatever it is.
            () = lost => Outcome::Release { after: None },
            outcome = self.deliver(job) => outcome,
        }
    }

    /// Sends one message, and says what becomes of it.
    pub async fn deliver(&self, delivery: &Delivery) -> Outcome {
        match &self.0.goal {
            Goal::Fixed(target) => self.deliver_to(target, delivery).await,
            Goal::Header { name, hosts, allowed, breakers } => {
                let target = match aim(delivery, name, hosts) {
                    Ok(target) => target,
                    Err(error) => {
                        self.0.meter.fail(Code::Word(error.code()));
                        return Outcome::Bury { reason: told(&error) };
                    }
                };
                self.deliver_where_it_says(&target, name, allowed, breakers, delivery).await
            }
        }
    }

    /// Connects to the destination without a message; returns whether it accepts connections. `true` where each message
    /// names its own.
    pub async fn probe(&self) -> bool {
        !matches!(self.test().await, Tried::Failed(_))
    }

    /// The same, with the error.
    pub async fn test(&self) -> Tried {
        let now_ms = self.0.clock.now().mono_ms;
        let Goal::Fixed(target) = &self.0.goal else { return Tried::NoneToTry };
        match self.0.transport.probe(target, Reach::Anywhere, self.0.timeout, now_ms).await {
            Ok(()) => Tried::Reached,
            Err(
                NoAnswer::Refused(error)
                | NoAnswer::Cut(error)
                | NoAnswer::TimedOut(error)
                | NoAnswer::NotHttp(error),
            ) => Tried::Failed(error),
            Err(NoAnswer::Forbidden(error)) => Tried::Failed(told(&error)),
        }
    }

    /// Its counts so far.
    pub fn meter(&self) -> &Meter {
        &self.0.meter
    }

    /// The destination for people: host and port, or the header that names the URL. A path is left out: it may be a
    /// secret.
    pub fn destination(&self) -> String {
        match &self.0.goal {
            Goal::Fixed(target) => target.origin.to_string(),
            Goal::Header { name, .. } => format!("header {name}"),
        }
    }

    async fn deliver_to(&self, target: &Target, delivery: &Delivery) -> Outcome {
        match self.exchange(target, Reach::Anywhere, delivery, None).await {
            Ok(Verdict::Done) => Outcome::Done,
            Ok(Verdict::Unavailable { for_ms, error }) => {
                Failure::throttled(Duration::from_millis(for_ms), error).into_outcome()
            }
            Ok(Verdict::Gone { error }) => {
                self.0.switch.pause(&error);
                Outcome::Release { after: None }
            }
            Ok(Verdict::Rejected { error }) => Outcome::Bury { reason: error },
            Ok(Verdict::Failed { error }) | Err(NoAnswer::NotHttp(error)) => {
                Outcome::Retry { error, after: None }
            }
            Err(NoAnswer::Refused(error) | NoAnswer::Cut(error)) => Failure::refused(error).into_outcome(),
            Err(NoAnswer::TimedOut(error)) => Failure::timed_out(error).into_outcome(),
            Err(NoAnswer::Forbidden(error)) => Outcome::Retry { error: told(&error), after: None },
        }
    }

    /// The lane's breaker gets no reports of these: it would delay the messages of all hosts for one that is down.
    async fn deliver_where_it_says(
        &self,
        target: &Target,
        name: &str,
        allowed: &[Network],
        breakers: &Mutex<Hosts>,
        delivery: &Delivery,
    ) -> Outcome {
        let mono_ms = || self.0.clock.now().mono_ms;
        let id = delivery.message.id;
        if let Err(wait_ms) = lock(breakers).admit(&target.origin, id, mono_ms()) {
            return Outcome::Release { after: Some(again_after(delivery, wait_ms)) };
        }
        let out = Out { breakers, origin: &target.origin, id, clock: &*self.0.clock, is_told: false };
        let (report, outcome) =
            match self.exchange(target, Reach::Public(allowed), delivery, Some(name)).await {
                Ok(Verdict::Done) => (Report::Answered, Outcome::Done),
                // One recipient's answer does not pause the others.
                Ok(Verdict::Gone { error } | Verdict::Rejected { error }) => {
                    (Report::Answered, Outcome::Bury { reason: error })
                }
                Ok(Verdict::Failed { error }) | Err(NoAnswer::NotHttp(error)) => {
                    (Report::Answered, Outcome::Retry { error, after: None })
                }
                Ok(Verdict::Unavailable { for_ms, error }) => {
                    (Report::Throttled { for_ms }, Outcome::Retry { error, after: None })
                }
                Err(NoAnswer::Refused(error) | NoAnswer::Cut(error)) => {
                    (Report::Refused, Outcome::Retry { error, after: None })
                }
                Err(NoAnswer::TimedOut(error)) => (Report::TimedOut, Outcome::Retry { error, after: None }),
                Err(NoAnswer::Forbidden(error)) => {
                    (Report::Unknown, Outcome::Retry { error: told(&error), after: None })
                }
            };
        let (blame, wait_ms) = out.tell(report);
        let is_hosts = matches!(report, Report::Throttled { .. } | Report::Refused | Report::TimedOut);
        if is_hosts && blame == Blame::Destination {
            return Outcome::Release { after: Some(again_after(delivery, wait_ms)) };
        }
        outcome
    }

    async fn exchange(
        &self,
        target: &Target,
        reach: Reach<'_>,
        delivery: &Delivery,
        left_out: Option<&str>,
    ) -> std::result::Result<Verdict, NoAnswer> {
        let Inner { secrets, timeout, transport, clock, meter, .. } = &*self.0;
        let began = clock.now();
        let request = request::request(delivery, target, secrets, began.wall.as_ms() / 1_000, left_out);
        let answer = transport.exchange(target, reach, request, *timeout, began.mono_ms).await;
        let now = clock.now();
        let met = answer.map(|answer| {
            let retry_after = answer.retry_after.as_deref();
            (answer.status, verdict(answer.status, retry_after, &answer.body, now.wall.as_ms()))
        });
        // Up to the take by the store's clock, which may be another machine's; from then on by this one.
        let taken_ms = now.mono_ms.saturating_sub(began.mono_ms);
        meter.met(&met, delivery.lateness_ms.saturating_add(taken_ms));
        met.map(|(_, verdict)| verdict)
    }
}

/// The URL that a message names, checked.
fn aim(delivery: &Delivery, name: &str, hosts: &[HostPattern]) -> Result<Target> {
    let refuse = |reason: String| Error::RefusedTarget { reason: reason.into() };
    let url = delivery.header(name).ok_or_else(|| refuse(format!("it has no header '{name}'")))?;
    let target: Target = url.parse().map_err(|error: Error| refuse(error.to_string()))?;
    if !hosts.iter().any(|pattern| pattern.matches(&target.origin)) {
        return Err(refuse(format!("{} is none of the hosts that this sink may send to", target.origin)));
    }
    Ok(target)
}

/// The delay before a message is taken again whose host is down: not before the next try of the host, and longer the
/// more often the message was given back. Otherwise all messages of a host would return at each of its trials; and
/// hosts that are forgotten would start over.
fn again_after(delivery: &Delivery, wait_ms: u64) -> Duration {
    let message = &delivery.message;
    let releases = message.standing.counts.releases;
    let longest_ms = FIRST_PROBE_MS.saturating_mul(1 << releases.min(20)).min(LAST_PROBE_MS);
    let parts: [&[u8]; 2] = [&message.id.as_bits().to_le_bytes(), &releases.to_le_bytes()];
    Duration::from_millis(jitter::shortened(longest_ms, 20, &parts).max(wait_ms))
}

/// The error's text as it is kept with a message.
fn told(error: &Error) -> String {
    format!("{}: {error}", error.code())
}

fn lock(breakers: &Mutex<Hosts>) -> MutexGuard<'_, Hosts> {
    // Nothing under the lock can panic.
    breakers.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A message that is being sent to a host. Dropping it admits another one.
struct Out<'a> {
    breakers: &'a Mutex<Hosts>,
    origin: &'a Origin,
    id: MessageId,
    clock: &'a dyn Clock,
    is_told: bool,
}

impl Out<'_> {
    fn tell(mut self, report: Report) -> (Blame, u64) {
        self.is_told = true;
        self.report(report)
    }

    fn report(&self, report: Report) -> (Blame, u64) {
        let now_ms = self.clock.now().mono_ms;
        lock(self.breakers).report(self.origin, self.id, report, now_ms)
    }
}

impl Drop for Out<'_> {
    fn drop(&mut self) {
        if !self.is_told {
            self.report(Report::Unknown);
        }
    }
}

impl Builder {
    fn new(place: UrlSource) -> Builder {
        Builder {
            place,
            hosts: Vec::new(),
            allowed: Vec::new(),
            secrets: Vec::new(),
            timeout: Webhook::TIMEOUT,
            ca: None,
            resolver: transport::system_resolver(),
            switch: Switch::new(),
            clock: Arc::new(SystemClock::new()),
        }
    }

    /// Signs with each of these, the newest first. While secrets rotate, a receiver needs to know only one of them.
    /// Without any, requests are not signed.
    pub fn secrets(mut self, secrets: impl IntoIterator<Item = Secret>) -> Builder {
        self.secrets = secrets.into_iter().collect();
        self
    }

    /// Hosts that URLs in headers may name: `example.com`, `*.example.com`, `*`, each with `:port` if it is not the scheme's own.
    pub fn hosts(mut self, hosts: impl IntoIterator<Item = impl Into<String>>) -> Builder {
        self.hosts = hosts.into_iter().map(Into::into).collect();
        self
    }

    /// Allows URLs in headers to lead into this network, though it is not public. May be called several times.
    pub fn allow(mut self, network: Network) -> Builder {
        self.allowed.push(network);
        self
    }

    /// The timeout of an answer, including the connection: up to [`Webhook::MAX_TIMEOUT`].
    pub fn timeout(mut self, timeout: Duration) -> Builder {
        self.timeout = timeout;
        self
    }

    /// CA certificates in PEM: one of them has to have signed the receiver's certificate. By default, those that
    /// Mozilla trusts.
    pub fn ca_pem(mut self, pem: &[u8]) -> Builder {
        self.ca = Some(pem.into());
        self
    }

    /// Resolves addresses with this, in place of the operating system's resolver. It is called once for each
    /// connection.
    pub fn resolve_by<F, R>(mut self, resolve: F) -> Builder
    where
        F: Fn(String, u16) -> R + Send + Sync + 'static,
        R: Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'static,
    {
        self.resolver = Arc::new(move |host, port| Box::pin(resolve(host, port)));
        self
    }

    /// Shares this switch with others.
    pub fn switch(mut self, switch: &Switch) -> Builder {
        self.switch = switch.clone();
        self
    }

    /// Uses this clock, in place of the machine's: for the signature, `Retry-After` and breakers of hosts.
    pub fn on_clock(mut self, clock: Arc<dyn Clock>) -> Builder {
        self.clock = clock;
        self
    }

    /// The webhook. It connects when it is first used.
    ///
    /// # Errors
    /// [`Error::InvalidSink`] for an invalid URL, host, header name, time or certificate.
    pub fn build(self) -> Result<Webhook> {
        let refuse = |reason: &str| Err(Error::InvalidSink { reason: reason.into() });
        if self.timeout.is_zero() || self.timeout > Webhook::MAX_TIMEOUT {
            return refuse("an answer may take up to 300 s, and not no time");
        }
        let goal = match self.place {
            UrlSource::Url(_) if !(self.hosts.is_empty() && self.allowed.is_empty()) => {
                return refuse(
                    "hosts and networks are for URLs that come with messages, and this one is fixed",
                );
            }
            UrlSource::Url(url) => Goal::Fixed(url.parse()?),
            UrlSource::Header(_) if self.hosts.is_empty() => {
                return refuse("URLs that come with messages need `hosts`; '*' allows any public one");
            }
            UrlSource::Header(name) => {
                if hyper::header::HeaderName::from_bytes(name.as_bytes()).is_err() {
                    return refuse("the header that names the URL has no name that a header can have");
                }
                let hosts = self.hosts.iter().map(|host| host.parse()).collect::<Result<_>>()?;
                let breakers = Mutex::new(Hosts::new(RandomState::new().hash_one(&name)));
                Goal::Header { name, hosts, allowed: self.allowed, breakers }
            }
        };
        let tls = tls(self.ca.as_deref())?;
        Ok(Webhook(Arc::new(Inner {
            goal,
            secrets: self.secrets,
            timeout: self.timeout,
            transport: Transport::new(tls, self.resolver),
            switch: self.switch,
            clock: self.clock,
            meter: Meter::default(),
        })))
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

/// The configuration of TLS 1.2 and 1.3.
fn tls(ca: Option<&[u8]>) -> Result<Arc<ClientConfig>> {
    let refuse = |reason: String| Error::InvalidSink { reason: reason.into() };
    let mut roots = RootCertStore::empty();
    match ca {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate =
                    certificate.map_err(|error| refuse(format!("the certificates are no PEM: {error}")))?;
                roots.add(certificate).map_err(|error| refuse(format!("a certificate: {error}")))?;
            }
        }
    }
    if roots.is_empty() {
        return Err(refuse("the certificates to trust are none: there is no PEM in them".into()));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| refuse(error.to_string()))?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
