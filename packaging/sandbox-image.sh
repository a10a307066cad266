#!/usr/bin/env bash
# Makes the default sandbox image checkfu/sandbox:default from Debian packages, without any registry.
# With --demo it also makes checkfu/sandbox:demo, which holds this repository as a git bundle.
# An unchanged recipe is recognised by a label and costs one look; --refresh makes the image again
# to take up security updates. The names of the images go to standard output.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")

image=checkfu/sandbox:default
demo_image=checkfu/sandbox:demo
label=dev.checkfu.recipe
suite=bookworm
packages=bash,ca-certificates,coreutils,curl,file,findutils,git,grep,less,procps,python3,ripgrep,sed

say() { printf 'sandbox-image: %s\n' "$*" >&2; }
fail() { printf 'sandbox-image: %s\n' "$*" >&2; exit 1; }

demo=false refresh=false
for argument in "$@"; do
    case "$argument" in
    --demo) demo=true ;;
    --refresh) refresh=true ;;
    *) fail "unknown argument '$argument': choose from --demo --refresh" ;;
    esac
done

recipe_of() { docker image inspect --format "{{index .Config.Labels \"$label\"}}" "$1" 2>/dev/null || true; }

make_default() {
    local work
    "$here/setup.sh" docker image
    work=$(mktemp -d)
    # shellcheck disable=SC2064  # the directory of now
    trap "rm -rf '$work'" EXIT
    say "making $image from Debian $suite (about half a minute)"
    local mode=()
    [ "$(id -u)" = 0 ] || mode=(--mode=unshare)
    # Recommended packages, manuals and translations are left out: nobody reads them in a sandbox.
    mmdebstrap --quiet "${mode[@]}" --variant=minbase --include="$packages" \
        --aptopt='Acquire::Languages "none"' \
        --dpkgopt=force-unsafe-io \
        --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' \
        --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-include=/usr/share/doc/*/copyright' \
        --customize-hook='chroot "$1" useradd --create-home --uid 1000 --shell /bin/bash agent' \
        --customize-hook='install -d -o 1000 -g 1000 "$1/workspace"' \
        --customize-hook='rm -rf "$1"/var/cache/apt/* "$1"/var/log/*' \
        "$suite" "$work/root.tar" 2>"$work/log" || {
        tail -n 20 "$work/log" >&2
        fail "mmdebstrap failed; its last lines are above. It needs a reachable Debian mirror"
    }
    docker import \
        --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
        --change 'ENV LANG=C.UTF-8' \
        --change 'USER 1000:1000' \
        --change 'WORKDIR /workspace' \
        --change 'CMD ["/bin/bash"]' \
        --change "LABEL $label=$1" \
        "$work/root.tar" "$image" >/dev/null || fail "docker could not import the image"
    rm -rf "$work"
    trap - EXIT
}

# A whole history needs a whole clone; otherwise the files of now become a history of one commit.
write_bundle() {
    local target=$1 copy=$2
    if [ "$(git -C "$root" rev-parse --is-shallow-repository 2>/dev/null)" = false ]; then
        git -C "$root" bundle create --quiet "$target" HEAD
        return
    fi
    mkdir "$copy"
    tar -C "$root" --exclude=./target --exclude=./.git -cf - . | tar -C "$copy" -xf -
    git -C "$copy" init --quiet
    git -C "$copy" add --all
    git -C "$copy" -c user.name=checkfu -c user.email=checkfu@localhost commit --quiet -m "checkfu: the tree as given"
    git -C "$copy" bundle create --quiet "$target" HEAD
}

make_demo() {
    local work container
    say "making $demo_image"
    work=$(mktemp -d)
    mkdir -p "$work/opt/checkfu-demo"
    write_bundle "$work/opt/checkfu-demo/repository.bundle" "$work/copy"
    container=$(docker create "$image")
    # shellcheck disable=SC2064  # the names of now
    trap "docker rm -f '$container' >/dev/null; rm -rf '$work'" EXIT
    chmod -R a+rX "$work/opt"
    tar -C "$work" --owner=0 --group=0 -cf - opt | docker cp - "$container:/" >/dev/null
    docker commit --change "LABEL $label=$1" "$container" "$demo_image" >/dev/null
    docker rm -f "$container" >/dev/null
    rm -rf "$work"
    trap - EXIT
}

recipe=$(sha256sum <"$0" | cut -c 1-16)
if "$refresh" || [ "$(recipe_of "$image")" != "$recipe" ]; then
    make_default "$recipe"
fi
echo "$image"
if "$demo"; then
    commit=$(git -C "$root" rev-parse --short=16 HEAD 2>/dev/null || echo none)
    built_on=$(docker image inspect --format '{{.Id}}' "$image" | cut -c 8-23)
    if "$refresh" || [ "$(recipe_of "$demo_image")" != "$built_on-$commit" ]; then
        make_demo "$built_on-$commit"
    fi
    echo "$demo_image"
fi
