# Sourced by the build scripts of both LevelDB plug-ins after common/build.sh, with the same variables.

if [ ! -e "$out/libimbrex.so" ] || [ ! -e "$out/imbrex.h" ]; then
  echo "build.sh: $out has no libimbrex.so and imbrex.h; run \`make build\` at the top of the repository" >&2
  exit 1
fi
if [ ! -e /usr/include/leveldb/db.h ] && [ -z "${LEVELDB_INCLUDE:-}" ]; then
  echo "build.sh: LevelDB's headers are missing; install libleveldb-dev, or set LEVELDB_INCLUDE to where they are" >&2
  exit 1
fi
include="-I$out -I$here/include -I$here/src -I$common -I$common/level ${LEVELDB_INCLUDE:+-isystem $LEVELDB_INCLUDE}"
plugin_sources="$(echo "$here"/src/*.cc) $common/level/status.cc $common/level/mismatch.cc"

# level_plugin STEM: builds STEM.so, the loader, and STEM-<version of LevelDB>.so, the plug-in proper, which the loader finds. Sets
# `version`.
level_plugin() {
  # The numbers are constants of the language, not of the preprocessor.
  version=$(sed -n 's/^static const int kM[a-z]*orVersion = \([0-9]*\);$/\1/p' "${LEVELDB_INCLUDE:-/usr/include}/leveldb/db.h" | paste -sd.)
  case $version in
    [0-9]*.[0-9]*) ;;
    *)
      echo "build.sh: cannot tell the version of LevelDB's headers (found '$version'); is libleveldb-dev whole?" >&2
      exit 1
      ;;
  esac
  plugin=$1-$version.so
  if stale "$out/$plugin" || stale "$out/$1.so"; then
    compile "$out/obj/$1" "$plugin_sources"
    # nodelete: LevelDB keeps pointers to what is in there, so the library must stay even after dlclose.
    # shellcheck disable=SC2086
    $cxx -shared "-Wl,-soname,$plugin" -Wl,-z,nodelete -Wl,-z,defs "-Wl,-rpath,\$ORIGIN" $objects -L"$out" -limbrex -lleveldb -ldl \
      -o "$out/$plugin.new"
    mv "$out/$plugin.new" "$out/$plugin"
    compile "$out/obj/$1_loader" "$here/loader/loader.cc $common/level/locate.cc"
    # shellcheck disable=SC2086
    $cxx -shared "-Wl,-soname,$1.so" -Wl,-z,nodelete -Wl,-z,defs $objects -ldl -o "$out/$1.so.new"
    mv "$out/$1.so.new" "$out/$1.so"
  fi
}
