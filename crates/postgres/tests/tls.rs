//! Connections that are encrypted: whom they trust, whom the server trusts, and what is said where one does not.

mod support;

use std::path::Path;
use std::sync::{Arc, Mutex};

use dwell_model::{Key, Limits, QueueName};
use dwell_postgres::{Address, OpenError, PostgresStore};
use dwell_store::{Put, Store as _, Take};
use dwell_testkit::postgres::{Server, Tls};
use dwell_testkit::{until_async, within};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use support::{RUNTIME, connect, run};

/// What a connection begins with that asks for TLS: its length, and a number that says so.
const ASKS_FOR_TLS: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// An authority of this name, whose certificate lies in `NAME.pem`.
struct Authority(Issuer<'static, KeyPair>);

impl Authority {
    fn new(folder: &Path, file: &str, name: &str) -> Authority {
        let key = KeyPair::generate().expect("a key can be made");
        let mut params = CertificateParams::new(Vec::new()).expect("it has no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.self_signed(&key).expect("it can be signed");
        std::fs::write(folder.join(file), certificate.pem()).expect("a file can be made");
        Authority(Issuer::new(params, key))
    }

    /// A certificate for a host, or for somebody, and its key.
    fn sign(&self, hosts: &[&str], name: &str) -> (String, String) {
        let key = KeyPair::generate().expect("a key can be made");
        let hosts = hosts.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>();
        let mut params = CertificateParams::new(hosts).expect("they are names");
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.0).expect("it can be signed");
        (certificate.pem(), key.serialize_pem())
    }

    /// The same in `NAME.pem` and `NAME.key` of the folder.
    fn sign_for(&self, folder: &Path, name: &str) {
        let (certificate, key) = self.sign(&[], name);
        std::fs::write(folder.join(format!("{name}.pem")), certificate).expect("a file can be made");
        std::fs::write(folder.join(format!("{name}.key")), key).expect("a file can be made");
    }
}

/// A server for `localhost`, and the files of who trusts it. In its database `postgres` the superuser needs no TLS.
struct Encrypted {
    server: Server,
    folder: TempDir,
}

impl Encrypted {
    /// Users of the database `shop` come in as these lines say.
    fn start(hba: &str, asks_clients: bool) -> Encrypted {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let authority = Authority::new(folder.path(), "ca.pem", "an authority");
        Authority::new(folder.path(), "other.pem", "another");
        Authority::new(folder.path(), "double.pem", "an authority");
        let (certificate, key) = authority.sign(&["localhost"], "a server");
        let client_ca = asks_clients.then(|| {
            let clients = Authority::new(folder.path(), "clients.pem", "of clients");
            clients.sign_for(folder.path(), "postgres");
            clients.sign_for(folder.path(), "somebody");
            authority.sign_for(folder.path(), "stranger");
            std::fs::read_to_string(folder.path().join("clients.pem")).expect("it was made")
        });
        let hba = format!("hostnossl postgres postgres 127.0.0.1/32 trust\n{hba}\n");
        let server = Server::start_with_tls(&Tls { certificate, key, client_ca, hba });
        Encrypted { server, folder }
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// The URL of `shop` by this name of the server, with these options besides the ones that all tests need.
    fn url(&self, user: &str, host: &str, options: &str) -> String {
        let port = self.server.port();
        format!("postgres://{user}@{host}:{port}/shop?unsynced=allow&connections=4&{options}")
    }
}

async fn open(url: &str) -> Result<PostgresStore, OpenError> {
    let address: Address = url.parse()?;
    within("an opening", Box::pin(PostgresStore::open(address, Limits::default()))).await
}

async fn refused(url: &str) -> OpenError {
    match open(url).await {
        Ok(_) => panic!("{url} can be opened"),
        Err(error) => error,
    }
}

/// It is refused as what cannot be reached, for a reason that has this part and no password.
async fn unreachable(url: &str, part: &str) {
    let error = refused(url).await;
    let text = error.to_string();
    assert_eq!((error.code(), error.is_retryable()), ("unreachable", true), "{url}: {text}");
    assert!(text.contains(part) && !text.contains("s3cret"), "{url}: {text}");
}

fn orders() -> QueueName {
    "orders".parse().expect("it is a name")
}

/// Puts and takes.
async fn serves(store: &PostgresStore) {
    assert!(store.put(vec![Put::new(orders(), "one")]).await[0].is_ok());
    let taken = store.take(Take::from(orders())).await.expect("it is there");
    assert_eq!(&taken[0].message.body[..], b"one");
}

#[test]
fn a_store_works_over_tls_with_servers_that_it_trusts_and_no_others() {
    let hba = "hostssl shop postgres 127.0.0.1/32 trust\nhostssl shop app 127.0.0.1/32 scram-sha-256";
    let there = Encrypted::start(hba, false);
    let ca = there.file("ca.pem");
    RUNTIME.block_on(async {
        let admin = connect(&there.server.url("postgres")).await;
        run(&admin, "CREATE ROLE app LOGIN PASSWORD 's3cret'").await;
        run(&admin, "CREATE DATABASE shop OWNER app").await;
        // The password is proved over this very connection: what stands between could not pass it on.
        let by_password = there.url(
            "app:s3cret",
            "localhost",
            &format!("sslmode=verify-full&ca={ca}&channel_binding=require"),
        );
        let store = open(&by_password).await.expect("it trusts the server");
        serves(&store).await;
        let encrypted = "SELECT count(*) FILTER (WHERE ssl), count(*) FILTER (WHERE NOT ssl) \
            FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE datname = 'shop'";
        let row = admin.query_one(encrypted, &[]).await.expect("the server answers");
        let (encrypted, plain): (i64, i64) = (row.get(0), row.get(1));
        assert!(encrypted > 0 && plain == 0, "{encrypted} and {plain}");
        drop(store);
        let ca = format!("ca={ca}");
        let store = open(&there.url("app:s3cret", "localhost", &format!("sslmode=require&{ca}"))).await;
        serves(&store.expect("it trusts the server")).await;

        let user = "app:s3cret";
        let [other, double] = ["other.pem", "double.pem"].map(|name| format!("ca={}", there.file(name)));
        for (host, options, part) in [
            ("localhost", format!("sslmode=require&{other}"), "no trusted authority"),
            ("localhost", format!("sslmode=verify-full&{other}"), "no trusted authority"),
            ("localhost", format!("sslmode=require&{double}"), "no trusted authority"),
            ("127.0.0.1", format!("sslmode=require&{ca}"), "not valid for name"),
            ("127.0.0.1", format!("sslmode=verify-full&{ca}"), "not valid for name"),
            ("localhost", "sslmode=disable".to_owned(), "no encryption"),
            ("localhost", String::new(), "no encryption"),
        ] {
            unreachable(&there.url(user, host, &options), part).await;
        }
        // Whom the system trusts, if it trusts anybody, does not include this authority.
        let error = refused(&there.url(user, "localhost", "sslmode=require")).await;
        assert!(["unreachable", "tls_invalid"].contains(&error.code()), "{error}");
        // With a wrong password nothing of it is said either.
        let wrong = there.url("app:s3crets", "localhost", &format!("sslmode=require&{ca}"));
        unreachable(&wrong, "app").await;
    });
}

#[test]
fn a_server_without_tls_is_refused_where_tls_is_asked_for() {
    let server = Server::start();
    RUNTIME.block_on(async {
        let url = server.url("postgres").replace("postgres@", "postgres:s3cret@");
        let folder = tempfile::tempdir().expect("a folder can be made");
        Authority::new(folder.path(), "ca.pem", "an authority");
        let ca = folder.path().join("ca.pem").display().to_string();
        for mode in ["require", "verify-full"] {
            unreachable(&format!("{url}?unsynced=allow&sslmode={mode}&ca={ca}"), "does not support TLS")
                .await;
        }
        open(&format!("{url}?unsynced=allow&sslmode=disable")).await.expect("it needs no TLS");
    });
}

#[test]
fn a_client_shows_its_certificate_where_the_server_asks_for_one() {
    let there = Encrypted::start("hostssl shop postgres 127.0.0.1/32 cert", true);
    RUNTIME.block_on(async {
        run(&connect(&there.server.url("postgres")).await, "CREATE DATABASE shop").await;
        let tls = format!("sslmode=require&ca={}", there.file("ca.pem"));
        let own = |name: &str| {
            let files = ["pem", "key"].map(|ending| there.file(&format!("{name}.{ending}")));
            there.url("postgres", "localhost", &format!("{tls}&certificate={}&key={}", files[0], files[1]))
        };
        serves(&open(&own("postgres")).await.expect("they trust each other")).await;
        let nobody = there.url("postgres", "localhost", &tls);
        unreachable(&nobody, "requires a valid client certificate").await;
        // It is whose name the certificate has.
        unreachable(&own("somebody"), "authentication failed").await;
        // Another authority has signed it. The server hangs up as it says so; what comes first is chance.
        until_async("the server's word on a certificate", async || {
            let error = refused(&own("stranger")).await;
            assert_eq!(error.code(), "unreachable", "{error}");
            error.to_string().contains("does not accept our certificate")
        })
        .await;

        let [ca, certificate, key, foreign] =
            ["ca.pem", "postgres.pem", "postgres.key", "somebody.key"].map(|name| there.file(name));
        for (options, file, part) in [
            ("ca=/nowhere/ca.pem".to_owned(), "/nowhere/ca.pem", "No such file"),
            (format!("ca={key}"), &*key, "no certificate"),
            (format!("ca={ca}&certificate=/nowhere/c.pem&key={key}"), "/nowhere/c.pem", "No such file"),
            (format!("ca={ca}&certificate={key}&key={key}"), &key, "no certificate"),
            (format!("ca={ca}&certificate={certificate}&key=/nowhere/k"), "/nowhere/k", "No such file"),
            (format!("ca={ca}&certificate={certificate}&key={certificate}"), &certificate, "no private key"),
            (format!("ca={ca}&certificate={certificate}&key={foreign}"), &foreign, "does not go with"),
        ] {
            let url = there.url("postgres:s3cret", "localhost", &format!("sslmode=require&{options}"));
            let error = refused(&url).await;
            let text = error.to_string();
            assert!(matches!(error, OpenError::Certificate { .. }), "{options}: {text}");
            assert_eq!((error.code(), error.is_retryable()), ("tls_invalid", false));
            assert!(
                text.contains(file) && text.contains(part) && !text.contains("s3cret"),
                "{options}: {text}"
            );
        }
    });
}

/// Passes connections on to a server, and keeps what each begins with.
async fn relay(to: u16) -> (u16, Arc<Mutex<Vec<[u8; 8]>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let beginnings = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&beginnings);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let kept = Arc::clone(&kept);
            tokio::spawn(async move {
                let mut beginning = [0; 8];
                client.read_exact(&mut beginning).await?;
                kept.lock().expect("nobody panics with it").push(beginning);
                let mut server = TcpStream::connect(("127.0.0.1", to)).await?;
                server.write_all(&beginning).await?;
                tokio::io::copy_bidirectional(&mut client, &mut server).await
            });
        }
    });
    (port, beginnings)
}

#[test]
fn a_call_is_cancelled_over_tls_as_well() {
    let there = Encrypted::start("host shop postgres 127.0.0.1/32 trust", false);
    RUNTIME.block_on(async {
        let admin = connect(&there.server.url("postgres")).await;
        run(&admin, "CREATE DATABASE shop").await;
        let (port, beginnings) = relay(there.server.port()).await;
        let url = |port: u16, options: &str| {
            let ca = there.file("ca.pem");
            format!(
                "postgres://postgres@localhost:{port}/shop?unsynced=allow&sslmode=require&ca={ca}{options}"
            )
        };
        let patient = open(&url(there.server.port(), "")).await.expect("it trusts the server");
        serves(&patient).await;
        // It gives up before a statement of the schema gives up waiting for a lock.
        let mut hasty = None;
        until_async("a store to open in so short a time", async || {
            hasty = open(&url(port, "&timeout_ms=700&connections=2")).await.ok();
            hasty.is_some()
        })
        .await;
        let hasty = hasty.expect("it is open");
        let holder = connect(&there.server.url("shop")).await;
        run(&holder, "BEGIN; SELECT dwell.put('orders', 'theirs', key => 'k')").await;
        let key = || Key::new("k").expect("it is a key");
        until_async("a put to be cancelled", async || {
            let answers = hasty.put(vec![Put::new(orders(), "ours").key(key())]).await;
            assert!(answers[0].is_err(), "somebody holds the key");
            there.server.log().contains("canceling statement due to user request")
        })
        .await;
        let beginnings = beginnings.lock().expect("nobody panics with it").clone();
        assert!(beginnings.len() >= 2, "a connection and a cancellation: {beginnings:?}");
        assert!(beginnings.iter().all(|beginning| *beginning == ASKS_FOR_TLS), "{beginnings:?}");
    });
}
