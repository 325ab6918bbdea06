#!/usr/bin/env bash
# What the timing queue is worth to the stores: the memory store and the engine, measured with the heap that ordered
# their instants before (bench/baseline/timing_queue_heap.rs) and with the timing queue, in turn.
#
# usage: bench/order-before-and-after.sh [ROUNDS]        3 by default; a table of medians at the end
#
# "After" is this tree as it stands; "before" is a copy of it below target/, over which the heap is laid. All stores work
# with the heap as they do without; its tests are not run, since they count what the timing queue touches. Both sides
# share the target folder: what they depend on is built once, and a side that has not changed is not built again.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-3}
target=${CARGO_TARGET_DIR:-$PWD/target}
work=$target/order-before-and-after
timing_queue=crates/time/src/timing_queue

build() { # NAME DIRECTORY
    echo "== building $1" >&2
    (cd "$2" && cargo build --release --offline -p dwell-bench --no-default-features --target-dir "$target")
    cp "$target/release/dwell-bench" "$work/$1"
}

rm -rf "$work"
mkdir -p "$work/copy"
# With their times: cargo sees what has changed by them.
git ls-files -z | tar --create --null --files-from=- | tar --extract --directory="$work/copy"
rm "$work/copy/$timing_queue"/{meter,page,pages,run,sort,tests}.rs
cp --preserve=timestamps bench/baseline/timing_queue_heap.rs "$work/copy/$timing_queue/mod.rs"
# Cargo tells packages apart by name and version, not by where they lie, and must not take the copy's for the tree's.
sed -i '/^\[workspace.package\]/,/^$/ s/^version = .*/version = "0.1.999"/' "$work/copy/Cargo.toml"
cargo fetch --locked
build before "$work/copy"
build after .
cmp -s "$work/before" "$work/after" && { echo "both sides are the same program" >&2; exit 1; }

measure() { # SIDE SCENARIO ARGUMENTS...
    local side=$1 scenario=$2
    shift 2
    # The rows of the table, as: scenario, work, metric, side, number.
    "$work/$side" "$scenario" --rounds 1 --dir "$work" "$@" 2>>"$work/progress" |
        awk -F '  +' -v OFS='\t' -v scenario="$scenario" -v side="$side" '
            $1 == "work" { rows = 1; next }
            rows && $2 == "per_s" { gsub(",", "", $3); print scenario, $1, $2, side, $3 }
        ' | tee -a "$work/rows"
}

for round in $(seq "$rounds"); do
    echo "== round $round of $rounds" >&2
    for side in before after; do measure "$side" store-memory; done
    for side in before after; do measure "$side" engine-put --quick --only =put; done
    for side in before after; do measure "$side" engine-drain --quick --only "=drain, from the journal"; done
done

# Medians of the rounds, in the order of the rows.
echo
sort -t "$(printf '\t')" -k 1,4 -k 5,5n "$work/rows" | awk -F '\t' '
    function row(side) { return scenario "  " what "  " side }
    { scenario = $1; what = $2; key = row($4); values[key, ++count[key]] = $5; names[scenario "\t" what] }
    function median(key,   n, half) {
        n = count[key]; half = int((n + 1) / 2)
        return n % 2 ? values[key, half] : (values[key, half] + values[key, half + 1]) / 2
    }
    END {
        printf "%-14s %-40s %12s %12s %7s\n", "scenario", "work, per second", "heap", "timing queue", "ratio"
        for (name in names) {
            split(name, parts, "\t"); scenario = parts[1]; what = parts[2]
            before = median(row("before")); after = median(row("after"))
            printf "%-14s %-40s %12.0f %12.0f %7.2f\n", scenario, what, before, after, after / before
        }
    }' | { read -r head; echo "$head"; sort; }
rm -rf "$work"
