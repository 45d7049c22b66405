#!/bin/sh
# Writes the initial inputs of the fuzzer to fuzz/corpus, in a folder for each target: structures of the project's own images, logs
# and tables and, if mke2fs and debugfs are installed, of images that these make.
set -eu
cd "$(dirname "$0")/.."
PATH="$PATH:/usr/sbin:/sbin"
corpus="${1:-fuzz/corpus}"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

# Makes images of each kind, with everything in them that a file system can have.
foreign() {
    mkdir -p "$work/tree/dir/sub" "$work/tree/many"
    echo contents > "$work/tree/dir/file"
    ln "$work/tree/dir/file" "$work/tree/dir/sub/linked"
    ln -s dir/file "$work/tree/fast"
    ln -s "$(printf 'dir/../%.0s' $(seq 20))" "$work/tree/slow"
    head -c 300000 /dev/zero | tr '\0' x > "$work/tree/dir/double"
    for number in $(seq 60); do : > "$work/tree/many/a rather long name of a file, number $number"; done
    while read -r name size options; do
        truncate -s "$size" "$work/$name.img"
        # shellcheck disable=SC2086 # a list of words
        mke2fs -q -F -d "$work/tree" $options "$work/$name.img"
        printf 'cd dir\nmknod pipe p\nmknod disk b 8 1\nea_set file user.one value\nea_set double user.long %0300d\n' 7 |
            debugfs -w -f - "$work/$name.img" > /dev/null 2>&1
        # Builds the indexes of directories.
        e2fsck -fyD "$work/$name.img" > /dev/null 2>&1 || [ $? -eq 1 ]
    done <<EOF
mke2fs-1k 2M -t ext2 -b 1024 -g 1024 -N 256
mke2fs-128 2M -t ext2 -b 1024 -I 128 -N 256
mke2fs-4k 4M -t ext2 -b 4096 -N 256
mke2fs-plain 2M -t ext2 -b 1024 -N 256 -O none,ext_attr,dir_index
mke2fs-ext3 8M -t ext3 -b 1024 -N 256 -J size=1
EOF
}

if command -v mke2fs > /dev/null && command -v debugfs > /dev/null; then
    foreign
else
    echo "make-corpus: no mke2fs and debugfs (e2fsprogs): only our own images" >&2
fi
mkdir -p "$corpus"
set -- "$work"/*.img
[ -e "$1" ] || set --
cargo run --quiet --locked -p backstitch-fuzz --bin make-corpus -- "$corpus" "$@"
