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

case $what in
  plugin | tests | sanitized | suites) "$what" ;;
  all) sanitized ;;
  *)
    echo "build.sh: unknown target $what; use plugin, tests, sanitized, suites or all" >&2
    exit 2
    ;;
esac
