#!/bin/sh
# Installs what the tests and benchmarks need: Debian packages and tools from crates.io. If everything is there already, it does
# nothing and needs no network.
#
#   scripts/install-deps.sh          install
#   scripts/install-deps.sh --run    install what building and the demonstration need, and no more
#   scripts/install-deps.sh --lint   install what `make lint` needs, and no more
#   scripts/install-deps.sh --fuzz   install what fuzzing needs too: a nightly compiler and cargo-fuzz
#   scripts/install-deps.sh --page   install what the test of the page needs too: a browser, some 100s of MB
#   scripts/install-deps.sh --check  only say what is missing (exit 1 if anything is)
set -eu

# For each package a command whose presence shows that the package is there, even on systems other than Debian.
packages="cc:gcc mke2fs:e2fsprogs fusermount3:fuse3 python3:python3 tar:tar"
tools=""
if [ "${1:-}" = --lint ]; then
    # Building it takes minutes, and no test needs it.
    tools="cargo-deny:0.20.2"
elif [ "${1:-}" != --run ]; then
    packages="$packages fuse2fs:fuse2fs setfattr:attr setfacl:acl postmark:postmark qemu-io:qemu-utils sqlite3:sqlite3 pkg-config:pkg-config makefs:makefs fls:sleuthkit linux.uml:user-mode-linux insmod:kmod"
    tools="pjdfstest:0.2.2 fsx:0.3.2"
fi

if [ "${1:-}" = --page ]; then
    packages="$packages chromium:chromium npm:npm"
fi

if [ "${1:-}" = --fuzz ]; then
    tools="$tools cargo-fuzz:0.13.2"
fi

# mke2fs and similar commands are in directories that an ordinary user's PATH may lack.
PATH="$PATH:/usr/sbin:/sbin:${CARGO_HOME:-$HOME/.cargo}/bin"
export PATH

say() { printf '%s\n' "install-deps: $*" >&2; }

missing_packages=""
for pair in $packages; do
    command -v "${pair%%:*}" >/dev/null 2>&1 || missing_packages="$missing_packages ${pair#*:}"
done
if [ "${1:-}" = --page ] && ! python3 -c 'import ensurepip' 2>/dev/null; then
    missing_packages="$missing_packages python3-venv"
fi
missing_tools=""
for pair in $tools; do
    command -v "${pair%%:*}" >/dev/null 2>&1 || missing_tools="$missing_tools $pair"
done

if [ "${1:-}" = --check ]; then
    [ -z "$missing_packages" ] || say "Debian packages missing:$missing_packages"
    [ -z "$missing_tools" ] || say "tools missing (cargo install):$missing_tools"
    [ -z "$missing_packages$missing_tools" ]
    exit
fi

if [ -n "$missing_packages" ]; then
    if ! command -v apt-get >/dev/null 2>&1; then
        say "no apt-get here; install what Debian calls:$missing_packages"
        exit 1
    elif [ "$(id -u)" -eq 0 ]; then
        sudo=""
    elif command -v sudo >/dev/null 2>&1; then
        sudo="sudo"
    else
        say "as root, run: apt-get install$missing_packages"
        exit 1
    fi
    say "installing$missing_packages"
    $sudo apt-get update -qq
    # shellcheck disable=SC2086 # a list of words
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing_packages
fi

for component in rustfmt:cargo-fmt clippy:cargo-clippy; do
    if ! command -v "${component#*:}" >/dev/null 2>&1 && command -v rustup >/dev/null 2>&1; then
        rustup component add "${component%%:*}"
    fi
done

if [ "${1:-}" = --fuzz ] && ! cargo +nightly --version >/dev/null 2>&1 && command -v rustup >/dev/null 2>&1; then
    rustup toolchain install nightly --profile minimal
fi

# These tools run for minutes at most, so optimisations that take long to build are not worth it.
CARGO_PROFILE_RELEASE_LTO=off
CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
CARGO_PROFILE_RELEASE_OPT_LEVEL=1
export CARGO_PROFILE_RELEASE_LTO CARGO_PROFILE_RELEASE_CODEGEN_UNITS CARGO_PROFILE_RELEASE_OPT_LEVEL
for pair in $missing_tools; do
    say "installing ${pair%%:*} ${pair#*:} from crates.io"
    cargo install --locked --quiet "${pair%%:*}" --version "${pair#*:}"
done
