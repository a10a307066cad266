#!/usr/bin/env bash
# Installs what building, testing and running Checkfu on one Debian machine needs, and starts Docker.
# Quiet when there is nothing to do. Run it with the parts you need, or without arguments for all of them:
#   docker   Docker Engine, installed and answering
#   image    mmdebstrap, which makes the default sandbox image
#   python   Python with venv, for the SDK tests
#   build    a C compiler and git, beside the Rust toolchain
# It changes nothing but Debian packages and the Docker daemon it starts.
set -euo pipefail

log_file=/var/log/checkfu-dockerd.log
docker_wait_seconds=60

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        fail "'$1' needs root and there is no sudo: run this script as root"
    fi
}

missing_packages() {
    local part
    for part in "$@"; do
        case "$part" in
        docker) command -v dockerd >/dev/null || command -v docker >/dev/null || echo docker.io ;;
        image)
            command -v mmdebstrap >/dev/null || echo mmdebstrap
            [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || echo debian-archive-keyring
            ;;
        python)
            command -v python3 >/dev/null || echo python3
            python3 -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
            ;;
        build)
            command -v cc >/dev/null && [ -e "$(cc -print-file-name=libc.a)" ] || echo build-essential
            command -v git >/dev/null || echo git
            [ -e /etc/ssl/certs/ca-certificates.crt ] || echo ca-certificates
            ;;
        *) fail "unknown part '$part': choose from docker image python build" ;;
        esac
    done
}

install_packages() {
    [ $# -gt 0 ] || return 0
    command -v apt-get >/dev/null || fail "this machine lacks: $*. It has no apt-get, so install them by hand"
    say "installing $*"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq update ||
        fail "apt-get update failed: check the network and /etc/apt/sources.list"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$@" >/dev/null ||
        fail "apt-get could not install: $*"
}

docker_answers() { docker info >/dev/null 2>&1; }

start_docker() {
    command -v docker >/dev/null || fail "there is no docker command even after the installation"
    docker_answers && return 0
    # Read first and searched then: under pipefail the failing `docker info` would hide what grep found.
    local refusal
    refusal=$(docker info 2>&1 || true)
    if grep -qi 'permission denied' <<<"$refusal"; then
        fail "you may not talk to Docker: run as root, or add yourself to the group docker and log in again"
    fi
    command -v dockerd >/dev/null || fail "DOCKER_HOST=${DOCKER_HOST:-unix:///var/run/docker.sock} does not answer"
    if [ -d /run/systemd/system ]; then
        say "starting the docker service"
        as_root systemctl start docker || fail "systemd could not start docker: see 'systemctl status docker'"
    else
        mount_cgroups
        say "starting dockerd (log: $log_file)"
        # Asked in the foreground, where a refusal ends the script and a password can be typed.
        as_root true
        # Its own session, so that the terminal this runs in may close.
        as_root setsid sh -c 'exec dockerd >"$0" 2>&1 </dev/null' "$log_file" &
    fi
    local waited=0
    until docker_answers; do
        waited=$((waited + 1))
        if [ "$waited" -gt $((docker_wait_seconds * 4)) ]; then
            as_root tail -n 5 "$log_file" >&2 2>/dev/null || true
            fail "Docker did not answer within $docker_wait_seconds s; the end of its log ($log_file) stands above"
        fi
        sleep 0.25
    done
}

# A machine without systemd may have no control groups mounted, and dockerd refuses to start without them.
mount_cgroups() {
    if ! grep -q ' /sys/fs/cgroup' /proc/mounts; then
        command -v cgroupfs-mount >/dev/null || install_packages cgroupfs-mount
        as_root cgroupfs-mount || fail "the control groups could not be mounted below /sys/fs/cgroup"
    fi
}

main() {
    [ $# -gt 0 ] || set -- build docker image python
    local packages
    packages=$(missing_packages "$@")
    # shellcheck disable=SC2086  # one package name a word
    install_packages $packages
    case " $* " in *' docker '*) start_docker ;; esac
    case " $* " in
    *' build '*)
        command -v cargo >/dev/null ||
            fail "there is no cargo: install the Rust toolchain named in rust-toolchain.toml, for instance with rustup"
        ;;
    esac
}

main "$@"
