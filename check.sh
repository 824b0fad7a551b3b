#!/bin/sh
# Installs what is missing, builds with sanitizers and for release, and runs all tests in both.
# usage: ./check.sh [--full]
#   --full  also under the thread sanitizer and valgrind, the NEON kernels and the command for Arm under emulation, chat
#           templates, tokenizers and grammars against published ones, all golden models on GPUs, models that stream under
#           many budgets, the Debian package, the wheel, the server's page in a browser, each fuzz target for a minute,
#           randomized checks for ten minutes a program, from a seed of the clock, and the line coverage of src/; what
#           needs a tool that is not there is skipped, with the reason
# Tests on real models find them in the folder $SETUN_MODELS, by default build-models/, where they are fetched to once.
set -eu
cd "$(dirname "$0")"

full=no seconds=10 seed=1
case ${1:-} in
  --full) full=yes seconds=600 seed=random ;;
  '') ;;
  *)
    sed -n '3,8s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac

tools/install-deps.sh test
if [ "$full" = yes ]; then
  tools/install-deps.sh browser
  python3 -m pip install -q --no-deps --target build/axe axe-playwright-python ||
    echo "check.sh: axe-core was not installed; the page is not checked with it" >&2
fi

SETUN_MODELS=${SETUN_MODELS:-$PWD/build-models}
export SETUN_MODELS
python3 tools/fetch_test_models.py "$SETUN_MODELS" || echo "check.sh: tests that need these models will be skipped" >&2

jobs=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)

# build PRESET: configures and builds; what it prints is shown only when it fails.
build() {
  echo "check.sh: building $1"
  mkdir -p build
  if ! { cmake --preset "$1" -DSETUN_TESTS=ON -DSETUN_TEST_SECONDS=$seconds -DSETUN_TEST_SEED=$seed &&
    cmake --build --preset "$1" -j "$jobs"; } >build/check.log 2>&1; then
    cat build/check.log
    echo "check.sh: building $1 failed"
    exit 1
  fi
  grep -E 'warning:' build/check.log || true
}

# may_skip COMMAND...: status 77 says that something is not there.
may_skip() {
  status=0
  "$@" || status=$?
  [ "$status" = 0 ] || [ "$status" = 77 ] || exit "$status"
}

# Real models take too long under sanitizers.
build asan
ctest --test-dir build-asan --output-on-failure -j "$jobs" -LE real

if [ "$full" = yes ]; then
  build tsan
  # The tests of kernels have one thread.
  ctest --test-dir build-tsan --output-on-failure -j "$jobs" -LE real -E '^(kernel|layout)/'
  tools/check_neon.sh
  (seconds=30 && build coverage)
  find build-coverage -name '*.gcda' -delete
  # The counts are files too, which e2e/signals does not let grow.
  ctest --test-dir build-coverage --output-on-failure -j "$jobs" -LE real -E '^layout/|e2e/(install|signals)'
  tools/coverage.py build-coverage
fi

[ "$full" = yes ] || seconds=3 # the randomized checks have run under sanitizers, with the same seed
build release
if [ "$full" = yes ]; then
  may_skip python3 tools/check_published.py build build-models/published
  may_skip tools/check_arm.sh build
  may_skip tools/check_package.sh build
  may_skip tools/check_python.sh build
  may_skip tools/memcheck.sh build
  tools/check_devices.sh build
  may_skip python3 tools/check_streaming.py build build/streaming
  may_skip tools/fuzz.sh 60
fi
ctest --test-dir build --output-on-failure -j "$jobs"
