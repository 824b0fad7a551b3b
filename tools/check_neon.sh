#!/bin/sh
# Builds the kernels and their tests for 64-bit Arm and runs them under emulation. If a tool for it is missing, it says
# so and does nothing.
set -eu
cd "$(dirname "$0")/.."
for tool in aarch64-linux-gnu-gcc qemu-aarch64; do
  command -v $tool >/dev/null 2>&1 || {
    echo "check_neon.sh: skipped: there is no $tool"
    exit 0
  }
done
cmake -S . -B build-neon -G Ninja -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64-linux.cmake -DCMAKE_BUILD_TYPE=Release \
  -DSETUN_KERNELS_ONLY=ON
cmake --build build-neon
ctest --test-dir build-neon --output-on-failure
