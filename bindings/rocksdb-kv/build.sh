#!/bin/sh
# Builds librocksdb_kv_imbrex-<version of RocksDB>.so, by which object stores have their metadata in RocksDB, with the system's g++ and librocksdb-dev.
#
#   build.sh OUT [plugin|tests]
#
# OUT must hold imbrex.h (scripts/build puts it there). The library is linked with librocksdb and never with libimbrex: what it calls of the C API it is handed (src/host.h).
# It has the file system of bindings/rocksdb, compiled once more. `tests` builds the program that has a RocksDB of its own beside such a store, for which OUT must hold what
# bindings/rocksdb/build.sh makes, too. Only what is older than its sources is built. CXX and CXXFLAGS are honoured, and ROCKSDB_INCLUDE as there.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
if [ $# -lt 1 ]; then
  echo "usage: build.sh OUT [plugin|tests]" >&2
  exit 2
fi
mkdir -p "$1"
out=$(cd "$1" && pwd)
rocksdb=$here/../rocksdb

if [ ! -e "$out/imbrex.h" ]; then
  echo "build.sh: $out has no imbrex.h; run \`make build\` at the top of the repository" >&2
  exit 1
fi
include="-I$out -I$here/src -I$rocksdb/src -I$here/../common ${ROCKSDB_INCLUDE:+-isystem $ROCKSDB_INCLUDE}"
. "$here/../common/build.sh"

rocksdb_version

plugin() {
  plugin=librocksdb_kv_imbrex-$version.so
  if ! stale "$out/$plugin" && [ -z "$(find "$rocksdb/src" -newer "$out/$plugin" -print -quit)" ]; then
    return 0
  fi
  # All of the file system but its own plug-in's entry. The objects of a source that has changed are not told from others: their headers are elsewhere.
  rm -rf "$out/obj/rocksdb-kv"
  shared=
  for source in "$rocksdb"/src/*.cc; do
    [ "$(basename "$source")" = plugin.cc ] || shared="$shared $source"
  done
  compile "$out/obj/rocksdb-kv" "$(echo "$here"/src/*.cc) $shared" -include "$here/src/host.h"
  # nodelete: RocksDB has threads and statics that stay. defs: nothing of libimbrex is left to the dynamic linker.
  # shellcheck disable=SC2086
  $cxx -shared "-Wl,-soname,$plugin" -Wl,-z,nodelete -Wl,-z,defs "-Wl,--version-script=$here/src/exports.map" "-Wl,-rpath,\$ORIGIN" $objects -L"$out" -lrocksdb -o "$out/$plugin.new"
  mv "$out/$plugin.new" "$out/$plugin"
}

# A program with a RocksDB of its own, and one of the store beside it.
tests() {
  plugin
  stale "$out/rocksdb_beside" || return 0
  compile "$out/obj/rocksdb_beside" "$here/tests/rocksdb_beside.cc" $quick
  # shellcheck disable=SC2086
  $cxx $objects -Wl,--no-as-needed "-Wl,-rpath,\$ORIGIN" -L"$out" -lrocksdb_imbrex -limbrex -lrocksdb -lpthread -ldl -o "$out/rocksdb_beside.new"
  mv "$out/rocksdb_beside.new" "$out/rocksdb_beside"
}

case ${2:-plugin} in
  plugin) plugin ;;
  tests) tests ;;
  *)
    echo "build.sh: unknown target $2; use plugin or tests" >&2
    exit 2
    ;;
esac
