# Runs one stage after the other, prints the seconds of each, and counts.
# shellcheck shell=bash

passed=0
failed=()
stage_seconds_max=$((45 * 60))

# stage NAME COMMAND...
# A stage that fails is noted, and the next one runs all the same.
stage() {
    local name=$1 start=$SECONDS status=0
    shift
    printf '\n== %s\n' "$name"
    if [ "$(type -t "$1")" = function ]; then
        "$@" </dev/null || status=$?
    else
        timeout --kill-after=30 "$stage_seconds_max" "$@" </dev/null || status=$?
    fi
    if [ "$status" = 0 ]; then
        passed=$((passed + 1))
        printf '== %s: passed in %d s\n' "$name" $((SECONDS - start))
    else
        failed+=("$name")
        printf '== %s: FAILED in %d s (status %d): %s\n' "$name" $((SECONDS - start)) "$status" "$*"
    fi
}

# The closing lines; fails if a stage did.
finish() {
    printf '\n== all stages: %d s\n' "$SECONDS"
    local name
    for name in "${failed[@]}"; do
        echo "failed: $name"
    done
    echo "$passed passed, ${#failed[@]} failed"
    [ ${#failed[@]} = 0 ]
}
