#!/bin/sh
# Builds nbdkit_imbrex.so, the nbdkit plug-in that serves images, with the system's gcc and nbdkit-plugin-dev.
#
#   build.sh OUT
#
# OUT must hold libimbrex.so, which leads to libimbrex.so.N, and imbrex.h (scripts/build puts them there). The plug-in finds libimbrex.so.N beside itself. CC and CFLAGS are
# honoured.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
if [ $# -ne 1 ]; then
  echo "usage: build.sh OUT" >&2
  exit 2
fi
out=$(cd "$1" && pwd)
plugin=$out/nbdkit_imbrex.so
if [ ! -e "$plugin" ] || [ -n "$(find "$here" "$out/imbrex.h" -newer "$plugin" \( -name '*.c' -o -name imbrex.h -o -name build.sh \) -print -quit)" ]; then
  # shellcheck disable=SC2086
  ${CC:-gcc} -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -fvisibility=hidden -fPIC -shared ${CFLAGS:--O2 -g} "-I$out" "$here/plugin.c" \
    "-Wl,-rpath,\$ORIGIN" "-L$out" -limbrex -o "$plugin.new"
  mv "$plugin.new" "$plugin"
fi
