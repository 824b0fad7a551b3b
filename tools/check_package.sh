#!/bin/sh
# Makes the Debian package of a release build, checks its contents, runs the command from it, and runs lintian on it.
# usage: tools/check_package.sh BUILD
# Exits with 77, with a reason, where there is no dpkg; lintian is skipped, with a reason, if it is missing.
set -eu
build=$(cd "${1:?BUILD}" && pwd)
cd "$(dirname "$0")/.."
for tool in dpkg-deb dpkg-shlibdeps; do
  command -v $tool >/dev/null 2>&1 || {
    echo "package: skipped: there is no $tool"
    exit 77
  }
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "package: $*"
  exit 1
}

if ! (cd "$build" && cpack -G DEB -B "$work/made") >"$work/log" 2>&1; then
  cat "$work/log"
  fail "cpack failed"
fi
package=$(echo "$work"/made/*.deb)
dpkg-deb -x "$package" "$work/root"
dpkg-deb -e "$package" "$work/control"
dpkg-deb -f "$package" Depends | grep -q libpcre2-8 || fail "it does not depend on the libraries that it needs"
archive=$(cd "$work/root" && find usr/lib* -name libsetun.a)
lib=${archive%/libsetun.a} # which may be the architecture's own
# shellcheck disable=SC2046 # a name for each header
for file in usr/bin/setun $(printf 'usr/%s ' include/*.h) "$lib/libsetun.so" "$lib/libsetun.a" "$lib/pkgconfig/setun.pc" \
  "$lib/cmake/setun/setunConfig.cmake" usr/share/man/man1/setun.1.gz usr/share/man/man1/setun-run.1.gz \
  usr/share/doc/setun/copyright usr/share/doc/setun/changelog.gz usr/share/bash-completion/completions/setun \
  usr/lib/systemd/system/setun.service usr/share/zsh/vendor-completions/_setun usr/share/fish/vendor_completions.d/setun.fish; do
  [ -e "$work/root/$file" ] || fail "$file is not in it"
done
[ -s "$work/control/shlibs" ] && [ -s "$work/control/triggers" ] || fail "no shlibs or no triggers"
version=$(dpkg-deb -f "$package" Version)
"$work/root/usr/bin/setun" --version | grep -q "$version" || fail "its command does not say version $version"

# The unit, read as the system would once the command is installed.
if command -v systemd-analyze >/dev/null 2>&1; then
  sed "s|^ExecStart=setun|ExecStart=$work/root/usr/bin/setun|" "$work/root/usr/lib/systemd/system/setun.service" \
    >"$work/setun.service"
  SYSTEMD_LOG_LEVEL=warning systemd-analyze verify --man=no "$work/setun.service" || fail "the unit has faults"
fi

# A program against the shared library, through pkg-config, as a user would.
export PKG_CONFIG_PATH="$work/root/$lib/pkgconfig" LD_LIBRARY_PATH="$work/root/$lib"
# shellcheck disable=SC2046 # several flags are several words
${CC:-cc} examples/simple.c -o "$work/simple" $(pkg-config --cflags --libs setun) || fail "an example does not build"
"$work/simple" models/setun-tales-7m "One day" >/dev/null || fail "an example does not run"

lint="lintian was not asked: it is not there"
if command -v lintian >/dev/null 2>&1; then
  root=
  [ "$(id -u)" != 0 ] || root=--allow-root
  lintian $root --fail-on error,warning "$package" || fail "lintian finds fault with it"
  lint="lintian finds no error and no warning"
fi
echo "package: $(basename "$package"), $(wc -c <"$package") bytes; $lint"
