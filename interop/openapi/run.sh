#!/usr/bin/env bash
# Tests a running `dwell serve` against its own OpenAPI document with schemathesis: requests that the document
# allows and requests that it does not, from a fixed seed. Then Prometheus's own parser reads the metrics page.
#
#     interop/openapi/run.sh target/debug/dwell path/to/venv/bin/python
set -euo pipefail
dwell=$(realpath "$1")
python=$(realpath --no-symlinks "$2")
seed=${SEED:-7411}
cd "$(dirname "$0")"

work=$(mktemp -d)
server=
finish() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT

mkfifo "$work/said"
"$dwell" --json serve --store memory --listen 127.0.0.1:0 --beanstalkd off >"$work/said" &
server=$!
read -r -t 60 serving <"$work/said"
url=$("$python" -c 'import json, sys; print(json.loads(sys.argv[1])["http"])' "$serving")

echo "seed $seed; SEED=$seed replays it"
(cd "$work" && timeout 300 "$python" -m schemathesis.cli --config-file "$OLDPWD/schemathesis.toml" \
    run "$url/openapi.json" --seed "$seed")

"$python" - "$url" <<'PYTHON'
import sys, urllib.request
from prometheus_client.openmetrics import parser

page = urllib.request.urlopen(sys.argv[1] + "/metrics", timeout=30).read().decode()
families = list(parser.text_string_to_metric_families(page))
assert len(families) > 20, families
print(f"{len(families)} families of metrics, read by prometheus-client")
PYTHON
