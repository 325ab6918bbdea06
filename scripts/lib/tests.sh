# One build of everything that the parts run, and single tests out of it.
# shellcheck shell=bash

# What the build said of each target, a line of JSON for each.
built=

# Builds all that the stages run, once.
build() {
    [ -z "$built" ] || return 0
    built=$(realpath -m "$target/built.json")
    stage "build" build_all
}

build_all() {
    mkdir -p "$target"
    cargo build --locked "${all[@]}" --bins --lib --tests --examples --message-format=json-render-diagnostics >"$built"
}

# executables CRATE [NAME]: the tests of a crate, or one of them; `NAME` may be `lib`.
executables() {
    local folder name=${2:-}
    folder=$(folder_of "$1")
    case $name in
        '') name='(src/(lib|main)\.rs|tests/[^"]*)' ;;
        lib) name='src/lib\.rs' ;;
        *) name="tests/$name(\\.rs|/main\\.rs)" ;;
    esac
    grep -E "\"src_path\":\"[^\"]*/$folder/$name\"" "$built" | grep -E '"overflow_checks":[a-z]+,"test":true\}' |
        sed -nE 's#.*"executable":"([^"]*)".*#\1#p' || true
}

# test_of CRATE NAME [VARIABLE=VALUE ...] [ARGUMENT ...]: runs one test of a crate where cargo would, in its folder.
test_of() {
    local crate=$1 name=$2 variables=() executable
    shift 2
    while [[ ${1:-} == *=* ]]; do
        variables+=("$1")
        shift
    done
    executable=$(executables "$crate" "$name")
    [ -n "$executable" ] || { echo "no test $name of $crate was built" >&2 && return 1; }
    (cd "$(folder_of "$crate")" && exec env "CARGO_PKG_NAME=dwell-$crate" "${variables[@]}" timeout --kill-after=30 "$stage_seconds_max" "$executable" "$@")
}

# run_tests CRATE: all tests of a crate, a stage each.
run_tests() {
    local executable name
    for executable in $(executables "$1"); do
        name=${executable##*/}
        stage "$1: ${name%-*}" run_in "$(folder_of "$1")" "$executable"
    done
}

run_in() {
    (cd "$1" && exec env "CARGO_PKG_NAME=dwell-${1##*/}" timeout --kill-after=30 "$stage_seconds_max" "$2")
}

# The folder of a crate: `tests` and `bench` stand beside `crates`.
folder_of() {
    if [ -d "crates/$1" ]; then
        echo "crates/$1"
    else
        echo "$1"
    fi
}
