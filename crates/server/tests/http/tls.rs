//! TLS: certificate rotation, client certificates, and connections that end with `close_notify`.

use std::path::Path;
use std::sync::Arc;

use dwell_model::Limits;
use dwell_server::{BindError, Server, ServerConfig, Tls, TlsFiles, Tokens};
use dwell_store::MemoryStore;
use dwell_time::SystemClock;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::support::{Connection, Running, soon, start, start_with, tokens};

/// An authority, and the certificates that it has signed.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its key.
struct Signed {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    certificate_pem: String,
    key_pem: String,
}

impl Authority {
    fn new() -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["ca.example".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    fn sign(&self, name: &str) -> Signed {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Signed {
            certificate: certificate.der().clone(),
            key: PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        }
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        let mut reader = self.pem.as_bytes();
        let certificate = rustls::pki_types::pem::PemObject::from_pem_reader(&mut reader).unwrap();
        roots.add(certificate).unwrap();
        roots
    }

    /// A client that trusts this authority alone.
    fn client(&self, shows: Option<Signed>) -> Arc<ClientConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_root_certificates(self.roots());
        Arc::new(match shows {
            None => builder.with_no_client_auth(),
            Some(signed) => builder.with_client_auth_cert(vec![signed.certificate], signed.key).unwrap(),
        })
    }
}

/// Writes certificate, key and authority into `dir`.
fn files(dir: &Path, signed: &Signed, client_ca: Option<&Authority>) -> TlsFiles {
    let write = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    TlsFiles {
        certificate: write("cert.pem", &signed.certificate_pem),
        key: write("key.pem", &signed.key_pem),
        client_ca: client_ca.map(|ca| write("ca.pem", &ca.pem)),
    }
}

async fn serve(files: &TlsFiles) -> Running {
    let tls = Tls::load(files).unwrap();
    start_with(Limits::default(), |config| config.http.tls = Some(tls)).await
}

async fn try_connect(
    server: &Running,
    client: Arc<ClientConfig>,
) -> std::io::Result<Connection<TlsStream<TcpStream>>> {
    let stream = soon("connect", TcpStream::connect(server.address)).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = soon("handshake", TlsConnector::from(client).connect(name, stream)).await?;
    Ok(Connection::over(stream, server.address))
}

async fn status(connection: &mut Connection<TlsStream<TcpStream>>) -> u16 {
    connection.request("GET", "/health/live", &[], b"").await;
    connection.answer().await.status
}

#[tokio::test]
async fn a_new_certificate_is_for_new_connections_and_the_old_ones_go_on() {
    let (dir, first, second) = (tempfile::tempdir().unwrap(), Authority::new(), Authority::new());
    let files_then = files(dir.path(), &first.sign("localhost"), None);
    let server = serve(&files_then).await;
    let mut old = try_connect(&server, first.client(None)).await.unwrap();
    assert_eq!(status(&mut old).await, 200);

    let files_now = files(dir.path(), &second.sign("localhost"), None);
    server.control.replace(&[], tokens(&[]), Some(Tls::load(&files_now).unwrap()));
    assert_eq!(status(&mut old).await, 200, "nobody is cut off");
    assert!(try_connect(&server, first.client(None)).await.is_err());
    let mut new = try_connect(&server, second.client(None)).await.unwrap();
    assert_eq!(status(&mut new).await, 200);

    server.control.replace(&[], tokens(&[]), None);
    let mut kept = try_connect(&server, second.client(None)).await.unwrap();
    assert_eq!(status(&mut kept).await, 200, "a listener that speaks TLS goes on to");
    drop((old, new, kept));
    server.stop().await;
}

#[tokio::test]
async fn a_client_without_a_certificate_is_turned_away_where_one_is_asked_for() {
    let (dir, ours, theirs) = (tempfile::tempdir().unwrap(), Authority::new(), Authority::new());
    let server = serve(&files(dir.path(), &ours.sign("localhost"), Some(&ours))).await;
    let mut good = try_connect(&server, ours.client(Some(ours.sign("client")))).await.unwrap();
    assert_eq!(status(&mut good).await, 200);
    for shows in [None, Some(theirs.sign("client"))] {
        // In TLS 1.3 a client learns of it with the first answer.
        if let Ok(mut bad) = try_connect(&server, ours.client(shows)).await {
            let _ = bad.try_write(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
            assert_eq!(bad.read_to_end().await, b"");
        }
    }
    drop(good);
    server.stop().await;
}

#[tokio::test]
async fn what_is_no_tls_is_closed_and_the_listener_goes_on() {
    let (dir, ca) = (tempfile::tempdir().unwrap(), Authority::new());
    let server = serve(&files(dir.path(), &ca.sign("localhost"), None)).await;
    let mut plain = Connection::open(server.address).await;
    plain.write(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert!(!String::from_utf8_lossy(&plain.read_to_end().await).contains("200 OK"));
    let _silent = Connection::open(server.address).await;
    let mut good = try_connect(&server, ca.client(None)).await.unwrap();
    assert_eq!(status(&mut good).await, 200);
    drop(good);
    server.stop().await;
}

#[tokio::test]
async fn a_taker_who_says_goodbye_gets_nothing_and_its_message_stays() {
    let (dir, ca) = (tempfile::tempdir().unwrap(), Authority::new());
    let server = serve(&files(dir.path(), &ca.sign("localhost"), None)).await;
    let mut taker = try_connect(&server, ca.client(None)).await.unwrap();
    taker.request("POST", "/v1/queues/q/take?wait=50s&lease=1h", &[], b"").await;
    server.until_count("waiting", 1).await;
    soon("goodbye", taker.stream_mut().shutdown()).await.unwrap();
    drop(taker);
    let mut putter = try_connect(&server, ca.client(None)).await.unwrap();
    putter.request("POST", "/v1/queues/q/messages", &[], b"x").await;
    assert_eq!(putter.answer().await.status, 201);
    server.until("it is ready", |counts| (counts.ready, counts.leased) == (1, 0)).await;

    // Pipelined requests are read completely, also where the server has read ahead.
    for _ in 0..3 {
        putter.request("POST", "/v1/queues/q/take?lease=1h", &[], b"").await;
    }
    for count in [1, 0, 0] {
        let answer = putter.answer().await.json();
        assert_eq!(answer["messages"].as_array().unwrap().len(), count);
    }
    drop(putter);
    server.stop().await;
}

#[tokio::test]
async fn large_answers_arrive_whole() {
    let (dir, ca) = (tempfile::tempdir().unwrap(), Authority::new());
    let server = serve(&files(dir.path(), &ca.sign("localhost"), None)).await;
    let mut client = try_connect(&server, ca.client(None)).await.unwrap();
    let body = vec![b'x'; 1 << 20];
    for _ in 0..4 {
        client.request("POST", "/v1/queues/q/messages", &[], &body).await;
        assert_eq!(client.answer().await.status, 201);
    }
    client.request("POST", "/v1/queues/q/take?max=4", &[], b"").await;
    let answer = client.answer().await.json();
    let taken = answer["messages"].as_array().unwrap();
    assert!(taken.len() == 4 && taken.iter().all(|one| one["size"] == 1 << 20), "{}", taken.len());
    drop(client);
    server.stop().await;
}

/// A PEM frame around `text`.
fn framed(text: &str) -> String {
    ["CERTIFICATE", "PRIVATE KEY"]
        .map(|what| format!("-----BEGIN {what}-----\n{text}\n-----END {what}-----\n"))
        .concat()
}

#[tokio::test]
async fn a_listener_that_does_not_speak_tls_does_not_begin_to() {
    let (dir, ca) = (tempfile::tempdir().unwrap(), Authority::new());
    let server = start().await;
    let tls = Tls::load(&files(dir.path(), &ca.sign("localhost"), None)).unwrap();
    server.control.replace(&[], tokens(&[]), Some(tls));
    assert_eq!(server.get("/health/live").await.status, 200);
    server.stop().await;
}

/// TLS alone does not authenticate callers: an exposed listener needs tokens, or certificates of its clients.
#[tokio::test]
async fn where_others_reach_it_a_certificate_of_the_client_guards_and_one_of_the_server_does_not() {
    let (dir, ca) = (tempfile::tempdir().unwrap(), Authority::new());
    let open = Tls::load(&files(dir.path(), &ca.sign("localhost"), None)).unwrap();
    let guarded = Tls::load(&files(dir.path(), &ca.sign("localhost"), Some(&ca))).unwrap();
    assert!(guarded.asks_for_certificates() && !open.asks_for_certificates());
    let bind = async |tokens: Tokens, tls: Option<Tls>| {
        let store = Arc::new(MemoryStore::new(Limits::default(), Arc::new(SystemClock::new())));
        let mut config = ServerConfig::default();
        config.http.listen = "0.0.0.0:0".parse().unwrap();
        (config.http.tokens, config.http.tls) = (tokens, tls);
        Server::bind(store, config).await
    };
    let (nobody, somebody) = (tokens(&[]), tokens(&[("secret", &["put:*"])]));
    let exposed = |error: BindError| error.code() == "listener_exposed";
    assert!(exposed(bind(nobody.clone(), Some(open.clone())).await.unwrap_err()));

    let control = bind(nobody.clone(), Some(guarded.clone())).await.unwrap().control();
    assert!(control.check(&nobody, None).is_ok(), "the one in force stays");
    assert!(control.check(&nobody, Some(&guarded)).is_ok());
    assert!(control.check(&somebody, Some(&open)).is_ok());
    assert!(exposed(control.check(&nobody, Some(&open)).unwrap_err()));

    let plain = bind(somebody.clone(), None).await.unwrap().control();
    assert!(plain.check(&somebody, Some(&open)).is_ok());
    assert!(exposed(plain.check(&nobody, Some(&guarded)).unwrap_err()), "it speaks no TLS");
}

#[test]
fn nothing_shows_a_key() {
    let (dir, ca) = (tempfile::tempdir().unwrap(), Authority::new());
    let tls = Tls::load(&files(dir.path(), &ca.sign("localhost"), Some(&ca))).unwrap();
    assert_eq!(format!("{tls:?}"), "Tls { asks_for_certificates: true, .. }");
}

#[test]
fn files_that_do_not_fit_are_named() {
    let (dir, ca) = (tempfile::tempdir().unwrap(), Authority::new());
    let good = files(dir.path(), &ca.sign("localhost"), None);
    let text = dir.path().join("text.pem");
    std::fs::write(&text, "no PEM at all").unwrap();
    let foreign_key = dir.path().join("foreign.pem");
    std::fs::write(&foreign_key, ca.sign("localhost").key_pem).unwrap();
    let nowhere = dir.path().join("nowhere.pem");
    let broken = dir.path().join("broken.pem");
    std::fs::write(&broken, framed("hush!")).unwrap();
    let (none, unread) = ("there is none", "what is there cannot be read");
    for (files, code, file, words) in [
        (
            TlsFiles { certificate: nowhere.clone(), ..good.clone() },
            "tls_unreadable",
            &nowhere,
            "name a file",
        ),
        (TlsFiles { key: nowhere.clone(), ..good.clone() }, "tls_unreadable", &nowhere, "name a file"),
        (TlsFiles { certificate: text.clone(), ..good.clone() }, "tls_invalid", &text, none),
        (TlsFiles { certificate: good.key.clone(), ..good.clone() }, "tls_invalid", &good.key, none),
        (TlsFiles { certificate: broken.clone(), ..good.clone() }, "tls_invalid", &broken, unread),
        (TlsFiles { key: text.clone(), ..good.clone() }, "tls_invalid", &text, none),
        (TlsFiles { key: broken.clone(), ..good.clone() }, "tls_invalid", &broken, unread),
        (TlsFiles { key: good.certificate.clone(), ..good.clone() }, "tls_invalid", &good.certificate, none),
        (TlsFiles { key: foreign_key.clone(), ..good.clone() }, "tls_invalid", &foreign_key, "not the key"),
        (TlsFiles { client_ca: Some(text.clone()), ..good.clone() }, "tls_invalid", &text, none),
    ] {
        let error = Tls::load(&files).unwrap_err();
        assert_eq!((error.code(), error.file()), (code, file.as_path()), "{error}");
        let shown = error.to_string();
        assert!(shown.contains(file.to_str().unwrap()) && shown.contains(words), "{error}");
        assert!(!shown.contains("hush"), "it may be the key: {error}");
    }
}
