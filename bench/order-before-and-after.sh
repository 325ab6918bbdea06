#!/usr/bin/env bash
# What the timing queue is worth to the stores: the memory store and the engine, measured with the heap that ordered
# their instants before (bench/baseline/timing_queue_heap.rs) and with the timing queue, in turn.
#
# usage: bench/order-before-and-after.sh [ROUNDS]        2 by default; each round prints a table a side
#
# Both sides are what is committed, in copies below target/; the heap is laid over one of them. All stores work with it
# as they do without. Its tests are not run: they count what the timing queue touches.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-2}
target=${CARGO_TARGET_DIR:-$PWD/target}
copies=$target/order-before-and-after
timing_queue=crates/time/src/timing_queue

rm -rf "$copies"
for side in before after; do
    mkdir -p "$copies/$side"
    # With the time of now, so that cargo does not take one copy's build for the other's.
    git archive HEAD | tar -xm -C "$copies/$side"
    if [ "$side" = before ]; then
        rm "$copies/$side/$timing_queue"/{meter,page,pages,run,sort,tests}.rs
        cp bench/baseline/timing_queue_heap.rs "$copies/$side/$timing_queue/mod.rs"
    fi
    (cd "$copies/$side" &&
        cargo build --release --locked -j2 -p dwell-bench --no-default-features --target-dir "$target")
    mv "$target/release/dwell-bench" "$copies/dwell-bench-$side"
done

for round in $(seq "$rounds"); do
    for scenario in "store-memory" "engine-put --quick" "engine-drain --quick"; do
        for side in before after; do
            echo "== round $round, $side: $scenario"
            # shellcheck disable=SC2086
            "$copies/dwell-bench-$side" $scenario --rounds 1 --dir "$target"
        done
    done
done
rm -rf "$copies"
