//! Many queues with many partitions each: the number of scripts that one call sends concurrently.

use dwell_model::{Setting, SettingChange};
use dwell_store::{Put, Store as _, Take};
use dwell_testkit::redis::Server;
use dwell_testkit::redis::proxy::{Options, Proxy};

use super::{open, queue, within};

const QUEUES: usize = 16;
const PARTITIONS: u16 = 64;

/// Commands of beats and hints in the same time.
const BESIDES: i64 = 16;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_on_many_partitions_asks_some_at_a_time() {
    let server = Server::start();
    let proxy = Proxy::with(server.port(), Options { by_value: true, ..Options::default() }).await;
    let store = open(format!("redis://127.0.0.1:{}", proxy.port()).parse().unwrap()).await;
    let queues: Vec<_> = (0..QUEUES).map(|n| queue(&format!("q{n:02}"))).collect();
    for queue in &queues {
        let partitions = vec![SettingChange::Set(Setting::Partitions(PARTITIONS))];
        within("a change", store.configure(queue.clone(), partitions)).await.unwrap();
        store.put(vec![Put::new(queue.clone(), "m")]).await.pop().unwrap().unwrap();
    }
    proxy.most_under_way();
    let listed = within("a list", store.queues(None, QUEUES)).await.unwrap();
    assert_eq!(listed.iter().map(|stats| stats.counts.ready).sum::<u64>(), QUEUES as u64);
    let most = proxy.most_under_way();
    assert!(most <= 256 + BESIDES, "a list sent {most} scripts side by side");
    for wait_ms in [0, 30_000] {
        let take = Take::from_all(queues.clone()).max(QUEUES / 2).wait_ms(wait_ms);
        let taken = within("a take", store.take(take)).await.unwrap();
        assert_eq!(taken.len(), QUEUES / 2);
        let most = proxy.most_under_way();
        assert!(most <= 256 + BESIDES, "a take sent {most} scripts side by side");
    }
}
