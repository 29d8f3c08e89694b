#!/bin/sh
# Builds the plug-in and its test programs with the system's g++ and libleveldb-dev.
#
#   build.sh OUT [plugin|tests|sanitized|all]
#
# OUT must hold libimbrex.so and imbrex.h (the root Makefile puts them there). It receives libleveldb_imbrex.so, which loads
# libleveldb_imbrex-<version of LevelDB>.so, which finds libimbrex.so beside itself; and with `tests` the test programs, with `sanitized`
# those that run under AddressSanitizer and UndefinedBehaviorSanitizer. Only what is older than its sources is built. CXX and CXXFLAGS
# are honoured.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
if [ $# -lt 1 ]; then
  echo "usage: build.sh OUT [plugin|tests|sanitized|all]" >&2
  exit 2
fi
mkdir -p "$1"
out=$(cd "$1" && pwd)
what=${2:-all}

if [ ! -e "$out/libimbrex.so" ] || [ ! -e "$out/imbrex.h" ]; then
  echo "build.sh: $out has no libimbrex.so and imbrex.h; run \`make build\` at the top of the repository" >&2
  exit 1
fi
if [ ! -e /usr/include/leveldb/db.h ] && [ -z "${LEVELDB_INCLUDE:-}" ]; then
  echo "build.sh: LevelDB's headers are missing; install libleveldb-dev, or set LEVELDB_INCLUDE to where they are" >&2
  exit 1
fi
include="-I$out -I$here/include -I$here/src -I$here/../common ${LEVELDB_INCLUDE:+-isystem $LEVELDB_INCLUDE}"
. "$here/../common/build.sh"

# The plug-in proper is built for one version of LevelDB and named after it; the loader finds it.
plugin() {
  # The numbers are constants of the language, not of the preprocessor.
  version=$(sed -n 's/^static const int kM[a-z]*orVersion = \([0-9]*\);$/\1/p' "${LEVELDB_INCLUDE:-/usr/include}/leveldb/db.h" | paste -sd.)
  case $version in
    [0-9]*.[0-9]*) ;;
    *)
      echo "build.sh: cannot tell the version of LevelDB's headers (found '$version'); is libleveldb-dev whole?" >&2
      exit 1
      ;;
  esac
  plugin=libleveldb_imbrex-$version.so
  if stale "$out/$plugin" || stale "$out/libleveldb_imbrex.so"; then
    compile "$out/obj/leveldb" "$(echo "$here"/src/*.cc)"
    # nodelete: LevelDB keeps a pointer to the Env, so the library must stay even after dlclose.
    # shellcheck disable=SC2086
    $cxx -shared "-Wl,-soname,$plugin" -Wl,-z,nodelete -Wl,-z,defs "-Wl,-rpath,\$ORIGIN" $objects -L"$out" -limbrex -lleveldb -ldl \
      -o "$out/$plugin.new"
    mv "$out/$plugin.new" "$out/$plugin"
    compile "$out/obj/leveldb_loader" "$here/loader/loader.cc"
    # shellcheck disable=SC2086
    $cxx -shared -Wl,-soname,libleveldb_imbrex.so -Wl,-z,nodelete -Wl,-z,defs $objects -ldl -o "$out/libleveldb_imbrex.so.new"
    mv "$out/libleveldb_imbrex.so.new" "$out/libleveldb_imbrex.so"
  fi
}

# sources_of PROGRAM: its files.
sources_of() {
  case $1 in
    env_contract_test) echo "$here"/tests/env_contract_test.cc "$here"/tests/env_*.cc ;;
    level_crash) echo "$here"/tests/level_crash.cc "$common"/crash/crash_*.cc ;;
    *) echo "$here/tests/$1".cc ;;
  esac
}

tests() {
  plugin
}

case $what in
  plugin | tests) "$what" ;;
  all) tests ;;
  *)
    echo "build.sh: unknown target $what; use plugin, tests, sanitized or all" >&2
    exit 2
    ;;
esac
