//! `delete`, `release`, `bury`, `touch`, and their effects on a job.

use dwell_model::{Number, Setting, Timestamp};
use dwell_store::{LeaseRef, Store, Target};
use dwell_time::ManualClock;

use crate::support::{Running, now_ms, start, start_at};

#[tokio::test]
async fn a_job_is_deleted_by_its_holder_and_by_nobody_else() {
    let server = start().await;
    let (mut holder, mut other) = (server.connect().await, server.connect().await);
    let id = holder.put(0, 0, 9, "x").await;
    assert_eq!(holder.reserve().await, id);
    other.expect(&format!("delete {id}"), "NOT_FOUND").await;
    holder.expect(&format!("delete {id}"), "DELETED").await;
    holder.expect(&format!("delete {id}"), "NOT_FOUND").await;
    holder.expect(&format!("peek {id}"), "NOT_FOUND").await;
    server.stop().await;
}

#[tokio::test]
async fn a_job_that_nobody_holds_is_deleted_by_anybody() {
    let server = start().await;
    let (mut owner, mut other) = (server.connect().await, server.connect().await);
    owner.ask("use t").await;
    let ready = owner.put(0, 0, 9, "x").await;
    let delayed = owner.put(0, 100, 9, "x").await;
    let buried = owner.put(0, 0, 9, "x").await;
    owner.job(&format!("reserve-job {buried}")).await;
    owner.expect(&format!("bury {buried} 0"), "BURIED").await;
    for id in [ready, delayed, buried] {
        other.expect(&format!("delete {id}"), "DELETED").await;
        other.expect(&format!("delete {id}"), "NOT_FOUND").await;
    }
    assert_eq!(other.map("stats-tube t").await["cmd-delete"], "3");
    server.stop().await;
}

#[tokio::test]
async fn a_number_that_no_job_has_is_not_found() {
    let server = start().await;
    let mut client = server.connect().await;
    for id in ["0", "7", "9007199254740992", "18446744073709551615"] {
        for command in
            ["delete {}", "release {} 0 0", "bury {} 0", "touch {}", "peek {}", "kick-job {}", "stats-job {}"]
        {
            client.expect(&command.replace("{}", id), "NOT_FOUND").await;
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn a_released_job_is_ready_at_once_or_after_its_delay_with_its_new_priority() {
    let server = start().await;
    let mut client = server.connect().await;
    let id = client.put(5, 0, 9, "x").await;
    client.reserve().await;
    client.expect(&format!("release {id} 77 0"), "RELEASED").await;
    let stats = client.map(&format!("stats-job {id}")).await;
    assert_eq!(
        (stats["state"].as_str(), stats["pri"].as_str(), stats["releases"].as_str()),
        ("ready", "77", "1")
    );
    assert_eq!(client.reserve().await, id);
    let began = now_ms();
    client.expect(&format!("release {id} 0 1"), "RELEASED").await;
    assert_eq!(client.map(&format!("stats-job {id}")).await["state"], "delayed");
    client.expect(&format!("release {id} 0 1"), "NOT_FOUND").await;
    assert_eq!(client.job("reserve-with-timeout 10").await.1, id);
    assert!(now_ms() - began >= 999);
    server.stop().await;
}

#[tokio::test]
async fn a_buried_job_is_set_aside_with_its_new_priority() {
    let server = start().await;
    let mut client = server.connect().await;
    let id = client.put(5, 0, 9, "x").await;
    client.expect(&format!("bury {id} 0"), "NOT_FOUND").await;
    client.reserve().await;
    client.expect(&format!("bury {id} 9"), "BURIED").await;
    client.expect("reserve-with-timeout 0", "TIMED_OUT").await;
    let stats = client.map(&format!("stats-job {id}")).await;
    assert_eq!(
        (stats["state"].as_str(), stats["pri"].as_str(), stats["buries"].as_str()),
        ("buried", "9", "1")
    );
    client.expect(&format!("bury {id} 9"), "NOT_FOUND").await;
    server.stop().await;
}

#[tokio::test]
async fn a_buried_job_beyond_the_dead_max_of_its_tube_is_gone() {
    let server = start().await;
    let mut client = server.connect().await;
    server.set(Setting::DeadMax(1)).await;
    let mut ids = Vec::new();
    for body in ["1", "2"] {
        let id = client.put(0, 0, 9, body).await;
        assert_eq!(client.reserve().await, id);
        client.expect(&format!("bury {id} 0"), "BURIED").await;
        ids.push(id);
    }
    client.expect(&format!("peek {}", ids[0]), "NOT_FOUND").await;
    client.expect(&format!("kick-job {}", ids[0]), "NOT_FOUND").await;
    assert_eq!(client.job("peek-buried").await.1, ids[1]);
    server.stop().await;
}

#[tokio::test]
async fn touch_begins_the_lease_anew() {
    let server = start().await;
    let mut client = server.connect().await;
    let id = client.put(0, 0, 2, "x").await;
    client.expect(&format!("touch {id}"), "NOT_FOUND").await;
    client.reserve().await;
    for _ in 0..3 {
        client.expect("reserve-with-timeout 5", "DEADLINE_SOON").await;
        client.expect(&format!("touch {id}"), "TOUCHED").await;
    }
    client.expect(&format!("delete {id}"), "DELETED").await;
    server.stop().await;
}

/// As on beanstalkd: no backoff, and no limit of attempts.
#[tokio::test]
async fn a_job_that_times_out_is_ready_each_time() {
    let clock = ManualClock::new(Timestamp::from_ms(1_795_000_000_000).unwrap());
    let server = start_at(clock.clone()).await;
    let mut client = server.connect().await;
    let id = client.put(0, 0, 60, "x").await;
    for timeouts in 1..=3 {
        assert_eq!(client.reserve().await, id);
        clock.advance(59_999);
        assert_eq!(client.map(&format!("stats-job {id}")).await["state"], "reserved");
        clock.advance(1);
        let stats = client.map(&format!("stats-job {id}")).await;
        assert_eq!(stats["state"], "ready");
        assert_eq!(stats["timeouts"], timeouts.to_string());
    }
    assert_eq!(client.reserve().await, id);
    client.expect(&format!("delete {id}"), "DELETED").await;
    server.stop().await;
}

#[tokio::test]
async fn a_lease_that_an_operator_has_ended_is_as_after_its_ttr() {
    let server = start().await;
    let mut client = server.connect().await;
    for command in ["touch {}", "release {} 0 0", "bury {} 0"] {
        let id = client.put(0, 0, 60, "x").await;
        assert_eq!(client.reserve().await, id);
        end_lease(&server, id).await;
        client.expect(&command.replace("{}", &id.to_string()), "NOT_FOUND").await;
        client.expect(&format!("delete {id}"), "DELETED").await;
    }
    let id = client.put(0, 0, 60, "x").await;
    assert_eq!(client.reserve().await, id);
    end_lease(&server, id).await;
    let mut other = server.connect().await;
    assert_eq!(other.reserve().await, id);
    client.expect(&format!("delete {id}"), "NOT_FOUND").await;
    other.expect(&format!("delete {id}"), "DELETED").await;
    server.stop().await;
}

#[tokio::test]
async fn a_lease_that_an_operator_has_ended_makes_no_deadline_soon() {
    let server = start().await;
    let (mut client, mut other) = (server.connect().await, server.connect().await);
    // The whole of its lease is the last second.
    let id = client.put(0, 0, 1, "x").await;
    assert_eq!(client.reserve().await, id);
    end_lease(&server, id).await;
    assert_eq!(other.reserve().await, id);
    other.expect(&format!("delete {id}"), "DELETED").await;
    client.expect("reserve-with-timeout 0", "TIMED_OUT").await;
    // A job that another connection holds by now is not held by this one either.
    let id = client.put(0, 0, 1, "y").await;
    assert_eq!(client.reserve().await, id);
    end_lease(&server, id).await;
    assert_eq!(other.reserve().await, id);
    other.expect("reserve-with-timeout 0", "DEADLINE_SOON").await;
    other.expect(&format!("delete {id}"), "DELETED").await;
    client.expect("reserve-with-timeout 0", "TIMED_OUT").await;
    server.stop().await;
}

async fn end_lease(server: &Running, number: u64) {
    let number = Number::new(number).unwrap();
    let (queue, id) = server.store.locate(vec![number]).await.remove(0).unwrap().unwrap();
    let takes = server.store.get(queue.clone(), vec![Target::Id(id)], false).await.remove(0);
    let takes = takes.unwrap().standing.counts.takes;
    server.store.expire_lease(queue, vec![LeaseRef { id, takes }]).await.remove(0).unwrap();
}
