# Sourced by the build scripts of the plug-ins, which set `here` (their directory), `out` and `include`.

common=$here/../common
cxx=${CXX:-g++}
flags="-std=c++17 -fno-rtti -Wall -Wextra -Werror -fvisibility=hidden -fvisibility-inlines-hidden ${CXXFLAGS:--O2 -g}"

# For programs of tests, whatever CXXFLAGS say of optimising: with -O2 -g, or -O1 -g for sanitizers, building them took half as long again.
quick="-O0 -g1"
sanitizers="-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"

# flags_of PROGRAM: those of experiments are timed.
flags_of() {
  case $1 in *_bench | *_driven) ;; *) echo "$quick" ;; esac
}

# stale TARGET: whether it is missing or older than any source, header or script.
stale() {
  [ ! -e "$1" ] || [ -n "$(find "$here" "$common" "$out/imbrex.h" -newer "$1" \( -name '*.cc' -o -name '*.h' -o -name build.sh \) -print -quit)" ]
}

# compile DIR SOURCES FLAGS...: their objects in DIR, all that are out of date at once. Sets `objects`.
compile() {
  dir=$1
  sources=$2
  shift 2
  mkdir -p "$dir"
  newest_header=$(find "$here" "$common" "$out/imbrex.h" \( -name '*.h' -o -name build.sh \) -printf '%T@ %p\n' | sort -n | tail -1 | cut -d' ' -f2-)
  pids=
  objects=
  for source in $sources; do
    object=$dir/$(basename "$source" .cc).o
    objects="$objects $object"
    if [ ! -e "$object" ] || [ "$source" -nt "$object" ] || [ "$newest_header" -nt "$object" ]; then
      # shellcheck disable=SC2086
      { $cxx $flags $include -fPIC "$@" -c "$source" -o "$object.new" && mv "$object.new" "$object"; } &
      pids="$pids $!"
    fi
  done
  for pid in $pids; do
    wait "$pid"
  done
}

# Copies the C API with a drive that fails (cargo build --release -p imbrex-faults) to where only tests find it. Sets `faulty`.
# It has the SONAME of libimbrex.so, which cargo hands down to it, so the programs that are linked with it ask for it by that name.
faulty_library() {
  built=${CARGO_TARGET_DIR:-$here/../../target}/release/libimbrex_faults.so
  faulty=$out/faults/libimbrex_faults.so
  if [ ! -e "$built" ]; then
    echo "build.sh: $built is missing; run \`cargo build --release -p imbrex-faults\`" >&2
    exit 1
  fi
  mkdir -p "$out/faults"
  cmp -s "$built" "$faulty" || { cp "$built" "$faulty.new" && mv "$faulty.new" "$faulty"; }
  soname=$(readelf -d "$faulty" | sed -n 's/.*soname: \[\(.*\)\]/\1/p')
  [ -n "$soname" ] || { echo "build.sh: $faulty has no SONAME, or readelf of binutils is missing" >&2; exit 1; }
  ln -sfn libimbrex_faults.so "$out/faults/$soname"
}

# Sets `version` to that of RocksDB's headers, of ROCKSDB_INCLUDE where that is set. From 11 on they are C++20.
rocksdb_version() {
  if [ ! -e /usr/include/rocksdb/version.h ] && [ -z "${ROCKSDB_INCLUDE:-}" ]; then
    echo "build.sh: RocksDB's headers are missing; install librocksdb-dev, or set ROCKSDB_INCLUDE to where they are" >&2
    exit 1
  fi
  version=$(echo '#include <rocksdb/version.h>
ROCKSDB_MAJOR.ROCKSDB_MINOR' | $cxx $include -E -P -x c++ - | tail -1 | tr -d ' ')
  case $version in
    [0-9]*.[0-9]*) ;;
    *)
      echo "build.sh: cannot tell the version of RocksDB's headers (found '$version'); is librocksdb-dev whole?" >&2
      exit 1
      ;;
  esac
  [ "${version%%.*}" -lt 11 ] || flags="$flags -std=c++20"
}
