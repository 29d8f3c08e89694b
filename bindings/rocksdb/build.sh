#!/bin/sh
# Builds the plug-in and its driver programs with the system's g++ and librocksdb-dev.
#
#   build.sh OUT [plugin|tests|sanitized|faults|all]
#
# With another RocksDB (scripts/test-rocksdb-release): ROCKSDB_INCLUDE, and its librocksdb.so in OUT.
# OUT must hold libimbrex.so, which leads to libimbrex.so.N, and imbrex.h (scripts/build puts them there). It receives librocksdb_imbrex.so, which loads
# librocksdb_imbrex-<version of RocksDB>.so, which finds libimbrex.so.N beside itself; and with `tests` the driver programs, with `sanitized` those that run under AddressSanitizer and
# UndefinedBehaviorSanitizer, with `faults` the one that runs on a drive that fails. Only what is older than its sources is built. CXX and CXXFLAGS are honoured.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
if [ $# -lt 1 ]; then
  echo "usage: build.sh OUT [plugin|tests|sanitized|faults|all]" >&2
  exit 2
fi
mkdir -p "$1"
out=$(cd "$1" && pwd)
what=${2:-all}

if [ ! -e "$out/libimbrex.so" ] || [ ! -e "$out/imbrex.h" ]; then
  echo "build.sh: $out has no libimbrex.so and imbrex.h; run \`make build\` at the top of the repository" >&2
  exit 1
fi
include="-I$out -I$here/include -I$here/src -I$here/../common ${ROCKSDB_INCLUDE:+-isystem $ROCKSDB_INCLUDE}"
. "$here/../common/build.sh"

# The plug-in proper is built for one version of RocksDB and named after it; the loader finds it.
rocksdb_version

plugin() {
  plugin=librocksdb_imbrex-$version.so
  if stale "$out/$plugin" || stale "$out/librocksdb_imbrex.so"; then
    compile "$out/obj/rocksdb" "$(echo "$here"/src/*.cc)"
    # nodelete: RocksDB keeps a pointer to the factory, so the library must stay even after dlclose.
    # shellcheck disable=SC2086
    $cxx -shared "-Wl,-soname,$plugin" -Wl,-z,nodelete -Wl,-z,defs "-Wl,-rpath,\$ORIGIN" $objects -L"$out" -limbrex -lrocksdb \
      -o "$out/$plugin.new"
    mv "$out/$plugin.new" "$out/$plugin"
    compile "$out/obj/loader" "$here/loader/loader.cc"
    # shellcheck disable=SC2086
    $cxx -shared -Wl,-soname,librocksdb_imbrex.so -Wl,-z,nodelete -Wl,-z,defs $objects -ldl -o "$out/librocksdb_imbrex.so.new"
    mv "$out/librocksdb_imbrex.so.new" "$out/librocksdb_imbrex.so"
  fi
}

# sources_of PROGRAM: its files in tests/; those of fs_contract_test are several.
sources_of() {
  case $1 in
    fs_contract_test) echo "$here"/tests/fs_contract_test.cc "$here"/tests/contract_*.cc "$common"/contract/registry.cc ;;
    rocks_faults) echo "$here"/tests/rocks_fault*.cc "$here"/tests/rocks_works.cc "$common"/faults/*.cc ;;
    rocks_crash) echo "$here"/tests/rocks_crash.cc "$here"/tests/crash_*.cc "$common"/crash/crash_*.cc ;;
    *) echo "$here/tests/$1".cc ;;
  esac
}

# Two libraries that stand for other versions of RocksDB.
others() {
  mkdir -p "$out/obj"
  stale "$out/obj/librocksdb_other.so" || stale "$out/obj/librocksdb_old.so" || return 0
  # shellcheck disable=SC2086
  $cxx $flags -fPIC -shared "$here/tests/other_rocksdb.cc" -o "$out/obj/librocksdb_old.so"
  # shellcheck disable=SC2086
  $cxx $flags -fPIC -shared '-DOTHER_VERSION="99.1"' "$here/tests/other_rocksdb.cc" -o "$out/obj/librocksdb_other.so"
}

tests() {
  plugin
  others
  echo '#include "imbrex.h"' | ${CC:-cc} -std=c11 -Wall -Wextra -Werror -pedantic -fsyntax-only -I"$out" -x c -
  for program in fs_contract_test rocks_crash apt_lists rocksdb_driven; do
    if stale "$out/$program"; then
      # shellcheck disable=SC2046
      compile "$out/obj/$program" "$(sources_of $program)" "-I$common/crash" "-I$common/contract" $(flags_of $program)
      # shellcheck disable=SC2086
      $cxx $objects -Wl,--no-as-needed "-Wl,-rpath,\$ORIGIN" -L"$out" -lrocksdb_imbrex -limbrex -lrocksdb \
        -lpthread -o "$out/$program.new"
      mv "$out/$program.new" "$out/$program"
    fi
  done
  # RocksDB alone, to compare with.
  if stale "$out/rocksdb_bench"; then
    compile "$out/obj/rocksdb_bench" "$(sources_of rocksdb_bench)"
    # shellcheck disable=SC2086
    $cxx $objects -lrocksdb -lpthread -o "$out/rocksdb_bench.new"
    mv "$out/rocksdb_bench.new" "$out/rocksdb_bench"
  fi
}

# The plug-in is compiled into the program: a sanitizer sees only what it instrumented.
sanitized() {
  tests
  program=$out/fs_contract_test_sanitized
  stale "$program" || return 0
  # shellcheck disable=SC2086
  compile "$out/obj/sanitized" "$(echo "$here"/src/*.cc) $(sources_of fs_contract_test) $here/tests/linked_in.cc" "-I$common/contract" $quick $sanitizers
  # shellcheck disable=SC2086
  $cxx $sanitizers $objects "-Wl,-rpath,\$ORIGIN" -L"$out" -limbrex -lrocksdb -lpthread -ldl \
    -o "$program.new"
  mv "$program.new" "$program"
}

# The plug-in is compiled into the program, which has the C API from libimbrex_faults.so.
faults() {
  program=$out/rocks_faults
  faulty_library
  stale "$program" || [ "$faulty" -nt "$program" ] || return 0
  # shellcheck disable=SC2086
  compile "$out/obj/rocks_faults" "$(echo "$here"/src/*.cc) $(sources_of rocks_faults) $here/tests/linked_in.cc" "-I$common/faults" $quick
  # shellcheck disable=SC2086
  $cxx $objects "-Wl,-rpath,\$ORIGIN/faults" "-Wl,-rpath,\$ORIGIN" -L"$out" -L"$out/faults" -limbrex_faults -lrocksdb -lpthread -o "$program.new"
  mv "$program.new" "$program"
}

case $what in
  plugin | tests | sanitized | faults) "$what" ;;
  all)
    plugin
    tests
    sanitized
    ;;
  *)
    echo "build.sh: unknown target $what; use plugin, tests, sanitized, faults or all" >&2
    exit 2
    ;;
esac
