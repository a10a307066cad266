#!/usr/bin/env bash
# Builds checkfu-toolbox as one static file that runs in any image, and prints its path.
# The explicit --target keeps the static flag away from everything else in the target directory.
set -euo pipefail
cd "$(dirname "$0")/.."

triple=$(rustc -vV | sed -n 's/^host: //p')
RUSTFLAGS="-C target-feature=+crt-static" \
    cargo build --quiet --locked -p checkfu-toolbox --target "$triple" --profile toolbox >&2
binary="${CARGO_TARGET_DIR:-$PWD/target}/$triple/toolbox/checkfu-toolbox"

# A toolbox that needs a loader would fail only later, inside somebody's image.
if ldd "$binary" 2>/dev/null | grep -q '=>'; then
    echo "toolbox: $binary is not static: is the C library's libc.a installed?" >&2
    exit 1
fi
echo "$binary"
