#!/usr/bin/env bash
# From a clean clone to a finished agent session, on this machine and without an account anywhere:
# installs what is missing, builds, starts the control plane and a runner, and follows one session live.
#   packaging/quickstart.sh [--keep] ["what the agent shall do"]
# The model is the scripted one of the tests, unless you name a real one:
#   ANTHROPIC_API_KEY     the key; it goes to the control plane only, never to the runner or a sandbox
#   ANTHROPIC_BASE_URL    another address that speaks the same wire (default: https://api.anthropic.com)
#   CHECKFU_MODEL         the model's name (default: claude-sonnet-4-5)
# With --keep everything stays running, and `quickstart.sh --stop` ends it. State lies in $CHECKFU_QUICKSTART_DIR or ~/.local/state/checkfu-quickstart.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
cd "$root"

state=${CHECKFU_QUICKSTART_DIR:-$HOME/.local/state/checkfu-quickstart}
profile=dev
binaries=${CARGO_TARGET_DIR:-$root/target}/debug
ready_seconds=60
started=() build_job='' image_job='' refused=false runner_started=false

step() { printf '\n== %s\n' "$*"; }
fail() { printf 'quickstart: %s\n' "$*" >&2; exit 1; }

keep=false stop=false wish=''
for argument in "$@"; do
    case "$argument" in
    --keep) keep=true ;;
    --stop) stop=true ;;
    -h | --help) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) fail "unknown argument '$argument': choose from --keep --stop --help" ;;
    *) wish=$argument ;;
    esac
done
: "${wish:=Please survey the repository: count its Rust code and leave a report with a picture.}"

# Ends what this run started, youngest first: the runner drains while its plane still answers.
stop_all() {
    local i pid
    for ((i = ${#started[@]} - 1; i >= 0; i--)); do
        pid=${started[$i]}
        kill -TERM "$pid" 2>/dev/null || continue
        for _ in $(seq 150); do
            kill -0 "$pid" 2>/dev/null || continue 2
            sleep 0.1
        done
        # A second signal cancels what a drain still waits for; the last one is for a program that ignores both.
        kill -TERM "$pid" 2>/dev/null && sleep 2
        kill -KILL "$pid" 2>/dev/null || true
    done
    started=()
    "$runner_started" && stop_sandboxes
    rm -f "$state/pids"
}
# Stops the sandboxes that the runner keeps for a next message; their files stay, and a next message starts them again.
stop_sandboxes() {
    local instance
    instance=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["runner_id"])' "$state/runner/identity.json" 2>/dev/null) || return 0
    docker ps --quiet --filter "label=checkfu.instance=$instance" | xargs --no-run-if-empty docker stop --time 1 >/dev/null 2>&1 || true
}
at_exit() {
    local code=$?
    [ -z "$image_job" ] || kill -- "-$image_job" 2>/dev/null || true
    "$refused" && return
    if [ "$code" != 0 ] || ! "$keep"; then
        stop_all
    fi
    # Without --keep nothing is left that needs the key.
    "$keep" || rm -f "$state/model.key"
    if [ "$code" != 0 ] && [ -d "$state/logs" ]; then
        printf '\nquickstart: it did not work; the logs are in %s\n' "$state/logs" >&2
    fi
}
trap at_exit EXIT
trap 'exit 130' INT TERM

# start NAME COMMAND...: a program of its own session, so that it may outlive this terminal.
start() {
    local name=$1
    shift
    # An earlier run's ready line must not count for this one: the redirection below happens a moment later.
    rm -f "$state/logs/$name.out" "$state/logs/$name.err"
    setsid "$@" >"$state/logs/$name.out" 2>"$state/logs/$name.err" </dev/null &
    started+=("$!")
    printf '%s\n' "$!" >>"$state/pids"
}

# when NAME CONDITION...: waits until the condition holds and NAME still runs.
when() {
    local name=$1 pid=${started[-1]} tries=$((ready_seconds * 10))
    shift
    until "$@" 2>/dev/null; do
        kill -0 "$pid" 2>/dev/null || { tail -n 20 "$state/logs/$name.err" >&2; fail "$name ended at once"; }
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || { tail -n 20 "$state/logs/$name.err" >&2; fail "$name was not ready in $ready_seconds s"; }
        sleep 0.1
    done
}

# free_port WANTED: that port when it is free, else some free one.
free_port() {
    python3 - "$1" <<'END'
import socket, sys
for port in (int(sys.argv[1] or 0), 0):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        print(probe.getsockname()[1])
        break
END
}
answers() { python3 -c 'import sys, urllib.request; urllib.request.build_opener(urllib.request.ProxyHandler({})).open(sys.argv[1], timeout=2)' "$1"; }
# field NAME: one string of the JSON object on standard input.
field() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }

# Ends what an earlier run left with --keep. The numbers are trusted only while they still name our programs.
stop_kept() {
    local pid
    while read -r pid; do
        case "$(readlink "/proc/$pid/exe" 2>/dev/null)" in
        "$binaries"/*) started+=("$pid") ;;
        esac
    done <"$state/pids"
    runner_started=true
    stop_all
    rm -f "$state/model.key"
    echo 'It is stopped, with its sandboxes; the data stays.'
}
if "$stop"; then
    [ -s "$state/pids" ] || { refused=true; fail "nothing is running that was started with --keep"; }
    keep=true
    stop_kept
    exit 0
fi

# Asked before anything is touched: a run that is refused leaves the running one as it is.
refuse_second_run() {
    local last pid
    last=$(cat "$state/url" 2>/dev/null || true)
    [ -n "$last" ] && answers "$last/readyz" 2>/dev/null || return 0
    pid=$(tr '\n' ' ' <"$state/pids" 2>/dev/null || true)
    refused=true
    fail "one is already running at $last, started with --keep; stop it first: $here/quickstart.sh --stop${pid:+ (processes ${pid% })}"
}

step 'Set-up'
"$here/setup.sh" build docker image python
mkdir -p "$state/logs"
chmod 700 "$state"
refuse_second_run

step 'Build (the first time takes some minutes)'
# The image takes the network and the build takes the processor, so they run beside each other.
setsid "$here/sandbox-image.sh" --demo >"$state/logs/image.out" 2>"$state/logs/image.err" &
image_job=$!
cargo build --quiet --locked --profile "$profile" -p checkfu -p checkfu-runner -p checkfu-tests --bins
toolbox=$("$here/toolbox.sh")
build_job=$image_job
image_job=''
wait "$build_job" || { cat "$state/logs/image.err" >&2; fail 'there is no sandbox image'; }

step 'Model'
if [ -n "${ANTHROPIC_API_KEY:-}" ]; then
    model_url=${ANTHROPIC_BASE_URL:-https://api.anthropic.com}
    key=$ANTHROPIC_API_KEY
    model=${CHECKFU_MODEL:-claude-sonnet-4-5}
    echo "The model $model at $model_url answers; this spends your credit."
else
    start scripted-model "$binaries/scripted-model" --listen 127.0.0.1:0
    when scripted-model grep -q '^listening on ' "$state/logs/scripted-model.out"
    model_url=$(sed -n 's/^listening on //p' "$state/logs/scripted-model.out")
    key=scripted
    model=${CHECKFU_MODEL:-scripted}
    echo "A scripted model answers at $model_url. Its words are fixed; the work it asks for is really done."
fi
(umask 077 && printf '%s\n' "$key" >"$state/model.key")
unset ANTHROPIC_API_KEY key

step 'Control plane'
last=$(cat "$state/url" 2>/dev/null || true)
# The runner is paired with an address, so the address is kept from run to run where possible.
port=$(free_port "${last##*:}")
url=http://127.0.0.1:$port
[ "$url" = "$last" ] || rm -rf "$state/runner"
start checkfu "$binaries/checkfu" serve --listen "127.0.0.1:$port" --data-dir "$state/plane" \
    --model-base-url "$model_url" --model-key-file "$state/model.key"
when checkfu answers "$url/readyz"
echo "$url" >"$state/url"
export CHECKFU_URL=$url CHECKFU_API_KEY_FILE=$state/plane/admin.key
echo "It answers at $url; its log and its files are in $state/plane."

step 'Runner'
runner=("$binaries/checkfu-runner" --state-dir "$state/runner")
paired=0
"${runner[@]}" status >/dev/null 2>&1 || paired=$?
# 3 says that it is not paired; 12, that it only does not run.
if [ "$paired" = 3 ]; then
    # The code goes through a pipe: what stands in an argument can be read by everybody on the machine.
    "$binaries/checkfu" pair --json | field code | "${runner[@]}" pair --plane "$url"
fi
runner_started=true
start checkfu-runner "${runner[@]}" run --toolbox "$toolbox"
echo "It is paired and opens no port."

step 'Agent and environment'
name=quickstart-$(date -u +%Y%m%dT%H%M%S)
environment=$("$binaries/checkfu" environments create --name "$name" --image checkfu/sandbox:demo --json | field id)
agent=$("$binaries/checkfu" agents create --name "$name" --model "$model" --tools-may run \
    --system 'You work in a sandbox. The repository to work on is the git bundle /opt/checkfu-demo/repository.bundle; clone it into /workspace. Leave results in /mnt/session/outputs.' \
    --json | field id)
echo "agent $agent, environment $environment"

step "Session: $wish"
"$binaries/checkfu" run --agent "$agent" --environment "$environment" "$wish"

step 'Where things are'
cat <<END
  control plane   $url (data: $state/plane)
  runner          $state/runner
  logs            $state/logs
  agent           $agent
  environment     $environment

To talk to it again:
  export CHECKFU_URL=$url CHECKFU_API_KEY_FILE=$state/plane/admin.key
  $binaries/checkfu run --agent $agent --environment $environment "..."
  $binaries/checkfu --help
END
if "$keep"; then
    printf '\nEverything keeps running. To stop it: %s --stop\n' "$here/quickstart.sh"
else
    printf '\nEverything is stopped now; run this again with --keep to keep it.\n'
fi
