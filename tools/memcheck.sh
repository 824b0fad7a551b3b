#!/bin/sh
# Runs the unit and model tests of a build, and the command on the small model, under valgrind: no error and no leak.
# usage: tools/memcheck.sh BUILD
# Exits with 77, with a reason, where there is no valgrind. The statistics of samplers and the like, which draw a hundred
# thousand times the same way, are left out: they would take hours.
set -eu
build=$(cd "${1:?BUILD}" && pwd)
cd "$(dirname "$0")/.."
command -v valgrind >/dev/null 2>&1 || {
  echo "memcheck: skipped: there is no valgrind"
  exit 77
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
export SETUN_UNLIMITED=1 # valgrind takes address space of its own

check() { # check NAME COMMAND...
  name=$1
  shift
  status=0
  valgrind -q --suppressions=tools/memcheck.supp --error-exitcode=99 --leak-check=full \
    --errors-for-leak-kinds=definite,indirect,possible "$@" >"$log" 2>&1 || status=$?
  if [ $status -ne 0 ] && [ $status -ne 77 ]; then
    tail -60 "$log"
    echo "memcheck: $name: failed with $status"
    exit 1
  fi
  checked=$((checked + 1))
}

checked=0
for test in "$build"/tests/unit_* "$build"/tests/model_*; do
  case $(basename "$test") in unit_sampler_draws) continue ;; esac
  check "$(basename "$test")" "$test"
done
# What valgrind cannot emulate (AVX-512) it hides, so that this is AVX2 where there is that.
for isa in "" "--isa scalar"; do
  check "setun run $isa" "$build/setun" run models/setun-tales-7m $isa -p "One day" -n 8 --threads 2 --seed 1
done
echo "memcheck: $checked programs, no error and no leak"
