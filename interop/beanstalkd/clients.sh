#!/usr/bin/env bash
# Runs third-party beanstalkd clients, unmodified, against `dwell serve`.
#
#     interop/beanstalkd/clients.sh target/debug/dwell
set -euo pipefail
dwell=$(realpath "$1")
cd "$(dirname "$0")"

work=$(mktemp -d)
server=
finish() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT

python3 -m pip install --quiet --disable-pip-version-check --no-cache-dir --target "$work/python" greenstalk==2.1.1
(cd gobeanstalk && go build -o "$work/gobeanstalk" .)
npm install --silent --no-audit --no-fund --no-update-notifier --prefix "$work" jackd@2.2.2
# Next to the server's own build, so that it is built only once.
built=$(dirname "$dwell")/../interop
cargo build --quiet --locked --manifest-path beanstalkc/Cargo.toml --target-dir "$built"

mkfifo "$work/said"
"$dwell" --json serve --data "$work/data" --listen 127.0.0.1:0 --beanstalkd 127.0.0.1:0 >"$work/said" &
server=$!
read -r -t 60 serving <"$work/said"
address=$(python3 -c 'import json, sys; print(json.loads(sys.argv[1])["beanstalkd"])' "$serving")

PYTHONPATH=$work/python timeout 60 python3 greenstalk_client.py "$address"
timeout 60 "$work/gobeanstalk" "$address"
NODE_PATH=$work/node_modules timeout 60 node jackd_client.js "$address"
timeout 60 "$built/debug/beanstalkc-client" "$address"
