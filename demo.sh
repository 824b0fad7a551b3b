#!/bin/sh
# Installs what is missing, builds the command and the library, and prints a story from the small model in models/.
set -eu

usage() {
  cat <<'END'
usage: ./demo.sh [PROMPT]

Installs what is missing, builds the command and the library in build/, and prints a story from the small model in models/
that begins with PROMPT (default: "Once upon a time"; one argument, in quotation marks where it has several words).
END
}

case "${1:-}" in
-h | --help)
  usage
  exit 0
  ;;
--) shift ;;
-*)
  echo "demo.sh: unknown option '$1' (see ./demo.sh --help)" >&2
  exit 2
  ;;
esac
if [ $# -gt 1 ]; then
  echo "demo.sh: expected one prompt, found $# arguments: put it into quotation marks" >&2
  exit 2
fi

cd "$(dirname "$0")"

tools/install-deps.sh build

# Without the test library, the tests stay out of the build; check.sh brings them back.
tests=''
pkg-config --exists cmocka || tests=-DSETUN_TESTS=OFF

mkdir -p build
log=build/demo.log
[ -x build/setun ] || echo 'building (this takes a minute or two the first time)' >&2
# shellcheck disable=SC2086 # none, or one word
if ! { cmake --preset release $tests && cmake --build --preset release --target setun setun_shared setun_manual; } >"$log" 2>&1; then
  cat "$log" >&2
  echo "demo.sh: the build failed; the lines above say why" >&2
  exit 1
fi

# The text comes word by word; the timings, kept aside until it ends, follow it.
status=0
build/setun run models/setun-tales-7m -p "${1:-Once upon a time}" -n 200 --seed 755 --verbose 2>"$log" || status=$?
if [ "$status" = 0 ] || [ "$status" = 130 ]; then
  echo >&2
  grep -E '^(load|prompt|decode) |stopped:' "$log" >&2 || true
else
  cat "$log" >&2
fi
exit "$status"
