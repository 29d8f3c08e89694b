#!/bin/sh
# Builds the plug-in and its test programs with the system's g++ and libleveldb-dev.
#
#   build.sh OUT [plugin|tests|sanitized|faults|all]
#
# OUT must hold libimbrex.so, which leads to libimbrex.so.N, and imbrex.h (scripts/build puts them there). It receives libleveldb_imbrex.so, which loads
# libleveldb_imbrex-<version of LevelDB>.so, which finds libimbrex.so.N beside itself; and with `tests` the test programs, with `sanitized`
# those that run under AddressSanitizer and UndefinedBehaviorSanitizer. Only what is older than its sources is built. CXX and CXXFLAGS
# are honoured.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
if [ $# -lt 1 ]; then
  echo "usage: build.sh OUT [plugin|tests|sanitized|faults|all]" >&2
  exit 2
fi
mkdir -p "$1"
out=$(cd "$1" && pwd)
what=${2:-all}

. "$here/../common/build.sh"
. "$common/level/build.sh"

plugin() { level_plugin libleveldb_imbrex; }

# sources_of PROGRAM: its files.
sources_of() {
  case $1 in
    env_contract_test) echo "$here"/tests/env_*.cc "$common"/contract/registry.cc ;;
    level_crash) echo "$here"/tests/level_crash.cc "$common"/crash/crash_*.cc ;;
    *) echo "$here/tests/$1".cc ;;
  esac
}

# Libraries that stand for other LevelDBs.
others() {
  mkdir -p "$out/obj"
  stale "$out/obj/libleveldb_inside.so" || return 0
  # -fsemantic-interposition is the compiler's default, and what makes them ask the dynamic linker for their own function.
  for kind in "old " "other -DOTHER_MAJOR=99 -DOTHER_MINOR=1" "inside -DOTHER_MAJOR=${version%%.*} -DOTHER_MINOR=${version##*.}"; do
    # shellcheck disable=SC2086
    $cxx $flags -fPIC -shared "$here/tests/other_leveldb.cc" ${kind#* } -o "$out/obj/libleveldb_${kind%% *}.so"
  done
}

tests() {
  plugin
  others
  for program in env_contract_test level_crash leveldb_bench leveldb_driven; do
    if stale "$out/$program"; then
      # shellcheck disable=SC2046
      compile "$out/obj/$program" "$(sources_of $program)" "-I$common/crash" "-I$common/contract" $(flags_of $program)
      # The plug-in before LevelDB, so that leveldb::Env::Default() is its.
      # shellcheck disable=SC2086
      $cxx $objects "-Wl,-rpath,\$ORIGIN" -L"$out" -lleveldb_imbrex -limbrex -lleveldb -lpthread -o "$out/$program.new"
      mv "$out/$program.new" "$out/$program"
    fi
  done
}

# The plug-in is compiled into the program: a sanitizer sees only what it instrumented.
sanitized() {
  tests
  program=$out/env_contract_test_sanitized
  stale "$program" || return 0
  # shellcheck disable=SC2086
  compile "$out/obj/level_sanitized" "$plugin_sources $(sources_of env_contract_test) $here/tests/linked_in.cc" "-I$common/contract" $quick $sanitizers
  # shellcheck disable=SC2086
  $cxx $sanitizers $objects "-Wl,-rpath,\$ORIGIN" -L"$out" -limbrex -lleveldb -lpthread -ldl -o "$program.new"
  mv "$program.new" "$program"
}

# The plug-in is compiled into the program, which has the C API from libimbrex_faults.so.
faults() {
  program=$out/level_faults
  faulty_library
  stale "$program" || [ "$faulty" -nt "$program" ] || return 0
  # shellcheck disable=SC2086
  compile "$out/obj/level_faults" "$plugin_sources $here/tests/level_faults.cc $(echo "$common"/faults/*.cc) $here/tests/linked_in.cc" "-I$common/faults" $quick
  # shellcheck disable=SC2086
  $cxx $objects "-Wl,-rpath,\$ORIGIN/faults" -L"$out/faults" -limbrex_faults -lleveldb -lpthread -o "$program.new"
  mv "$program.new" "$program"
}

case $what in
  plugin | tests | sanitized | faults) "$what" ;;
  all) sanitized ;;
  *)
    echo "build.sh: unknown target $what; use plugin, tests, sanitized, faults or all" >&2
    exit 2
    ;;
esac
