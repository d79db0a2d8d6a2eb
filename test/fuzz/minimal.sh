#!/bin/sh
# Names the seeds in test/corpus/ that reach nothing beyond the others of their fuzzer, by libFuzzer's merge, and exits
# 1 if there are any. Seeds found by a fuzzer (found-…) are kept in any case: they are regression tests. Needs a `make
# fuzz` build; run from the root of the tree.
set -u
kept=$(mktemp -d)
trap 'rm -rf "$kept"' EXIT
more=0
for fuzzer in build/fuzz/fuzz_*[a-z]; do
  [ -x "$fuzzer" ] || continue
  seeds=test/corpus/${fuzzer#build/fuzz/fuzz_}
  mkdir "$kept/now"
  "$fuzzer" -merge=1 -max_len=8192 "$kept/now" "$seeds" >/dev/null 2>&1 || { echo "$fuzzer fails on $seeds"; more=1; }
  for seed in "$seeds"/*; do
    case $seed in */found-*) continue ;; esac
    [ -e "$kept/now/$(sha1sum <"$seed" | cut -d ' ' -f 1)" ] && continue
    echo "$seed adds nothing"
    more=1
  done
  rm -rf "$kept/now"
done
exit $more
