#!/bin/sh
# Explores what a power cut leaves of programs that rely on patchgroups, with the numbers of the paper's figures. Under soft updates and
# the three journals no check may fail. Without the groups, a loss must be found under soft updates. Only samples of states are checked.
#
#   scripts/case-studies.sh BACKSTITCH [MODE...]
#
# Settings: STATES of each study (150), MESSAGES (1000), PACKAGES (500), COMMITS (10), ROWS (200). ONLY='mail packages' runs only these.
# SQLite needs SQLITE_VFS, the path of the built extension (see crates/patchgroup/sqlite/backstitch.c; its name must be backstitch.so), and
# is left out without it.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
backstitch=$1
shift
[ $# -gt 0 ] || set -- soft journal=ordered journal=writeback journal=full
states=${STATES:-150} messages=${MESSAGES:-1000} packages=${PACKAGES:-500}
export BACKSTITCH="$backstitch" PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$here/crates/patchgroup/python" ROWS="${ROWS:-200}"
order=$here/docs/examples/order app=$here/docs/examples/crash-app
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
only=${ONLY:-compressor mail packages git subversion sqlite blocks}
bad=0

# explore NAME WANTED_EXIT_CODE OPTION...
explore() {
    name=$1 wanted=$2 code=0
    shift 2
    "$backstitch" crash app --json --jobs "${JOBS:-2}" --size 128M --states "$states" "$@" > "$scratch/report" || code=$?
    summary=$(python3 -S -c 'import json, sys
r = json.load(open(sys.argv[1]))
print(r["states"], "states,", "all" if r["exhaustive"] else "a sample,", len(r["failures"]), "kinds of failures",
    "".join(": " + f["verdict"].splitlines()[-1][:100] for f in r["failures"][:1]))' "$scratch/report") || summary="no report"
    echo "$name: $summary"
    [ "$code" -eq "$wanted" ] || { echo "$name: exit code $code, $wanted was expected" >&2; bad=1; }
}

# study NAME SETUP RUN CHECK: explores with the groups and, under soft updates, also without them
study() {
    case " $only " in *" $1 "*) ;; *) return 0 ;; esac
    if [ "$1" = blocks ]; then
        case $mode in journal=*) return 0 ;; esac
        explore "$1, $mode" 0 --trace "$scratch/trace" --ordering "$mode" --check "$4" --raw --run "$3"
    else
        explore "$1, $mode" 0 --trace "$scratch/trace" --ordering "$mode" --check "$4" --setup "$2" --run "$3"
    fi
    [ "$mode" != soft ] || explore "$1, $mode, without groups" 1 --trace "$scratch/trace" --ordering "$mode" --check "$4" --without-groups
}

for mode; do
    study compressor "sh $order/compress.sh setup" "sh $order/compress.sh run" "sh $order/compress.sh check"
    study mail "python3 -S $order/mailbox.py setup $messages" "python3 -S $order/mailbox.py run groups" "python3 -S $order/mailbox.py check"
    study packages "python3 -S $order/unpack.py setup" "$backstitch order -- python3 -S $order/unpack.py run $packages" \
        "python3 -S $order/unpack.py check"
    study git "sh $order/git.sh setup 5" "sh $order/git.sh run ${COMMITS:-10}" "sh $order/git.sh check"
    study subversion "python3 -S $order/subversion.py setup" "python3 -S $order/subversion.py run" "python3 -S $order/subversion.py check"
    study blocks "" "python3 -S $order/blocks.py run 500" "python3 -S $order/blocks.py check"
    if [ -n "${SQLITE_VFS-}" ]; then
        study sqlite "sh $app/sqlite-setup.sh DELETE" "sh $app/sqlite.sh DELETE FULL $SQLITE_VFS" "sh $app/sqlite-check.sh consistent"
    fi
done
exit $bad
