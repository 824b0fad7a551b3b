#!/bin/sh
# Counts the instructions of products on 64-bit Arm under emulation: for each instruction set, form and number of
# tokens those for 16 rows and 32 columns, all of a token's columns included, as a table.
# usage: tools/count_arm.sh [FORM:ACTIVATION...]
set -eu
cd "$(dirname "$0")/.."
for tool in aarch64-linux-gnu-gcc qemu-aarch64; do
  command -v $tool >/dev/null 2>&1 || {
    echo "count_arm.sh: skipped: there is no $tool"
    exit 77
  }
done
cmake -S . -B build-neon -G Ninja -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64-linux.cmake -DCMAKE_BUILD_TYPE=Release \
  -DSETUN_KERNELS_ONLY=ON >/dev/null
cmake --build build-neon --target bench_products >/dev/null
program=$(find build-neon -name bench_products -type f)
[ $# -gt 0 ] || set -- t16:token t16b:token q8:block q4:block q4m:block q6k:block

# The instructions of COUNT products: the emulator logs each block that runs, and a block is one instruction.
log() {
  qemu-aarch64 -L /usr/aarch64-linux-gnu -singlestep -d exec,nochain "$program" "$@" 2>&1 | grep -c '^Trace'
}

echo "instructions for 16 rows and 32 columns; tokens: 1 2 3 4 8"
for pair in "$@"; do
  form=${pair%:*} activation=${pair#*:}
  for isa in neon dotprod i8mm; do
    line="$form $activation $isa"
    for tokens in 1 2 3 4 8; do
      once=$(log $isa "$form" "$activation" $tokens 1)
      twice=$(log $isa "$form" "$activation" $tokens 2)
      line="$line $(awk "BEGIN { printf \"%.1f\", ($twice - $once) / 80 }")"
    done
    echo "$line"
  done
done
