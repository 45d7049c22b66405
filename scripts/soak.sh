#!/bin/sh
# Runs the tests with large numbers, again and again, until one fails or ROUNDS are done. Every test prints its seed; SEED=… with the
# test's own command repeats it. With names of parts (model, mounts, journal, explore, ablate, canaries, torn, sync, reclaim, nested, families,
# histories, faults, memory, recovery, costs, drives, cases, load, mutants, states, page, io_uring, ufs, fuzz) only those are run: `ROUNDS=1 scripts/soak.sh torn faults`.
# THREADS=n is the number of threads of the explorer.
set -eu
cd "$(dirname "$0")/.."
rounds="${ROUNDS:-0}"
round=0
backstitch="${BACKSTITCH_BIN:-target/release/backstitch}"
work="${TMPDIR:-/tmp}"
export KEEP=1

# Runs tests of a crate, and shows their output: tests CRATE EXECUTABLE PART-OF-A-NAME...
tests() {
    crate="$1"
    executable="$2"
    shift 2
    cargo test --locked --release -p "backstitch-$crate" --test "$executable" -- --nocapture "$@"
}

explorer() {
    "$backstitch" crash fs --seed "$round" ${THREADS:+--jobs "$THREADS"} "$@"
}

# Compares the patch graph with its model.
part_model() { STEPS="${STEPS:-1000000}" tests patch patch model::; }

# Real mounts: killed, recorded, compared.
part_mounts() {
    KILLS="${KILLS:-50}" OPERATIONS="${OPERATIONS:-200000}" COMPARE_EVERY="${COMPARE_EVERY:-5000}" \
        FSX_OPS="${FSX_OPS:-200000}" ROUNDS="${IMAGES:-500}" MOMENTS="${MOMENTS:-2000}" CUTS="${CUTS:-40}" \
        JOURNAL_KILLS="${JOURNAL_KILLS:-34}" \
        tests tests end-to-end kill:: recorded:: journal:: lockstep:: fsx:: bad_images::
}

# Real mounts again, whose requests come by io_uring.
part_io_uring() {
    switch=/sys/module/fuse/parameters/enable_uring
    if [ ! -w "$switch" ]; then
        echo "no FUSE over io_uring here: that takes Linux 6.14 and root"
        return
    fi
    before="$(cat "$switch")"
    echo Y >"$switch"
    result=0
    part_mounts || result=$?
    tests tests end-to-end posix:: generic:: direct_io:: io_uring:: || result=$?
    cargo test --locked --release -p backstitch-fuse -- --nocapture || result=$?
    echo "$before" >"$switch"
    return "$result"
}

# Writers and readers on one mount, half of the time under soft updates and half under a journal.
part_load() { ENDURE_SECONDS="${ENDURE_SECONDS:-1800}" SEED="$round" RUST_TEST_THREADS=1 tests tests end-to-end endurance::; }

# Damaged images, our repair compared with e2fsck's; other images in each round.
part_mutants() { MUTANTS="${MUTANTS:-10000}" SEED="$round" tests tests mutants; }

part_journal() { cargo test --release --locked -p backstitch-vfs --test vfs -- --ignored journal_write::; }

# ACE's sequences of one operation are explored to the end.
part_explore() {
    for workload in ace:1 seq:2 ace:2 random:2000 flushed:1000; do
        bounds="--exhaustive 2000 --samples 300"
        [ "$workload" != ace:1 ] || bounds=""
        # shellcheck disable=SC2086
        explorer --workload "$workload" --states "${STATES:-20000000}" --e2fsck 5000 $bounds
    done
}

# Each rule is switched off in turn, in every form. The table in GUARANTEES gives the reason for each that survives.
part_ablate() {
    for ordering in soft sync journal=ordered journal=full journal=writeback; do
        # If rules survive they are listed, and the exit code is 1. The round does not fail for that.
        "$backstitch" crash ablate --seed "$round" --ordering "$ordering" ${THREADS:+--jobs "$THREADS"} || [ "$?" = 1 ]
    done
}

# Cases that random workloads seldom reach, under every mechanism; sessions of 200 operations; and two cases that earlier workloads missed.
part_families() {
    for ordering in soft sync journal=ordered journal=full journal=writeback; do
        explorer --ordering "$ordering" --workload cases --states-each "${CASE_STATES_EACH:-20000}"
        explorer --ordering "$ordering" --workload long:20 --exhaustive 300 --samples 50 --states-each "${CASE_STATES_EACH:-20000}"
    done
    explorer --script 'creat foo; write foo 300000 1000; sync; write foo 310000 3000'
    explorer --script 'creat foo; setxattr foo user.a x; fsync foo; setxattr foo user.a y; fsync foo'
}

# UFS with the smallest and the paper's fragments: every sequence of one operation, random ones, damaged images.
part_ufs() {
    for kind in ufs1 ufs2; do
        for fragment in 512 1024; do
            set -- -t "$kind" -b "$fragment" --ordering soft,sync,interbuffer
            explorer "$@" --workload ace:1 --states "${UFS_STATES:-200000000}"
            explorer "$@" --workload random:60,fragments --states-each "${CASE_STATES_EACH:-600}"
        done
    done
    BACKSTITCH_ROUNDS="${IMAGES:-5000}" BACKSTITCH_SEED="$((round * 10000))" tests ufs-tools ufs_tools hostile:: damage::
    FSX_OPS="${FSX_OPS:-1000000}" SEED="$round" tests tests end-to-end fsx::ufs lockstep::ufs
}

# Torn blocks: any of their sectors may arrive.
part_torn() {
    explorer --torn --workload ace:1
    explorer --torn --workload ace:2 --states-each 3000 --states "${TORN_STATES:-5000000}"
}

part_sync() {
    explorer --ordering sync --workload ace:1,seq:1
    explorer --ordering sync --workload ace:2 --states-each 3000 --states "${SYNC_STATES:-3000000}"
    explorer --ordering sync --torn --workload ace:1,seq:1 --states "${SYNC_STATES:-3000000}"
}

# Every state is reclaimed to the end (RECLAIM=1), with crashes inside, and one in 64 also while in use.
part_reclaim() { explorer --workload ace:1 --opt "${OPT:-both}" --reclaim "${RECLAIM:-1}" --in-use 64; }

# With nothing broken, the scripts that show broken rules must pass in every state. `make test` has a quarter of the second line.
part_canaries() {
    BACKSTITCH_NEW_EACH=100000000 tests crash crash canaries::
    BACKSTITCH_EFFORT=4 tests crash crash cases:: lffs:: without_log:: torn:: groups:: guided::
}

part_nested() { BACKSTITCH_NESTED_EFFORT="${NESTED_EFFORT:-50}" tests crash crash nested::; }

part_histories() {
    histories="${BACKSTITCH_RUNS:-200}"
    BACKSTITCH_RUNS="$histories" BACKSTITCH_FIRST="$(((round - 1) * histories + 1))" \
        tests ext-tools ext-tools crash_states:: reclaim::
}

# Each single read, write, flush and allocation fails in turn, with either unit of order; and the limit of links to a directory.
part_faults() {
    BACKSTITCH_FAULTS=all tests vfs vfs faults:: full_disk:: fsync_cost::
    BACKSTITCH_FAULTS=all BACKSTITCH_ATOMIC=512 tests vfs vfs faults:: full_disk::
    cargo test --release --locked -p backstitch-vfs --test vfs -- --ignored link_limit::
}

part_memory() { BACKSTITCH_BIN="$backstitch" scripts/memory.sh; }

# 64 GiB with 500,000 files. The images are sparse: they take about 400 MB, twice.
part_recovery() {
    image="$(mktemp "$work/backstitch-recovery.XXXXXX")"
    "$backstitch" bench recovery --image "$image" --runs "${RUNS:-3}" || status=$?
    rm -f "$image" "$image.empty"
    return "${status:-0}"
}

# The number of blocks written, by operation.
part_costs() {
    "$backstitch" bench zero --memory
    "$backstitch" bench micro-create --memory --max-bytes 4K --ordering soft,sync
    tests vfs vfs block_writes::
}

# Ten million requests of simulated drives, in a minute of the processor's time, and each within its bound.
part_drives() { cargo test --release --locked -p backstitch-drives --test drives -- --include-ignored --nocapture speed::; }

# Programs that rely on patchgroups, with the numbers of the paper's figures: CASE_STATES states of each; SQLite only if its header is there.
part_cases() {
    cargo build --release --locked -p backstitch-patchgroup
    scratch="$(mktemp -d "$work/backstitch-cases.XXXXXX")"
    vfs=""
    if cc -O2 -fPIC -shared -I crates/patchgroup/include -o "$scratch/backstitch.so" crates/patchgroup/sqlite/backstitch.c \
        "$(dirname "$backstitch")/libpatchgroup.a" -lpthread -ldl -lm; then
        vfs="$scratch/backstitch.so"
    fi
    SQLITE_VFS="$vfs" STATES="${CASE_STATES:-150}" scripts/case-studies.sh "$backstitch" || status=$?
    rm -rf "$scratch"
    return "${status:-0}"
}

# 10^8 states under all mechanisms. Results are kept, so a run that was stopped continues.
part_states() { scripts/states.sh "${STATES_FOLDER:-target/states}" "$backstitch"; }

# The page of `trace serve` in a real browser, with a trace of hundreds of thousands of events. It needs Debian's chromium and
# python3-venv, and npm for axe-core, which checks the page's accessibility.
part_page() {
    scripts/install-deps.sh --page
    scratch="$(mktemp -d "$work/backstitch-page.XXXXXX")"
    python3 -m venv "$scratch/python" && "$scratch/python/bin/pip" install -q playwright==1.65.2 &&
        (cd "$scratch" && npm install --silent --no-save axe-core@4.14.1) &&
        "$backstitch" bench untar --memory --record "$scratch/untar.trace" &&
        AXE="$scratch/node_modules/axe-core/axe.min.js" "$scratch/python/bin/python" tests/page/page.py "$backstitch" "$scratch/untar.trace" || status=$?
    rm -rf "$scratch"
    return "${status:-0}"
}

# Every fuzz target, FUZZ_SECONDS each.
part_fuzz() {
    scripts/install-deps.sh --fuzz
    SEED="$round" SECONDS_EACH="${FUZZ_SECONDS:-300}" scripts/fuzz.sh
}

[ "$#" -gt 0 ] || set -- model mounts journal explore ablate canaries torn sync reclaim nested families histories faults memory recovery costs drives cases load mutants states page io_uring ufs fuzz
while [ "$rounds" -eq 0 ] || [ "$round" -lt "$rounds" ]; do
    round=$((round + 1))
    for part; do
        printf '\n== round %s, %s, %s ==\n' "$round" "$part" "$(date '+%F %T')"
        "part_$part"
    done
done
