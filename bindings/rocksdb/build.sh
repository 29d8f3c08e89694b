#!/bin/sh
# Builds the plug-in and its driver programs with the system's g++ and librocksdb-dev.
#
#   build.sh OUT [plugin|tests|sanitized|all]
#
# OUT must hold libimbrex.so and imbrex.h (the root Makefile puts them there). It receives librocksdb_imbrex.so, which finds
# libimbrex.so beside itself, and with `tests` the driver programs, with `sanitized` those that run under AddressSanitizer and
# UndefinedBehaviorSanitizer. Only what is older than its sources is built. CXX and CXXFLAGS are honoured.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
if [ $# -lt 1 ]; then
  echo "usage: build.sh OUT [plugin|tests|sanitized|all]" >&2
  exit 2
fi
mkdir -p "$1"
out=$(cd "$1" && pwd)
what=${2:-all}
cxx=${CXX:-g++}
common="-std=c++17 -fno-rtti -Wall -Wextra -Werror -fvisibility=hidden -fvisibility-inlines-hidden"
flags="$common ${CXXFLAGS:--O2 -g}"

if [ ! -e "$out/libimbrex.so" ] || [ ! -e "$out/imbrex.h" ]; then
  echo "build.sh: $out has no libimbrex.so and imbrex.h; run \`make build\` at the top of the repository" >&2
  exit 1
fi
if [ ! -e /usr/include/rocksdb/version.h ] && [ -z "${ROCKSDB_INCLUDE:-}" ]; then
  echo "build.sh: RocksDB's headers are missing; install librocksdb-dev, or set ROCKSDB_INCLUDE to where they are" >&2
  exit 1
fi
include="-I$out -I$here/include -I$here/src ${ROCKSDB_INCLUDE:+-isystem $ROCKSDB_INCLUDE}"

# stale TARGET: whether it is missing or older than any source, header or this script.
stale() {
  [ ! -e "$1" ] || [ -n "$(find "$here" "$out/imbrex.h" -newer "$1" \( -name '*.cc' -o -name '*.h' -o -name build.sh \) -print -quit)" ]
}

# compile DIR FLAGS...: objects of the plug-in, all at once.
compile() {
  dir=$1
  shift
  mkdir -p "$dir"
  pids=
  for source in "$here"/src/*.cc; do
    object=$dir/$(basename "$source" .cc).o
    # shellcheck disable=SC2086
    $cxx $flags $include -fPIC "$@" -c "$source" -o "$object" &
    pids="$pids $!"
  done
  for pid in $pids; do
    wait "$pid"
  done
}

plugin() {
  stale "$out/librocksdb_imbrex.so" || return 0
  compile "$out/obj/rocksdb"
  # nodelete: RocksDB keeps a pointer to the factory, so the library must stay even after dlclose.
  $cxx -shared -Wl,-soname,librocksdb_imbrex.so -Wl,-z,nodelete -Wl,-z,defs -Wl,--no-as-needed "-Wl,-rpath,\$ORIGIN" \
    "$out"/obj/rocksdb/*.o -L"$out" -limbrex -lrocksdb -ldl -o "$out/librocksdb_imbrex.so.new"
  mv "$out/librocksdb_imbrex.so.new" "$out/librocksdb_imbrex.so"
}

# sources_of PROGRAM: its files in tests/; those of fs_contract_test are several.
sources_of() {
  case $1 in
    fs_contract_test) echo "$here"/tests/fs_contract_test.cc "$here"/tests/contract_*.cc ;;
    *) echo "$here/tests/$1".cc ;;
  esac
}

tests() {
  plugin
  for program in fs_contract_test; do #TODO
    sources=$(sources_of $program)
    program=$out/$program
    if stale "$program"; then
      # shellcheck disable=SC2086
      $cxx $flags $include $sources -Wl,--no-as-needed "-Wl,-rpath,\$ORIGIN" -L"$out" -lrocksdb_imbrex -limbrex -lrocksdb -lpthread \
        -o "$program.new"
      mv "$program.new" "$program"
    fi
  done
}

# The plug-in is compiled into the program: a sanitizer sees only what it instrumented.
sanitized() {
  program=$out/fs_contract_test_sanitized
  stale "$program" || return 0
  compile "$out/obj/rocksdb-sanitized" -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
  # shellcheck disable=SC2086
  $cxx $flags $include -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer \
    $(sources_of fs_contract_test) "$out"/obj/rocksdb-sanitized/*.o "-Wl,-rpath,\$ORIGIN" -L"$out" -limbrex -lrocksdb -lpthread -ldl \
    -o "$program.new"
  mv "$program.new" "$program"
}

case $what in
  plugin | tests | sanitized) "$what" ;;
  all)
    plugin
    tests
    sanitized
    ;;
  *)
    echo "build.sh: unknown target $what; use plugin, tests, sanitized or all" >&2
    exit 2
    ;;
esac
