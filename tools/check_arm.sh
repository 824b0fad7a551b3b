#!/bin/sh
# Builds the command for 64-bit Arm with Debian's packages, in a folder of its own, and runs it under emulation: every
# golden model, a conversation, and weights that stream must give the bits of the release build of this machine.
# usage: tools/check_arm.sh BUILD
# Exits with 77, with a reason, where a tool for it, or the packages, are missing. Real models come from $SETUN_MODELS.
set -eu
native=$(cd "${1:?BUILD}" && pwd)/setun
cd "$(dirname "$0")/.."
here=$PWD/build-arm
skip() {
  echo "check_arm.sh: skipped: $*"
  exit 77
}
for tool in aarch64-linux-gnu-gcc qemu-aarch64 apt-get dpkg-deb pkg-config; do
  command -v $tool >/dev/null 2>&1 || skip "there is no $tool"
done

# The other architecture's packages are unpacked into a folder; nothing is installed.
fetch() {
  mkdir -p "$here/apt/lists/partial" "$here/apt/archives/partial" "$here/apt/sources" "$here/root"
  : >"$here/apt/status"
  for list in /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources; do
    [ ! -f "$list" ] || cp "$list" "$here/apt/sources/"
  done
  set -- -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$here/apt" -o Dir::Cache="$here/apt" \
    -o Dir::State::lists="$here/apt/lists" -o Dir::State::status="$here/apt/status" \
    -o Dir::Cache::archives="$here/apt/archives" -o Dir::Etc::SourceList=/dev/null \
    -o Dir::Etc::SourceParts="$here/apt/sources" -o APT::Sandbox::User="$(id -un)" -o Debug::NoLocking=1
  apt-get "$@" update &&
    apt-get "$@" install -y --no-install-recommends --download-only libc6-dev libgcc-12-dev libpcre2-dev \
      libutf8proc-dev libedit-dev libmicrohttpd-dev libcurl4-openssl-dev nettle-dev liburing-dev || return 1
  for package in "$here"/apt/archives/*.deb; do dpkg-deb -x "$package" "$here/root" || return 1; done
  : >"$here/root/complete"
}
if [ ! -e "$here/root/complete" ]; then
  mkdir -p "$here"
  fetch >"$here/fetch.log" 2>&1 || skip "the packages for arm64 cannot be fetched: $(tail -n 1 "$here/fetch.log")"
fi

export PKG_CONFIG_LIBDIR="$here/root/usr/lib/aarch64-linux-gnu/pkgconfig:$here/root/usr/share/pkgconfig"
export PKG_CONFIG_SYSROOT_DIR="$here/root"
cmake -S . -B "$here/build" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/aarch64-linux.cmake" -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_SYSROOT="$here/root" -DCMAKE_FIND_ROOT_PATH="$here/root" -DSETUN_TESTS=OFF >"$here/build.log" 2>&1 &&
  cmake --build "$here/build" >>"$here/build.log" 2>&1 || {
  tail -n 30 "$here/build.log"
  exit 1
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0 compared=0
arm() { qemu-aarch64 -L "$here/root" "$here/build/setun" "$@"; }

# same NAME COMMAND...: both must write the same to $out or to standard output.
same() {
  name=$1 out=
  shift
  [ "$1" != logits ] || out=yes
  "$native" "$@" ${out:+-o "$work/native"} ${native_isa:+--isa $native_isa} >"$work/native.out" 2>"$work/native.err" <"$input"
  arm "$@" ${out:+-o "$work/arm"} --isa "$isa" >"$work/arm.out" 2>"$work/arm.err" <"$input" || {
    echo "FAILED $name ($isa): $(tail -n 1 "$work/arm.err")"
    failed=$((failed + 1))
    return 0
  }
  compared=$((compared + 1))
  cmp -s "$work/native.out" "$work/arm.out" && { [ ! "$out" ] || cmp -s "$work/native" "$work/arm"; } && return 0
  echo "DIFFERENT $name ($isa)"
  failed=$((failed + 1))
}

# With AMX, products of bfloat16 weights are summed in a different order.
native_isa= input=/dev/null
"$native" version | grep -q '^instruction sets:.* amx' && native_isa=avx512
ids='[1,5,9,20,33,47,60,2,7,11,18,25,3,99,100,41,17,29,8,6,4,77,65,12]'
for isa in neon dotprod i8mm; do
  for model in tests/golden/hf/* tests/golden/gguf/*.gguf tests/golden/numpy/* models/setun-tales-7m; do
    [ -f "$model/config.json" ] || [ "${model%.gguf}" != "$model" ] || continue
    case $model in *adapter*) continue ;; esac
    same "$model" logits "$model" --ids "$ids"
    same "$model, precise" logits "$model" --ids "$ids" --precise
  done
done
real=${SETUN_MODELS:-build-models}/SmolLM2-135M-Instruct.Q4_1.gguf
if [ -f "$real" ]; then
  same 'weights that stream' logits "$real" --ids "$ids" --memory 110M
  arm plan "$real" --ctx 24 --memory 110M | grep -q 'read from disk for each pass' || {
    echo "FAILED weights that stream: all of them stay in memory"
    failed=$((failed + 1))
  }
  printf 'Name three rivers.\nAnd one lake.\n' >"$work/messages"
  input=$work/messages
  same 'a conversation' chat "$real" --temp 0 -n 12 --ctx 256
else
  echo "check_arm.sh: no conversation, nothing that streams: there is no $real"
fi
echo "check_arm.sh: $compared results compared, $failed not equal"
[ "$failed" = 0 ]
