# The longer sets of `scripts/test --long`. Most of them keep one processor busy, so two lanes of them run in parallel
# once everything they need is built.
# shellcheck shell=bash

# long_sets PART...
long_sets() {
    local part first=() second=()
    for part in "$@"; do
        case $part in
            core) first+=(long_core) ;;
            redis) first+=(long_redis) ;;
            test) first+=(long_core long_redis) ;;
            interop) first+=(long_interop) ;;
            delivery) second+=(long_delivery) ;;
            sim) second+=(long_sim) ;;
        esac
    done
    [ ${#first[@]} -gt 0 ] || [ ${#second[@]} -gt 0 ] || return 0
    build
    stage "long: build, release" cargo test --release --locked -p dwell-time --test delay_queue_stress --no-run
    lane "${first[@]}"
    lane "${second[@]}"
    await_lanes
}

long_core() {
    # A case of this test walks over thousands of numbers.
    local heavy=core::numbers::tests::finds_what_a_sorted_map_finds
    stage "long: timing queue and core" env PROPTEST_CASES=200000 \
        cargo test --locked "${all[@]}" --lib -- --skip "$heavy" timing_queue:: core::
    stage "long: numbers" test_of store lib PROPTEST_CASES=10000 "$heavy"
    stage "long: model checker" "${model_check[@]::1}" DWELL_SHUTTLE_RUNS=200000 "${model_check[@]:1}"
    stage "long: delay queue, 5 million items" env DWELL_STRESS_ITEMS=5000000 \
        cargo test --release --locked -p dwell-time --test delay_queue_stress
    stage "long: model test, memory" test_of store memory DWELL_CASES=20000 behaves_as_the_model_does
    stage "long: model test, engine in memory" test_of engine engine DWELL_CASES=20000 in_memory::behaves_as_the_model_does
    stage "long: model test, engine on files" test_of engine engine DWELL_CASES=500 on_files::behaves_as_the_model_does
    stage "long: two years of the engine" test_of engine engine --ignored two_years
}

long_redis() {
    stage "long: model test, one Redis" test_of redis single DWELL_CASES=2000 behaves_as_the_model_does
    stage "long: model test, a cluster" test_of redis cluster DWELL_CASES=2000 behaves_as_the_model_does
    stage "long: a million takes that wait" test_of redis many DWELL_TAKES=1000000 --ignored --nocapture a_million_takes
}

long_interop() {
    differential 5000
}

long_delivery() {
    stage "long: kill -9 of server, worker and receiver" "$target/debug/dwell-sim" kill --delivery --rounds 50
    stage "long: two servers with schedules on one Redis" test_of cli killed_schedules DWELL_SECONDS=600 \
        --nocapture two_servers_on_one_redis
}

long_sim() {
    stage "sim: a full disk at each write" "$target/debug/dwell-sim" squeeze --seeds 20
    stage "sim: stress" "$target/debug/dwell-sim" stress --seconds 600
    sim 10000 500 1000000 5
}
