//! The engine's samples for the metrics page. `docs/metrics.md` lists the names; a test compares them.

use dwell_engine::Engine;
use dwell_engine::disk::Sizes;
use dwell_server::{Sample, SampleValue};

/// The current samples.
pub(super) fn of(engine: &Engine) -> Vec<Sample> {
    let counters = engine.counters();
    let counter = |name, help, count| Sample { name, help, value: SampleValue::Counter(count) };
    let gauge = |name, help, now| Sample { name, help, value: SampleValue::Gauge(now) };
    let sizes = |name, help, sizes, unit| Sample { name, help, value: histogram(sizes, unit) };
    let mut samples = vec![
        counter("dwell_engine_commands", "Calls taken in", counters.commands),
        counter("dwell_engine_batches", "Batches written", counters.batches),
        sizes(
            "dwell_engine_batch_commands",
            "How many calls were taken in at a time",
            engine.batch_commands(),
            1.0,
        ),
        counter("dwell_engine_syncs", "Syncs of files", counters.disk.syncs),
        sizes("dwell_engine_sync_seconds", "How long a sync took", engine.sync_us(), 1e-6),
        sizes("dwell_engine_write_bytes", "How much was written at a time", engine.write_sizes(), 1.0),
        counter("dwell_engine_read_bytes", "Bytes asked of the disk", counters.disk.read_bytes),
        counter("dwell_engine_wakeups", "How often the engine's thread was woken", counters.wakeups),
        gauge("dwell_engine_segments", "Segments that the journal has", counters.segments),
        counter("dwell_engine_flushes", "Flushes that were completed", counters.flushes),
        gauge("dwell_engine_tables", "Tables that there are", counters.tables),
        gauge(
            "dwell_engine_messages_resident",
            "Messages in memory, without their bodies",
            counters.resident,
        ),
        gauge("dwell_engine_messages_cold", "Messages in tables alone", counters.cold),
        gauge(
            "dwell_engine_memory_bytes",
            "Bytes in memory that the limit counts: of messages, and of what finds those in files",
            counters.resident_bytes + counters.file_bytes,
        ),
        gauge(
            "dwell_engine_idempotency_keys",
            "Idempotency keys that are remembered",
            counters.idempotency_keys,
        ),
        counter("dwell_engine_bodies_unread", "Bodies that a take could not read", counters.unread),
        counter(
            "dwell_engine_bodies_damaged",
            "Bodies that failed their checksums when they were to be moved",
            counters.damaged,
        ),
        counter(
            "dwell_engine_memory_full",
            "How often the next message of a queue stayed in its file since memory was full",
            counters.memory_full,
        ),
        gauge(
            "dwell_engine_index_runs_damaged",
            "Runs that cannot be read at some place, and could not be rebuilt yet",
            counters.runs_damaged,
        ),
        counter(
            "dwell_engine_index_runs_rebuilt",
            "Runs that could not be read, and were rebuilt from tables",
            counters.runs_rebuilt,
        ),
        gauge(
            "dwell_engine_background_failures",
            "Kinds of work in the background that have failed and not gone well since",
            engine.background_failures().len() as u64,
        ),
    ];
    // If the directory cannot be read, the page is made without it.
    if let Ok(bytes) = engine.file_bytes() {
        samples.push(gauge("dwell_engine_journal_bytes", "Bytes of the journal", bytes.journal));
        samples.push(gauge("dwell_engine_table_bytes", "Bytes of tables and their indexes", bytes.due));
    }
    samples
}

fn histogram(sizes: Sizes, unit: f64) -> SampleValue {
    let bound = |bucket| Sizes::bound(bucket).map_or(f64::INFINITY, |bound| bound as f64 * unit);
    // Every second bucket, each with the one below: a factor of four is fine enough for a graph.
    let last = Sizes::BUCKETS - 1;
    let pairs = (0..last).step_by(2).map(|at| {
        let below = at.checked_sub(1).map_or(0, |below| sizes.counts[below]);
        (bound(at), below + sizes.counts[at])
    });
    let buckets = pairs.chain([(f64::INFINITY, sizes.counts[last])]).collect();
    SampleValue::Histogram { buckets, sum: sizes.sum as f64 * unit }
}
