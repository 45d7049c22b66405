#!/bin/sh
# Whenever the power goes, there is a file, and it is one of the versions, whole. Which one does not matter: without an fsync of the
# directory no save is promised to last.
[ -e config ] || { echo "config is gone"; exit 1; }
version=$(head -n 1 config | tr -d '\0')
case $version in
"version "[0123]) ;;
*) echo "config does not begin with a version"; exit 1 ;;
esac
if { echo "$version"; seq 1 1000; echo end; } | cmp -s - config; then
    exit 0
fi
echo "config is not whole: $(wc -c < config) bytes, $(tr -d '\0' < config | wc -c) of them not zero"
exit 1
