//! Runs the unmodified crate beanstalkc against a running dwell, or beanstalkd:
//!
//!     beanstalkc-client 127.0.0.1:11300

use std::error::Error;
use std::time::Duration;

use beanstalkc::Beanstalkc;

const NOW: Duration = Duration::ZERO;
const TTR: Duration = Duration::from_secs(60);

fn connect(address: &str) -> Result<Beanstalkc, Box<dyn Error>> {
    let (host, port) = address.rsplit_once(':').ok_or("name a host and a port")?;
    Ok(Beanstalkc::new()
        .host(host)
        .port(port.parse()?)
        .connection_timeout(Some(Duration::from_secs(10)))
        .connect()?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).ok_or("name the server's address")?;
    let mut client = connect(&address)?;
    assert_eq!(client.use_tube("beanstalkc")?, "beanstalkc");
    assert_eq!((client.watch("beanstalkc")?, client.ignore("default")?), (2, 1));
    assert_eq!(
        (client.using()?, client.watching()?),
        ("beanstalkc".to_owned(), vec!["beanstalkc".to_owned()])
    );
    assert!(client.ignore("beanstalkc").is_err());

    // put, reserve, touch, delete
    let id = client.put(b"hello", 7, NOW, TTR)?;
    let mut job = client.reserve()?;
    assert_eq!((job.id(), job.body()), (id, b"hello".as_slice()));
    let stats = job.stats()?;
    assert_eq!(
        (stats["state"].as_str(), stats["pri"].as_str(), stats["tube"].as_str()),
        ("reserved", "7", "beanstalkc")
    );
    job.touch()?;
    job.delete()?;
    assert!(client.delete(id).is_err());

    // a delay
    let id = client.put(b"later", 1, Duration::from_secs(1), TTR)?;
    assert_eq!(client.peek_delayed()?.id(), id);
    assert!(client.reserve_with_timeout(NOW).is_err());
    let mut job = client.reserve_with_timeout(Duration::from_secs(10))?;
    assert_eq!(job.id(), id);

    // release, kick, bury, peek
    job.release(3, Duration::from_secs(100))?;
    assert_eq!(client.kick(10)?, 1);
    let mut job = client.reserve_with_timeout(NOW)?;
    job.bury(9)?;
    assert_eq!(client.peek_buried()?.id(), id);
    client.kick_job(id)?;
    assert_eq!((client.peek_ready()?.id(), client.peek(id)?.body()), (id, b"later".as_slice()));
    client.delete(id)?;

    // pause, stats-tube
    client.pause_tube("beanstalkc", Duration::from_secs(60))?;
    let id = client.put(b"paused", 1, NOW, TTR)?;
    assert!(client.reserve_with_timeout(NOW).is_err());
    client.pause_tube("beanstalkc", NOW)?;
    let stats = client.stats_tube("beanstalkc")?;
    assert_eq!((stats["current-jobs-ready"].as_str(), stats["name"].as_str()), ("1", "beanstalkc"));
    assert!(client.tubes()?.contains(&"beanstalkc".to_owned()) && client.stats()?.contains_key("uptime"));

    // The jobs reserved by a connection are ready again when it closes.
    let mut other = connect(&address)?;
    other.watch("beanstalkc")?;
    assert_eq!(other.reserve_with_timeout(NOW)?.id(), id);
    drop(other);
    client.reserve_with_timeout(Duration::from_secs(10))?.delete()?;
    println!("beanstalkc: ok");
    Ok(())
}
