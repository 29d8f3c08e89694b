#!/bin/sh
# Builds the LevelDB plug-in of the key-value store and its test programs with the system's g++ and libleveldb-dev.
#
#   build.sh OUT [plugin|tests|sanitized|suites|all]
#
# OUT must hold libimbrex.so, which leads to libimbrex.so.N, and imbrex.h (scripts/build puts them there). It receives
# libleveldb_kv_imbrex.so, which loads libleveldb_kv_imbrex-<version of LevelDB>.so, which finds libimbrex.so.N beside itself; and with
# `tests` the test programs, with `sanitized` those that run under AddressSanitizer and UndefinedBehaviorSanitizer, with `suites` LevelDB's
# own tests, from the sources at LEVELDB_SOURCE (scripts/leveldb-suites). Only what is older than its sources is built. CXX and CXXFLAGS
# are honoured.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
if [ $# -lt 1 ]; then
  echo "usage: build.sh OUT [plugin|tests|sanitized|suites|all]" >&2
  exit 2
fi
mkdir -p "$1"
out=$(cd "$1" && pwd)
what=${2:-all}
. "$here/../common/build.sh"
. "$common/level/build.sh"

plugin() { level_plugin libleveldb_kv_imbrex; }

# Linked with LevelDB alone, as the programs of strangers; they find the plug-in where it is preloaded.
tests() {
  plugin
  program=$out/database_test
  if stale "$program"; then
    # shellcheck disable=SC2086
    compile "$out/obj/database_test" "$here/tests/database_test.cc $common/contract/registry.cc" "-I$common/contract" $quick
    # shellcheck disable=SC2086
    $cxx $objects -lleveldb -lpthread -o "$program.new"
    mv "$program.new" "$program"
  fi
}

# The plug-in is compiled into the program: a sanitizer sees only what it instrumented.
sanitized() {
  tests
  program=$out/database_test_sanitized
  stale "$program" || return 0
  # shellcheck disable=SC2086
  compile "$out/obj/database_test_sanitized" "$plugin_sources $here/tests/database_test.cc $here/tests/linked_in.cc $common/contract/registry.cc" \
    "-I$common/contract" $quick $sanitizers
  # shellcheck disable=SC2086
  $cxx $sanitizers $objects "-Wl,-rpath,\$ORIGIN" -L"$out" -limbrex -lleveldb -lpthread -ldl -o "$program.new"
  mv "$program.new" "$program"
}

# LevelDB's own tests and db_bench, unchanged. What db_test uses of LevelDB's internals, the shared library does not show:
# tests/internals.cc has it, and tests/benchmark/benchmark.h stands for a library that they need for one benchmark.
suites() {
  plugin
  source=${LEVELDB_SOURCE:?set LEVELDB_SOURCE to the sources of LevelDB; scripts/leveldb-suites gets them}
  dir=$out/leveldb-suites
  mkdir -p "$dir"
  {
    echo "FLAGS = -std=c++17 -O1 -w -DLEVELDB_PLATFORM_POSIX=1 -I$here/tests -I$source"
    echo "all: c_test issue178_test issue200_test issue320_test db_test db_bench"
    echo "c_test: $source/db/c_test.c; ${CC:-gcc} -O1 -w \$< -lleveldb -o \$@"
    for name in issues/issue178_test issues/issue200_test issues/issue320_test db/db_test db/dbformat db/filename benchmarks/db_bench \
      util/testutil util/logging util/histogram util/crc32c util/hash util/coding; do
      echo "${name##*/}.o: $source/$name.cc; $cxx \$(FLAGS) -c \$< -o \$@.new && mv \$@.new \$@"
    done
    echo "internals.o: $here/tests/internals.cc; $cxx \$(FLAGS) -c \$< -o \$@"
    link="$cxx \$^ -lleveldb -lgmock -lgtest -lpthread -o \$@"
    echo "issue178_test issue200_test issue320_test: %: %.o testutil.o; $link"
    echo "db_test: db_test.o internals.o dbformat.o filename.o testutil.o logging.o hash.o coding.o; $link"
    echo "db_bench: db_bench.o testutil.o histogram.o crc32c.o logging.o; $link"
  } >"$dir/Makefile"
  make -s -C "$dir" -j "${JOBS:-$(nproc)}" all
}

case $what in
  plugin | tests | sanitized | suites) "$what" ;;
  all) sanitized ;;
  *)
    echo "build.sh: unknown target $what; use plugin, tests, sanitized, suites or all" >&2
    exit 2
    ;;
esac
