#!/bin/sh
# Builds the wheel of python/, installs it into a fresh virtual environment, and tests it there: of the source tree
# only the tests are visible. Also checks its type hints if mypy is available.
# usage: tools/check_python.sh BUILD
# Exits with 77, with a reason, where pip cannot install what it needs.
set -eu
build=$(cd "${1:?BUILD}" && pwd)
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if ! { python3 -m venv "$work/tools" && "$work/tools/bin/pip" install -q build scikit-build-core; } >"$work/log" 2>&1; then
  tail -n 3 "$work/log"
  echo "python: skipped: no virtual environment with build and scikit-build-core"
  exit 77
fi
# Built from a copy, so that nothing is written into the tree; with it go the files above that CMake reads.
mkdir "$work/source"
cp -R CMakeLists.txt LICENSE cmake include src python "$work/source/"
if ! "$work/tools/bin/python" -m build --wheel --no-isolation -o "$work/made" "$work/source/python" >"$work/log" 2>&1; then
  tail -n 40 "$work/log"
  echo "python: the wheel does not build"
  exit 1
fi
wheel=$(echo "$work"/made/*.whl)
python3 -m venv "$work/fresh"
if ! "$work/fresh/bin/pip" install -q "$wheel" >"$work/log" 2>&1; then
  tail -n 3 "$work/log"
  echo "python: skipped: the wheel's dependencies cannot be had"
  exit 77
fi
env -u SETUN_LIBRARY SETUN_INSTALLED=1 SETUN_COMMAND="$build/setun" SETUN_BUILD="$build" \
  "$work/fresh/bin/python" -B tests/e2e/test_python.py
hints="type hints were not looked at: mypy cannot be had"
if "$work/tools/bin/pip" install -q mypy numpy >/dev/null 2>&1; then
  "$work/tools/bin/python" -m mypy --strict --cache-dir "$work/mypy" python/setun
  hints="mypy --strict finds nothing"
fi
echo "python: $(basename "$wheel"), $(wc -c <"$wheel") bytes; $hints"
