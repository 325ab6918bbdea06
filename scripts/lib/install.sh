# The dependencies of the parts of `scripts/test` beyond the Rust toolchain, and their installation.
# shellcheck shell=bash

# The dependencies of a part, each as command:package, with the name of the Debian package.
needs_of() {
    case $1 in
        fmt) echo shellcheck:shellcheck ;;
        lint) echo cc:build-essential make:build-essential ;;
        core) echo redis-server:redis-server ;;
        redis) echo redis-server:redis-server make:build-essential python3:python3 pip3:python3-pip ;;
        # `initdb` and `postgres` are not on the path; this command is in the same package.
        postgres) echo make:build-essential pg_ctlcluster:postgresql-15 pgbouncer:pgbouncer python3:python3 pip3:python3-pip ;;
        e2e) echo make:build-essential curl:curl redis-server:redis-server pg_ctlcluster:postgresql-15 ;;
        test) echo make:build-essential curl:curl redis-server:redis-server pg_ctlcluster:postgresql-15 python3:python3 pip3:python3-pip ;;
        sim | bench) echo make:build-essential ;;
        redisson) echo make:build-essential redis-server:redis-server javac:default-jdk-headless mvn:maven ;;
        delivery) echo make:build-essential redis-server:redis-server javac:default-jdk-headless mvn:maven python3:python3 pip3:python3-pip ;;
        # Firefox runs in the long set alone.
        page) echo node:nodejs npm:npm chromium:chromium redis-server:redis-server make:build-essential ${long:+firefox-esr:firefox-esr} ;;
        interop) echo make:build-essential beanstalkd:beanstalkd python3:python3 pip3:python3-pip go:golang-go node:nodejs npm:npm ;;
    esac
}

# install_missing yes|'' PART...
# As root or in CI it installs at once; otherwise it prints the list and asks before it uses sudo.
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

# Installs packages without starting their daemons.
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
# A Python environment with the pinned packages of the file. It is created again when the list changes.
python_at() {
    local folder=$1 requirements=$2
    cmp -s "$requirements" "$folder/requirements.txt" && return 0
    rm -rf "$folder"
    # Debian's python3 cannot install pip into a new environment; the system's pip installs the packages.
    python3 -m venv --without-pip "$folder"
    python3 -m pip --quiet --disable-pip-version-check --python "$folder/bin/python" install -r "$requirements"
    cp "$requirements" "$folder/requirements.txt"
}
