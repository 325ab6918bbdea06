//! A server whose disk has failed: it is live and not ready, and ready again when its store is reopened.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod common;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use dwell_client::Client;
use dwell_engine::disk::{Calls, Fault, MemoryDisk};
use dwell_engine::{Engine, Options};
use dwell_server::{Server, ServerConfig};
use dwell_store::{Blocking, Put, Store, Take};
use tokio::sync::oneshot;

use common::{PATIENCE, until};

/// A server over an engine on this disk.
struct Running {
    address: SocketAddr,
    engine: Engine,
    stop: oneshot::Sender<()>,
    thread: thread::JoinHandle<()>,
}

fn start(disk: &MemoryDisk) -> Running {
    let options = Options { disk: Arc::new(disk.clone()), segment_bytes: 256 * 1024, ..Options::default() };
    let engine = Engine::open("data", options).unwrap();
    let store: Arc<dyn Store> = Arc::new(engine.clone());
    let (tell, told) = channel();
    let (stop, stopped) = oneshot::channel();
    let thread = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut config = ServerConfig::default();
            config.http.listen = "127.0.0.1:0".parse().unwrap();
            let server = Server::bind(store, config).await.unwrap();
            tell.send(server.http_addr()).unwrap();
            let stopped = async {
                let _ = stopped.await;
            };
            server.run(stopped).await;
        });
    });
    Running { address: told.recv_timeout(PATIENCE).unwrap(), engine, stop, thread }
}

impl Running {
    fn client(&self) -> Blocking<Client> {
        Client::new(&format!("http://{}", self.address)).unwrap().blocking()
    }

    /// The whole answer to a GET.
    fn get(&self, target: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!("GET {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address);
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn stop(self) {
        self.stop.send(()).unwrap();
        self.thread.join().unwrap();
        // The result does not matter; the directory is released.
        let _ = self.engine.close();
    }
}

#[test]
fn after_a_failed_sync_it_lives_and_is_not_ready_until_the_store_is_opened_anew() {
    let disk = MemoryDisk::new();
    let server = start(&disk);
    let client = server.client();
    let put = |body: &str| Put::new("q".parse().unwrap(), body.to_owned());
    client.put_one(put("safe")).unwrap();
    assert!(server.get("/health/ready").starts_with("HTTP/1.1 200 "));

    disk.fail(Fault { calls: Calls::Syncs, after: 0, times: 1, error: ErrorKind::Other });
    assert_eq!(client.put_one(put("unknown")).unwrap_err().code(), "outcome_unknown");
    // The disk works again, but its content is not known.
    assert_eq!(client.put_one(put("refused")).unwrap_err().code(), "unavailable");
    assert_eq!(client.take(Take::from("q".parse().unwrap())).unwrap_err().code(), "unavailable");
    // The store's last answer is valid for a second.
    let mut ready = String::new();
    until("it is not ready", || {
        ready = server.get("/health/ready");
        ready.starts_with("HTTP/1.1 503 ")
    });
    assert!(ready.starts_with("HTTP/1.1 503 ") && ready.contains("\"code\":\"unavailable\""), "{ready}");
    assert!(ready.to_lowercase().contains("\r\nretry-after: "), "{ready}");
    assert!(server.get("/health/live").starts_with("HTTP/1.1 200 "));
    let page = server.get("/metrics");
    assert!(page.contains("\ndwell_up 0\n"), "{page}");
    server.stop();

    let server = start(&disk);
    assert!(server.get("/health/ready").starts_with("HTTP/1.1 200 "));
    let taken = server.client().take(Take::from("q".parse().unwrap()).max(10)).unwrap();
    assert_eq!(taken[0].message.body, b"safe".as_slice());
    assert!(taken.iter().all(|delivery| delivery.message.body != b"refused".as_slice()));
    server.stop();
}
