# Runs stages one after another, prints the duration of each, and counts the results.
# shellcheck shell=bash

passed=0
failed=()
# The output of the current stage, and the last lines of failed stages, which are repeated at the end of the log.
stage_log=$(mktemp)
failures_log=$(mktemp)
# The running lanes, each with its process and the folder of its output.
lanes=()
lane_logs=$(mktemp -d)
trap 'rm -rf "$stage_log" "$failures_log" "$lane_logs"' EXIT
stage_seconds_max=$((45 * 60))

# stage NAME COMMAND...
# A failed stage is recorded, and the next one still runs.
stage() {
    local name=$1 start=$SECONDS status=0 log tee
    shift
    printf '\n== %s\n' "$name"
    exec {log}> >(tee "$stage_log")
    tee=$!
    if [ "$(type -t "$1")" = function ]; then
        "$@" </dev/null >&"$log" 2>&1 || status=$?
    else
        timeout --kill-after=30 "$stage_seconds_max" "$@" </dev/null >&"$log" 2>&1 || status=$?
    fi
    exec {log}>&-
    # The log is complete when tee ends, unless a process that was left behind holds the pipe open.
    timeout 10 tail --pid="$tee" -f /dev/null || true
    if [ "$status" = 0 ]; then
        passed=$((passed + 1))
        printf '== %s: passed in %d s\n' "$name" $((SECONDS - start))
    else
        failed+=("$name")
        printf '== %s: FAILED in %d s (status %d): %s\n' "$name" $((SECONDS - start)) "$status" "$*" | tee -a "$failures_log"
        grep -E '^(error|test .* FAILED|failures:|thread .* panicked|---- )' "$stage_log" | head -40 >>"$failures_log" || true
        tail -n 40 "$stage_log" >>"$failures_log"
    fi
}

# lane FUNCTION...: runs functions with stages, one after another, in the background. Its output is printed when
# it ends.
lane() {
    [ $# -gt 0 ] || return 0
    local out
    out=$(mktemp -d -p "$lane_logs")
    (
        passed=0
        failed=()
        stage_log=$out/stage
        failures_log=$out/failures
        : >"$failures_log"
        for part in "$@"; do
            "$part"
        done
        echo "$passed" >"$out/passed"
        printf '%s\n' "${failed[@]}" >"$out/failed"
    ) >"$out/log" 2>&1 &
    lanes+=("$!:$out")
    printf '\n== beside each other: %s\n' "$*"
}

# Waits for the lanes, and adds their counts.
await_lanes() {
    local lane out name
    for lane in "${lanes[@]}"; do
        out=${lane#*:}
        wait "${lane%%:*}" || failed+=("lane ${lane%%:*}, which ended early")
        cat "$out/log"
        cat "$out/failures" >>"$failures_log"
        [ ! -e "$out/passed" ] || passed=$((passed + $(cat "$out/passed")))
        [ ! -e "$out/failed" ] || while read -r name; do
            [ -z "$name" ] || failed+=("$name")
        done <"$out/failed"
    done
    lanes=()
}

# Prints the summary; fails if a stage has failed.
finish() {
    printf '\n== all stages: %d s\n' "$SECONDS"
    cat "$failures_log"
    local name
    for name in "${failed[@]}"; do
        echo "failed: $name"
    done
    echo "$passed passed, ${#failed[@]} failed"
    [ ${#failed[@]} = 0 ]
}
