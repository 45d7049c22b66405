#!/bin/sh
# git, which knows nothing of patchgroups, under `backstitch order`: its fsyncs wait for nothing.
#
#   git.sh setup [COMMITS]   a repository to clone
#   git.sh run [COMMITS]     clones it and commits to the clone, three times by default
#   git.sh plain [COMMITS]   the same without `backstitch order`, for the comparison: git syncs, and waits
#   git.sh check             there is no clone that git would take for one, or it is sound and has the first commits, however many
set -eu
export HOME=/nonexistent GIT_CONFIG_NOSYSTEM=1 GIT_CEILING_DIRECTORIES="$PWD"
# The same names of objects each time.
export GIT_AUTHOR_DATE=2026-01-01T00:00:00Z GIT_COMMITTER_DATE=2026-01-01T00:00:00Z
git() {
    command git -c user.name=n -c user.email=e@x -c core.fsync=all -c gc.auto=0 -c advice.detachedHead=false "$@"
}
commits() {
    cd clone
    for number in $(seq "$1"); do
        echo "$number" > "file$number"
        git add "file$number"
        git commit -q -m "commit $number"
    done
}
case $1 in
setup)
    git init -q -b main origin
    cd origin
    for number in $(seq "${2:-2}"); do
        seq "$number" 300 > "old$number"
        git add .
        git commit -q -m "old $number"
    done
    ;;
run) "${BACKSTITCH:-backstitch}" order -- sh "$0" plain "${2:-3}" ;;
plain)
    git clone -q --no-hardlinks origin clone
    commits "${2:-3}"
    ;;
check)
    # Until it has a branch there is no clone yet: whoever finds that clones again.
    [ -e clone/.git/refs/heads/main ] || exit 0
    git -C clone fsck --full 2>&1 | grep -v '^notice\|^dangling' && exit 1
    new=$(git -C clone log --format=%s | grep -c '^commit' || true)
    wanted=$(seq "$new" -1 1 2> /dev/null | sed 's/^/commit /')
    [ "$(git -C clone log --format=%s | grep '^commit' || true)" = "$wanted" ]
    ;;
esac
