//! `wire`: puts over beanstalkd's protocol, each synced before it is answered, beside beanstalkd that syncs each
//! write, and beanstalkd that keeps nothing.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::Scenario;
use crate::Result;
use crate::beanstalk::{self, Wire};
use crate::peers::beanstalkd::{Beanstalkd, Kept};
use crate::report::Better;
use crate::run::{Run, Side};
use crate::server::Server;
use crate::stopwatch::{Stopwatch, pause};
use crate::workload::Items;

pub(crate) const SCENARIO: Scenario =
    Scenario { name: "wire", what: "puts over beanstalkd's protocol, each synced, beside beanstalkd", run };

/// Connections, and puts that are under way on each.
const SHAPES: [(usize, usize, &str); 3] = [
    (1, 1, "1 connection, 1 put at a time"),
    (1, 64, "1 connection, 64 puts at a time"),
    (64, 64, "64 connections, 64 puts at a time"),
];

fn run(run: &mut Run) -> Result<()> {
    let seconds = run.scaled(5);
    run.note(format!(
        "for {seconds} s: puts of 128 random bytes, delayed at random within a day; a connection sends its next puts \
         when all it sent are answered"
    ));
    run.note("beanstalkd-f0 syncs each write to its log, beanstalkd-mem has none; clients share the machine");
    for (connections, pipeline, work) in SHAPES {
        let load = Load { connections, pipeline, time: Duration::from_secs(seconds) };
        let mut sides = [
            Side::new("dwell", |run| {
                let server = Server::start(&run.empty_folder("dwell")?)?;
                load.puts_per_second(server.beanstalkd())
            }),
            Side::new("beanstalkd-f0", |run| {
                let server = Beanstalkd::start(Kept::Synced(&run.empty_folder("beanstalkd")?))?;
                load.puts_per_second(server.address())
            }),
            Side::new("beanstalkd-mem", |_| {
                let server = Beanstalkd::start(Kept::InMemory)?;
                load.puts_per_second(server.address())
            }),
        ];
        run.contest(work, "per_s", Better::Higher, &mut sides)?;
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Load {
    connections: usize,
    pipeline: usize,
    time: Duration,
}

impl Load {
    /// How many puts a second were answered.
    fn puts_per_second(self, address: &str) -> Result<f64> {
        let wires: Vec<Wire> =
            (0..self.connections).map(|_| Wire::connect(address)).collect::<Result<_>>()?;
        let (answered, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let items: Vec<_> = Items::new((self.connections * self.pipeline) as u64).collect();
        thread::scope(|scope| {
            let watch = Stopwatch::start();
            let workers: Vec<_> = wires
                .into_iter()
                .zip(items.chunks(self.pipeline))
                .map(|(mut wire, items)| {
                    let mut commands = Vec::new();
                    for item in items {
                        beanstalk::put(&mut commands, item.due_ms / 1_000, &item.body);
                    }
                    let (answered, over) = (&answered, &over);
                    scope.spawn(move || -> std::result::Result<(), String> {
                        while !over.load(Ordering::Relaxed) {
                            wire.send(&commands).map_err(|error| error.to_string())?;
                            for _ in 0..items.len() {
                                wire.expect("INSERTED").map_err(|error| error.to_string())?;
                                answered.fetch_add(1, Ordering::Relaxed);
                                // Who takes seconds for what was sent is not waited for.
                                if over.load(Ordering::Relaxed) {
                                    return Ok(());
                                }
                            }
                        }
                        Ok(())
                    })
                })
                .collect();
            pause(self.time);
            let told = answered.load(Ordering::Relaxed);
            let rate = watch.per_second(told);
            over.store(true, Ordering::Relaxed);
            for worker in workers {
                worker.join().expect("a worker does not panic")?;
            }
            let there = Wire::connect(address)?.tube_stat("default", "current-jobs-delayed")?;
            // Some in a thousand are due at once.
            if there + told / 100 < told {
                return Err(format!("{told} puts were answered, and {there} jobs are there").into());
            }
            Ok(rate)
        })
    }
}
