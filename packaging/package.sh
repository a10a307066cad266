#!/usr/bin/env bash
# Makes the packages from programs that are built already: one deb for each daemon, one tarball with both, and checksums.
#   packaging/package.sh --binaries target/release --toolbox FILE --out DIR [--quick]
# The same commit and binaries give the same bytes. --quick compresses little, for tests.
set -euo pipefail
cd "$(dirname "$0")/.."

binaries='' toolbox='' out='' xz_level=6
while [ $# -gt 0 ]; do
    case "$1" in
    --binaries) binaries=$2; shift 2 ;;
    --toolbox) toolbox=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --quick) xz_level=0; shift ;;
    *) echo "package: unknown argument $1" >&2; exit 2 ;;
    esac
done
[ -x "$binaries/checkfu" ] && [ -x "$binaries/checkfu-runner" ] || { echo "package: --binaries names no built programs" >&2; exit 2; }
[ -x "$toolbox" ] || { echo "package: --toolbox names no program; packaging/toolbox.sh prints its path" >&2; exit 2; }
mkdir -p "$out"
out=$(cd "$out" && pwd)

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
arch=$(dpkg --print-architecture)
# Every time stamp is the commit's, or the change log's where there is no history.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y packaging/CHANGELOG.md)}
export SOURCE_DATE_EPOCH LC_ALL=C
umask 022
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

program() { # SOURCE TARGET
    install -D -m 0755 "$1" "$2"
    # Symbols are two thirds of the size and stay with the build.
    if command -v strip >/dev/null; then strip --strip-debug "$2"; fi
}

# A program with its manual pages, completions and unit below a package's root.
common() { # NAME ROOT
    local name=$1 root=$2
    program "$binaries/$name" "$root/usr/bin/$name"
    install -d "$root/usr/share/man/man1"
    "$binaries/$name" manual "$root/usr/share/man/man1"
    find "$root/usr/share/man" -type f -exec gzip -9 -n {} +
    install -d "$root/usr/share/bash-completion/completions" "$root/usr/share/zsh/vendor-completions" "$root/usr/share/fish/vendor_completions.d"
    "$binaries/$name" completions bash >"$root/usr/share/bash-completion/completions/$name"
    "$binaries/$name" completions zsh >"$root/usr/share/zsh/vendor-completions/_$name"
    "$binaries/$name" completions fish >"$root/usr/share/fish/vendor_completions.d/$name.fish"
    install -D -m 0644 "systemd/$name.service" "$root/usr/lib/systemd/system/$name.service"
    install -D -m 0644 LICENSE "$root/usr/share/doc/$name/copyright"
    install -D -m 0644 packaging/metrics.md "$root/usr/share/doc/$name/metrics.md"
    install -D -m 0644 README.md "$root/usr/share/doc/$name/README.md"
    gzip -9 -n -c packaging/CHANGELOG.md >"$root/usr/share/doc/$name/changelog.gz"
}

# The lines of a configuration that concern one of the two accounts, and what both share.
share_of() { # FILE runner|plane
    case "$2" in
    runner) grep -vE '(^u checkfu |/var/lib/checkfu )' "$1" ;;
    plane) grep -vE '(checkfu-runner|docker|Docker)' "$1" ;;
    esac
}

accounts() { # NAME ROOT runner|plane
    install -d "$2/usr/lib/sysusers.d" "$2/usr/lib/tmpfiles.d"
    share_of systemd/sysusers.conf "$3" >"$2/usr/lib/sysusers.d/$1.conf"
    share_of systemd/tmpfiles.conf "$3" >"$2/usr/lib/tmpfiles.d/$1.conf"
}

deb() { # NAME ROOT DESCRIPTION RECOMMENDS
    local name=$1 root=$2
    install -d "$root/DEBIAN"
    for script in postinst prerm postrm; do
        sed "s/@NAME@/$name/g" "packaging/debian/$script" >"$root/DEBIAN/$script"
        chmod 0755 "$root/DEBIAN/$script"
    done
    cat >"$root/DEBIAN/control" <<END
Package: $name
Version: $version
Architecture: $arch
Maintainer: Checkfu <packages@checkfu.example>
Section: admin
Priority: optional
Installed-Size: $(du -sk --exclude=DEBIAN --apparent-size "$root" | cut -f 1)
Depends: libc6, libgcc-s1, passwd
Recommends: $4
Description: $3
END
    (cd "$root" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
    find "$root" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group -Zxz -z"$xz_level" --build "$root" "$out/${name}_${version}_$arch.deb" >/dev/null
}

runner=$work/runner plane=$work/plane
common checkfu-runner "$runner"
program "$toolbox" "$runner/usr/lib/checkfu/checkfu-toolbox"
accounts checkfu-runner "$runner" runner
install -D -m 0644 -t "$runner/usr/share/doc/checkfu-runner/ci" packaging/ci/*.md
"$binaries/checkfu-runner" config example >"$runner/usr/share/doc/checkfu-runner/runner.toml"
common checkfu "$plane"
accounts checkfu "$plane" plane

tree=$work/checkfu-$version
mkdir "$tree"
cp -a "$runner/usr/." "$tree/"
cp -a "$plane/usr/." "$tree/"
find "$tree" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --directory "$work" "checkfu-$version" |
    gzip -n -"$([ "$xz_level" = 0 ] && echo 1 || echo 9)" >"$out/checkfu-$version-linux-$arch.tar.gz"

deb checkfu-runner "$runner" "runs AI-agent sessions in Docker, opens no port" "docker.io | docker-ce, ca-certificates"
deb checkfu "$plane" "control plane of Checkfu and its command line" "ca-certificates"
(cd "$out" && sha256sum -- *.deb *.tar.gz >SHA256SUMS)
ls "$out"
