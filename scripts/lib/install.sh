# What the parts of `scripts/test` need beyond the Rust toolchain, and how it gets there.
# shellcheck shell=bash

# A part's needs, each as command:package, where the package is Debian's.
needs_of() {
    case $1 in
        fmt) echo shellcheck:shellcheck ;;
        lint) echo cc:build-essential make:build-essential ;;
        core) echo redis-server:redis-server ;;
        redis) echo redis-server:redis-server make:build-essential python3:python3 pip3:python3-pip ;;
        # `initdb` and `postgres` are in no folder of the path; this comes with them.
        postgres) echo pg_ctlcluster:postgresql-15 pgbouncer:pgbouncer python3:python3 pip3:python3-pip ;;
        e2e) echo make:build-essential curl:curl redis-server:redis-server ;;
        test) echo make:build-essential curl:curl redis-server:redis-server python3:python3 pip3:python3-pip ;;
        redisson) echo make:build-essential redis-server:redis-server javac:default-jdk-headless mvn:maven ;;
        page) echo node:nodejs npm:npm chromium:chromium ;;
        interop) echo make:build-essential beanstalkd:beanstalkd python3:python3 pip3:python3-pip go:golang-go node:nodejs npm:npm ;;
    esac
}

# install_missing yes|'' PART...
# As root or in CI at once; otherwise it prints the list and asks before it uses sudo.
install_missing() {
    local install=$1 part need
    shift
    local missing=()
    for part in "$@"; do
        for need in $(needs_of "$part"); do
            command -v "${need%%:*}" >/dev/null || missing+=("${need#*:}")
        done
    done
    [ ${#missing[@]} -gt 0 ] || return 0

    local asked=
    mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
    echo "missing Debian packages: ${missing[*]}"
    if [ -z "$install" ] || ! command -v apt-get >/dev/null; then
        echo "install them, then run this again" >&2
        exit 3
    fi
    if [ "$(id -u)" != 0 ] && [ -z "${CI:-}" ]; then
        read -r -p "install them with sudo? [y/N] " asked || true
        if [ "$asked" != y ]; then
            echo "install them, then run this again" >&2
            exit 3
        fi
    fi
    stage "install ${missing[*]}" install_packages "${missing[@]}"
}

# Installs packages and starts none of their daemons.
install_packages() {
    local sudo=() policy=/usr/sbin/policy-rc.d made= status=0
    [ "$(id -u)" = 0 ] || sudo=(sudo)
    # policy-rc.d answering 101 is Debian's way to say "no daemon may be started".
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' | "${sudo[@]}" tee "$policy" >/dev/null
        "${sudo[@]}" chmod 755 "$policy"
        made=yes
    fi
    "${sudo[@]}" apt-get update -q || echo "package lists are as old as they are"
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -q -y --no-install-recommends "$@" || status=$?
    [ -z "$made" ] || "${sudo[@]}" rm -f "$policy"
    return "$status"
}

# python_at FOLDER REQUIREMENTS
# A Python of its own with what the file lists, which pins versions. Made anew where the list has changed.
python_at() {
    local folder=$1 requirements=$2
    cmp -s "$requirements" "$folder/requirements.txt" && return 0
    rm -rf "$folder"
    # Debian's python3 has no pip in it for a new environment; the one beside it fills it.
    python3 -m venv --without-pip "$folder"
    python3 -m pip --quiet --disable-pip-version-check --python "$folder/bin/python" install -r "$requirements"
    cp "$requirements" "$folder/requirements.txt"
}
