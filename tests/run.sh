#!/usr/bin/env bash
# Runs the tests, from a clean clone: installs what is missing, builds once, runs the suites, sums up.
#   ./tests/run.sh                 all suites but soak and bench
#   ./tests/run.sh unit tidy       only these
# Suites: unit tidy simulation system sdk packages soak bench. It goes on after a failure and exits
# non-zero if anything failed. What could not be run is named as such and never counted as passed.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1

all_suites="unit tidy simulation system sdk packages soak bench"
default_suites="unit tidy simulation system sdk packages"
# The profile of the inner loop, so that dependencies compile once for everything.
profile=dev
cache=${CHECKFU_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/checkfu}
target=${CARGO_TARGET_DIR:-$root/target}
logs=$(mktemp -d "${TMPDIR:-/tmp}/checkfu-tests.XXXXXX")
# What a suite returns when it has nothing to run.
no_tests=75
names=() verdicts=() times=() notes=()
image_job='' build_verdict=''

say() { printf '%s\n' "$*"; }
note() { notes+=("$*"); say "note: $*"; }
complain() { printf 'run.sh: %s\n' "$*" >&2; }

cleanup() {
    # The job has a session of its own, so that the programs it started go with it.
    [ -z "$image_job" ] || kill -- "-$image_job" 2>/dev/null
    rm -rf "$logs"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# --- tools -------------------------------------------------------------------------------------------------

# A directory of Python wheels by the hash of their list; prints where it is.
venv_for() {
    local list=$1 place
    shift
    place=$cache/venv-$(sha256sum <"$list" | cut -c 1-16)
    if [ ! -e "$place/complete" ]; then
        "$root/packaging/setup.sh" python || return 1
        rm -rf "$place"
        mkdir -p "$cache"
        python3 -m venv "$place" && "$place/bin/pip" install --quiet --disable-pip-version-check "$@" -r "$list" >&2 &&
            touch "$place/complete" || return 1
    fi
    echo "$place"
}

# Prints how to call a cargo tool: the installed one, else the wheel, else one built from source.
cargo_tool() {
    local tool=$1 place
    if command -v "cargo-$tool" >/dev/null; then
        command -v "cargo-$tool"
    elif place=$(venv_for tests/tools.txt --require-hashes); then
        echo "$place/bin/cargo-$tool"
    elif cargo install --quiet --locked --root "$cache/cargo" "cargo-$tool" >&2; then
        echo "$cache/cargo/bin/cargo-$tool"
    else
        return 1
    fi
}

# Runs Rust tests: `rust_tests NEXTEST_EXPRESSION CARGO_TEST_ARGUMENTS...`.
rust_tests() {
    local expression=$1 nextest
    shift
    if nextest=$(cargo_tool nextest); then
        "$nextest" nextest run --locked --cargo-profile "$profile" --workspace --no-tests=fail -E "$expression"
        local code=$?
        [ "$code" = 4 ] && return "$no_tests"
        return "$code"
    fi
    note "cargo-nextest is neither here nor installable: using cargo test, which runs one binary at a time"
    cargo test --locked --profile "$profile" --no-fail-fast "$@"
}

# --- set-up ------------------------------------------------------------------------------------------------

# Everything that is built is built here, once and with one profile, so dependencies compile once.
build() {
    if [ -z "$build_verdict" ]; then
        say "== build"
        if cargo build --locked --profile "$profile" --workspace --bins --tests; then
            build_verdict=good
        else
            build_verdict=bad
        fi
    fi
    [ "$build_verdict" = good ] || { complain "nothing to test: the build failed"; return 1; }
}

start_image() {
    setsid ./packaging/sandbox-image.sh --demo >"$logs/image" 2>&1 &
    image_job=$!
}

# Docker, the images and the static toolbox: what a real session needs.
prepare_sessions() {
    [ -n "$image_job" ] || start_image
    CHECKFU_TEST_TOOLBOX=$(./packaging/toolbox.sh) || { complain "the static toolbox could not be built"; return 1; }
    local job=$image_job
    image_job=''
    wait "$job" || { cat "$logs/image" >&2; complain "there is no sandbox image"; return 1; }
    export CHECKFU_TEST_TOOLBOX CHECKFU_TEST_IMAGE=checkfu/sandbox:default CHECKFU_TEST_DEMO_IMAGE=checkfu/sandbox:demo
    export CHECKFU_TEST_BINARIES=$target/debug
}

has_test_target() { grep -qx "name = \"$1\"" tests/Cargo.toml; }

# --- suites ------------------------------------------------------------------------------------------------

suite_unit() {
    build || return 1
    rust_tests 'kind(lib) + kind(bin) + (package(checkfu-toolbox) & kind(test))' --workspace --lib --bins
}

suite_tidy() {
    local failed=0 deny
    say '-- cargo fmt'
    cargo fmt --all --check || failed=1
    say '-- cargo clippy'
    cargo clippy --quiet --locked --workspace --all-targets -- -D warnings || failed=1
    say '-- cargo deny'
    if deny=$(cargo_tool deny); then
        "$deny" --locked check bans licenses sources || failed=1
        if timeout 120 "$deny" --locked fetch db >"$logs/advisories" 2>&1; then
            "$deny" --locked check --disable-fetch advisories || failed=1
        else
            note 'advisories: NOT RUN (database unreachable)'
        fi
    else
        note 'cargo deny: NOT RUN (cargo-deny is neither here nor installable)'
    fi
    say '-- structure'
    build && rust_tests 'binary(tidy)' -p checkfu-tests --test tidy || failed=1
    return "$failed"
}

suite_simulation() {
    has_test_target simulation || return "$no_tests"
    build || return 1
    rust_tests 'binary(simulation)' -p checkfu-tests --test simulation
}

suite_system() {
    has_test_target system || return "$no_tests"
    build && prepare_sessions || return 1
    rust_tests 'binary(system) + binary(sandbox)' -p checkfu-tests --test system -p checkfu-runner --test sandbox
}

# A real client program from npm, by its pinned version; prints where it is. It is fetched only when CHECKFU_TEST_NPM=1
# asks for it: what another registry answers today must not decide whether this tree is good.
claude_code() {
    local version=2.1.332 place
    place=$cache/claude-code-$version
    if [ ! -e "$place/complete" ]; then
        [ "${CHECKFU_TEST_NPM:-}" = 1 ] || return 1
        command -v npm >/dev/null || return 1
        rm -rf "$place"
        timeout 600 npm install --silent --no-audit --no-fund --prefix "$place" "@anthropic-ai/claude-code@$version" >&2 &&
            "$place/node_modules/.bin/claude" --version >&2 && touch "$place/complete" || return 1
    fi
    echo "$place/node_modules/.bin/claude"
}

suite_sdk() {
    compgen -G 'tests/sdk/test_*.py' >/dev/null || return "$no_tests"
    build && prepare_sessions || return 1
    local place
    place=$(venv_for tests/sdk/requirements.txt) || { complain "the SDK could not be installed"; return 1; }
    CHECKFU_TEST_CLAUDE=$(claude_code) || { CHECKFU_TEST_CLAUDE=''; note 'Claude Code through the gateway: NOT RUN (CHECKFU_TEST_NPM=1 fetches it from npm)'; }
    export CHECKFU_TEST_CLAUDE
    "$place/bin/python" -m pytest -q -p no:cacheprovider tests/sdk
}

suite_packages() {
    has_test_target packages || return "$no_tests"
    build && prepare_sessions || return 1
    rust_tests 'binary(packages)' -p checkfu-tests --test packages
}

suite_soak() {
    has_test_target soak || return "$no_tests"
    build && prepare_sessions || return 1
    rust_tests 'binary(soak)' -p checkfu-tests --test soak
}

suite_bench() {
    prepare_sessions || return 1
    # The programs are measured as they are installed.
    cargo build --locked --release -p checkfu -p checkfu-runner --bins || return 1
    CHECKFU_TEST_BINARIES=$target/release cargo bench --locked -p checkfu-tests --bench bench
}

# --- the run -----------------------------------------------------------------------------------------------

run_suite() {
    local suite=$1 started=$SECONDS code
    say "== $suite"
    "suite_$suite"
    code=$?
    names+=("$suite")
    times+=($((SECONDS - started)))
    case "$code" in
    0) verdicts+=(passed) ;;
    "$no_tests") verdicts+=('NOT RUN: there are no tests yet') ;;
    *) verdicts+=(FAILED) ;;
    esac
    say "== $suite: ${verdicts[-1]} (${times[-1]} s)"
    say
}

sum_up() {
    local i failed=0 passed=0
    say "Summary after $SECONDS s"
    for i in "${!names[@]}"; do
        printf '  %-11s %5s s  %s\n' "${names[$i]}" "${times[$i]}" "${verdicts[$i]}"
        case "${verdicts[$i]}" in
        FAILED) failed=$((failed + 1)) ;;
        passed) passed=$((passed + 1)) ;;
        *) [ "$asked_by_name" = false ] || failed=$((failed + 1)) ;;
        esac
    done
    for i in "${!notes[@]}"; do
        say "  note: ${notes[$i]}"
    done
    say "$passed passed, $failed failed, $((${#names[@]} - passed - failed)) without tests"
    [ "$failed" = 0 ] && [ "$passed" -gt 0 ]
}

asked_by_name=true
if [ $# = 0 ]; then
    asked_by_name=false
    # shellcheck disable=SC2086  # one suite a word
    set -- $default_suites
fi
for suite in "$@"; do
    case " $all_suites " in
    *" $suite "*) ;;
    *)
        complain "there is no suite '$suite': choose from $all_suites"
        exit 2
        ;;
    esac
done

./packaging/setup.sh build || exit 1
# The image takes the network and the build takes the processor, so they run beside each other.
case " $* " in *' system '* | *' sdk '* | *' packages '* | *' soak '* | *' bench '*) ./packaging/setup.sh docker image && start_image ;; esac
for suite in "$@"; do
    run_suite "$suite"
done
sum_up
