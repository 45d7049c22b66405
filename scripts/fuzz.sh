#!/bin/sh
# Runs the fuzz targets one after the other, each for SECONDS_EACH (60 by default), and fails if one finds something. With names of targets
# only those are run: `SECONDS_EACH=600 scripts/fuzz.sh mount fsck`. SEED=n sets the random seed. With KEEP_GOING=1 a target runs until its
# time is over even after a finding.
# Inputs that reach new code are kept in fuzz/corpus; an input that fails is left in fuzz/artifacts.
set -eu
cd "$(dirname "$0")/.."
PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"
seconds="${SECONDS_EACH:-60}"
seed="${SEED:-$(od -An -N3 -tu4 /dev/urandom | tr -d ' ')}"

if ! cargo +nightly fuzz --version > /dev/null 2>&1; then
    echo "fuzz: a nightly compiler and cargo-fuzz are needed: run scripts/install-deps.sh --fuzz" >&2
    exit 2
fi
fuzz/make-corpus.sh
# No part of the project is unsafe, so there is nothing for a sanitizer to find. Overflows and assertions are checked.
cargo +nightly fuzz build --sanitizer none
host="$(rustc +nightly -vV | sed -n 's/^host: //p')"
# shellcheck disable=SC2046 # a list of words
[ "$#" -gt 0 ] || set -- $(cargo +nightly fuzz list)
failed=0
for target; do
    echo "== $target, $seconds s, seed $seed =="
    mkdir -p "fuzz/artifacts/$target"
    started="fuzz/artifacts/$target.started"
    touch "$started"
    # Inputs are short: they list places in an image, and damages to them.
    longest=300
    case "$target" in superblock | directory | ufs_format | xattr | journal_format | partition | undo | write_log | answers) longest=5120 ;; esac
    going=""
    [ -z "${KEEP_GOING:-}" ] || going="-fork=1 -ignore_crashes=1 -ignore_timeouts=1 -ignore_ooms=1"
    limits="-rss_limit_mb=400 -timeout=20"
    program="fuzz/target/$host/release/$target"
    # shellcheck disable=SC2086 # lists of words
    "$program" "fuzz/corpus/$target" -seed="$seed" -max_total_time="$seconds" -max_len="$longest" $going \
        -len_control=0 $limits -print_final_stats=1 -artifact_prefix="fuzz/artifacts/$target/" \
        > "fuzz/artifacts/$target.log" 2>&1 || failed=1
    # The second pattern is for runs with KEEP_GOING, which print executions, coverage and findings.
    grep -aE '^stat::(number_of_executed_units|peak_rss_mb)|SUMMARY:' "fuzz/artifacts/$target.log" || :
    grep -aE '^#[0-9]+: cov:' "fuzz/artifacts/$target.log" | tail -n 1
    find "fuzz/artifacts/$target" -type f -newer "$started" | while read -r found; do
        # shellcheck disable=SC2086 # a list of words
        place="$("$program" $limits "$found" 2>&1 | grep -aoE 'panicked at [^ ]+|ERROR: .*' | head -n 1)"
        echo "$found: ${place:-not again}"
    done
    [ -z "$(find "fuzz/artifacts/$target" -type f -newer "$started")" ] || failed=1
done
exit "$failed"
