# What each part of `scripts/test` runs. Two build profiles in all: dev for tests, release for the bench.
# shellcheck shell=bash

# Everything but the comparisons, whose peers would slow the build for everybody.
workspace=(--workspace --exclude dwell-bench)

# Where cargo builds to.
target=${CARGO_TARGET_DIR:-target}

# Packages whose tests start a server or a process of ours.
e2e_packages=(dwell-server dwell-cli)

exists() {
    grep -qs "^name = \"$1\"" crates/*/Cargo.toml bench/Cargo.toml
}

# present OPTION PACKAGE...: the option before each of the packages that there are.
present() {
    local option=$1 package
    shift
    for package in "$@"; do
        ! exists "$package" || printf '%s\n%s\n' "$option" "$package"
    done
}

part_fmt() {
    stage "fmt" cargo fmt --all --check
    stage "shell scripts" shellcheck --external-sources scripts/test .ci/run
}

part_lint() {
    stage "clippy" cargo clippy --locked "${workspace[@]}" --all-targets --all-features -- -D warnings
    stage "docs" env RUSTDOCFLAGS="-D warnings" cargo doc --locked "${workspace[@]}" --no-deps --all-features
    stage "bench with peers" cargo clippy --locked -p dwell-bench --all-targets -- -D warnings
    stage "bench without peers" cargo clippy --locked -p dwell-bench --no-default-features -- -D warnings
}

part_core() {
    local packages
    mapfile -t packages < <(present --exclude dwell-bench dwell-sim "${e2e_packages[@]}")
    cargo_test "core" --workspace "${packages[@]}"
}

part_e2e() {
    local packages
    mapfile -t packages < <(present -p "${e2e_packages[@]}")
    [ ${#packages[@]} -eq 0 ] || cargo_test "e2e" "${packages[@]}"
}

part_test() {
    cargo_test "test" "${workspace[@]}"
}

# cargo_test NAME SELECTION...
cargo_test() {
    local name=$1
    shift
    stage "$name: build" cargo test --locked "$@" --no-run
    stage "$name: run" cargo test --locked "$@" --no-fail-fast
}

part_sim() {
    ! exists dwell-sim || return 0
}

part_bench() {
    local ours=(--release --locked -p dwell-bench --no-default-features)
    stage "bench: build and tests" cargo test "${ours[@]}"
    stage "bench: engine-put" cargo run "${ours[@]}" -- engine-put --quick --rounds 1 --dir "$target"
}
