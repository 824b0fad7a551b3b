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
[ -x build/setun ] || echo 'building (a minute or two the first time)' >&2

# While it runs, the last step that the build tool began, "[120/318]", is shown on the terminal.
build() {
  # shellcheck disable=SC2086 # none, or one word
  cmake --preset release $tests && cmake --build --preset release --target setun setun_shared setun_manual
}
build >"$log" 2>&1 &
building=$!
trap 'kill "$building" 2>/dev/null' INT TERM HUP
if [ -t 2 ]; then
  while kill -0 "$building" 2>/dev/null; do
    printf '\r%s' "$(sed -n 's/^\(\[[0-9]*\/[0-9]*\]\).*/\1/p' "$log" | tail -n 1)" >&2
    sleep 1
  done
  printf '\r             \r' >&2
fi
if ! wait "$building"; then
  cat "$log" >&2
  echo "demo.sh: the build failed; the lines above say why" >&2
  exit 1
fi
trap - INT TERM HUP

# The text comes word by word; the timings, kept aside until it ends, follow it.
status=0
build/setun run models/setun-tales-7m -p "${1:-Once upon a time}" -n 240 --seed 28 --temp 0.6 --min-p 0.08 \
  --dry-multiplier 0.8 --repeat-penalty 1.15 --repeat-last-n 128 --verbose 2>"$log" || status=$?
if [ "$status" = 0 ] || [ "$status" = 130 ]; then
  echo >&2
  grep -E '^(load|prompt|decode) |stopped:' "$log" >&2 || true
else
  cat "$log" >&2
fi
exit "$status"
