#!/bin/sh
# Builds the fuzz targets and their seeds, and runs each target, or those that are named, for the given time.
# usage: tools/fuzz.sh SECONDS [TARGET...]
# Findings stay in build-fuzz/findings, inputs that reach new code in build-fuzz/corpus for the next run.
# Exits with 77, with a reason, if clang with libFuzzer is missing.
set -eu
cd "$(dirname "$0")/.."

seconds=${1:?seconds}
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n); int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return !d && n; }' >"$work/try.c"
if ! clang -fsanitize=fuzzer,address "$work/try.c" -o "$work/try" >/dev/null 2>&1; then
  echo "fuzzing: skipped: no clang with libFuzzer (Debian: clang, libclang-rt-14-dev)"
  exit 77
fi

cmake --preset fuzz >"$work/log" 2>&1 && cmake --build --preset fuzz >>"$work/log" 2>&1 || {
  cat "$work/log"
  exit 1
}
python3 tests/fuzz/make_seeds.py build-fuzz/seeds build-fuzz/setun
[ $# -gt 0 ] || set -- $(ls tests/fuzz/*.c | sed 's,.*/,,; s,\.c$,,')
for target; do
  mkdir -p "build-fuzz/corpus/$target" "build-fuzz/findings/$target"
  dictionary=
  [ ! -f "tests/fuzz/$target.dict" ] || dictionary=-dict=tests/fuzz/$target.dict
  if ! "build-fuzz/tests/setun_fuzz_$target" -max_total_time="$seconds" -max_len=16384 -timeout=20 -rss_limit_mb=2048 \
    -print_final_stats=1 -artifact_prefix="build-fuzz/findings/$target/" $dictionary \
    "build-fuzz/corpus/$target" "build-fuzz/seeds/$target" >"$work/log" 2>&1; then
    tail -40 "$work/log"
    echo "fuzzing: $target: a finding, in build-fuzz/findings/$target"
    exit 1
  fi
  sed -n "s/^#[0-9]*[[:space:]]*DONE *cov: \([0-9]*\).*/\1/p; s/^stat::number_of_executed_units: *//p" "$work/log" |
    paste -d' ' - - | sed "s/\(.*\) \(.*\)/fuzzing: $target: $seconds s, \2 runs, \1 edges, nothing found/"
done
