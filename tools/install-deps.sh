#!/bin/sh
# Installs what building ("build") or testing ("test", with all of "build") needs and is missing; "browser" adds what
# the test of the server's page needs, which is skipped without it.
# Does nothing, and needs neither network nor rights, if everything is installed.
# usage: tools/install-deps.sh build|test|browser
set -eu

want=${1:-build}

# One row a need: what it is for, how its presence is checked, and its packages on each system.
# How it is checked: command:NAME runs; module:NAME is known to pkg-config; compiler: a program compiles;
# sanitizers: one links with them; header:NAME can be included; vulkan: a driver of it is there, if only Mesa's lavapipe,
# which computes on the CPU; uring: liburing is known to pkg-config, or this is not Linux, which alone has it;
# library:NAME is in the linker's cache; python:NAME can be imported. "-" means that nothing is to be installed there;
# several packages are joined by "+".
table='
# need   seen by              Debian, Ubuntu   Fedora                Arch          macOS (Homebrew)
build    compiler             gcc+libc6-dev    gcc+glibc-devel       gcc           gcc
build    command:cmake        cmake            cmake                 cmake         cmake
build    command:ninja        ninja-build      ninja-build           ninja         ninja
build    command:pkg-config   pkg-config       pkgconf-pkg-config    pkgconf       pkgconf
build    module:libpcre2-8    libpcre2-dev     pcre2-devel           pcre2         pcre2
build    module:libutf8proc   libutf8proc-dev  utf8proc-devel        libutf8proc   utf8proc
build    module:libedit       libedit-dev      libedit-devel         libedit       libedit
build    module:libmicrohttpd libmicrohttpd-dev libmicrohttpd-devel libmicrohttpd libmicrohttpd
build    module:libcurl       libcurl4-openssl-dev libcurl-devel     curl          curl
build    module:nettle        nettle-dev       nettle-devel          nettle        nettle
build    uring                liburing-dev     liburing-devel        liburing      -
build    header:vulkan/vulkan.h libvulkan-dev  vulkan-headers+vulkan-loader vulkan-headers+vulkan-icd-loader vulkan-headers
build    command:glslangValidator glslang-tools glslang              glslang       glslang
test     sanitizers           gcc+libc6-dev    libasan+libubsan      gcc           -
test     module:cmocka        libcmocka-dev    libcmocka-devel       cmocka        cmocka
test     module:jansson       libjansson-dev   jansson-devel         jansson       jansson
test     command:python3      python3          python3               python        python
test     command:tmux         tmux             tmux                  tmux          tmux
test     python:pip           python3-pip      python3-pip           python-pip    -
test     python:venv          python3-venv     python3               python        -
test     python:numpy         python3-numpy    python3-numpy         python-numpy  numpy
test     command:fish         fish             fish                  fish          fish
test     library:libopenblas.so.0 libopenblas0 openblas              openblas      -
test     vulkan               mesa-vulkan-drivers mesa-vulkan-drivers vulkan-swrast -
browser  command:chromedriver chromium+chromium-driver chromium+chromedriver chromium -
'

compiles() { # compiles FLAGS...: does a small program compile and link?
  work=$(mktemp -d)
  printf '#include <stdio.h>\nint main(void) { return puts("") < 0; }\n' >"$work/try.c"
  if ${CC:-cc} "$@" "$work/try.c" -o "$work/try" >/dev/null 2>&1; then result=0; else result=1; fi
  rm -rf "$work"
  return $result
}

present() {
  case $1 in
    compiler) compiles ;;
    sanitizers) compiles -fsanitize=address,undefined ;;
    command:*) command -v "${1#*:}" >/dev/null 2>&1 ;;
    module:*) pkg-config --exists "${1#*:}" >/dev/null 2>&1 ;;
    header:*) echo "#include <${1#*:}>" | ${CC:-cc} -E - >/dev/null 2>&1 ;;
    vulkan) [ "$(uname -s)" != Linux ] || [ -n "$(ls /usr/share/vulkan/icd.d /etc/vulkan/icd.d 2>/dev/null)" ] ;;
    uring) [ "$(uname -s)" != Linux ] || pkg-config --exists liburing >/dev/null 2>&1 ;;
    library:*) ldconfig -p 2>/dev/null | grep -q "${1#*:}" || /sbin/ldconfig -p 2>/dev/null | grep -q "${1#*:}" ;;
    python:*) python3 -c "import ${1#*:}" >/dev/null 2>&1 ;;
  esac
}

if command -v apt-get >/dev/null 2>&1; then system=3
elif command -v dnf >/dev/null 2>&1; then system=4
elif command -v pacman >/dev/null 2>&1; then system=5
elif command -v brew >/dev/null 2>&1; then system=6
else system=0; fi

# What is missing: `lacks` names it, `packages` are the packages that have it. Fills both from the table.
look() {
  lacks='' packages=''
  while read -r need seen debian fedora arch macos; do
    case $need in '' | '#') continue ;; esac
    case $want:$need in *:build | test:test | browser:*) ;; *) continue ;; esac
    present "$seen" && continue
    case $system in 3) names=$debian ;; 4) names=$fedora ;; 5) names=$arch ;; 6) names=$macos ;; *) names=- ;; esac
    lacks="$lacks $seen"
    [ "$names" = - ] || packages="$packages $(echo "$names" | tr + ' ')"
  done <<TABLE
$table
TABLE
}

# What only some tests need, which are skipped without it; and weights can be read without io_uring.
must_have() { echo "$lacks" | sed 's/ python:pip//; s/ python:venv//; s/ python:numpy//; s/ command:fish//; s/ command:chromedriver//; s/ uring//;
  s/ library:libopenblas.so.0//;
  s/ header:vulkan.vulkan.h//; s/ command:glslangValidator//; s/ vulkan//'; }

look
[ -n "$lacks" ] || exit 0

if [ "$system" = 0 ]; then
  [ -n "$(must_have)" ] || exit 0
  echo "missing:$lacks; this system has none of apt-get, dnf, pacman, brew: please install these by hand" >&2
  exit 1
fi

root=''
if [ "$system" != 6 ] && [ "$(id -u)" != 0 ]; then
  if command -v sudo >/dev/null 2>&1; then root=sudo
  elif [ -z "$(must_have)" ]; then exit 0
  else
    echo "missing:$lacks; installing$packages needs root or sudo" >&2
    exit 1
  fi
fi

echo "installing$packages" >&2
# shellcheck disable=SC2086 # several packages are several words
install_packages() {
  case $system in
    3)
      $root apt-get update -qq || echo "apt-get update failed; trying with the lists that are there" >&2
      $root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages
      ;;
    4) $root dnf install -y -q $packages ;;
    5) $root pacman -Sy --needed --noconfirm $packages ;;
    6) brew install -q $packages ;;
  esac
}
install_packages >&2 || true # what is there afterwards decides

look
lacks=$(must_have)
[ -z "$lacks" ] || {
  echo "still missing after the installation:$lacks" >&2
  exit 1
}
