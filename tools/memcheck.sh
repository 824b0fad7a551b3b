#!/bin/sh
# Runs the unit and model tests of a build, and the command on the small model, under valgrind: no error and no leak.
# usage: tools/memcheck.sh BUILD
# As many run at once as there are processors. Exits with 77, with a reason, where there is no valgrind.
set -eu

if [ "$1" = --one ]; then # memcheck.sh --one LOGS NAME COMMAND...: what xargs calls
  log=$2/$3
  name=$3
  shift 3
  status=0
  # Longer pieces of unrolled kernels exhaust valgrind's buffer for translating one.
  valgrind -q --vex-guest-max-insns=30 --suppressions="$(dirname "$0")/memcheck.supp" --error-exitcode=99 --leak-check=full \
    --errors-for-leak-kinds=definite,indirect,possible "$@" >"$log" 2>&1 || status=$?
  if [ $status -ne 0 ] && [ $status -ne 77 ]; then
    tail -60 "$log"
    echo "memcheck: $name: failed with $status"
    exit 255 # xargs starts no more
  fi
  exit 0
fi

build=$(cd "${1:?BUILD}" && pwd)
root=$(cd "$(dirname "$0")/.." && pwd)
command -v valgrind >/dev/null 2>&1 || {
  echo "memcheck: skipped: there is no valgrind"
  exit 77
}
logs=$(mktemp -d)
trap 'cd / && rm -rf "$logs"' EXIT
export SETUN_UNLIMITED=1 # valgrind takes address space of its own

commands() { # one a line, as xargs takes it apart: NAME COMMAND...
  # The longest first, so that none runs alone at the end.
  for name in model_tales unit_tokenizer model_allocation model_families; do
    [ ! -x "$build/tests/$name" ] || echo "$name \"$build/tests/$name\""
  done
  for test in "$build"/tests/unit_* "$build"/tests/model_*; do
    case ${test##*/} in model_tales | unit_tokenizer | model_allocation | model_families) continue ;; esac
    echo "${test##*/} \"$test\""
  done
  # Valgrind hides what it cannot emulate (AVX-512): the command under it lists what can run.
  for isa in $(valgrind -q "$build/setun" --version | sed -n 's/^instruction sets: //p'); do
    echo "setun-run-$isa \"$build/setun\" run \"$root/models/setun-tales-7m\" --isa $isa -p One -n 8 --threads 2 --seed 1"
  done
}

commands >"$logs/commands"
cd "$logs" # tests leave nothing elsewhere
xargs -P "$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)" -L 1 "$root/tools/memcheck.sh" --one "$logs" <commands || exit 1
echo "memcheck: $(wc -l <commands) programs, no error and no leak"
