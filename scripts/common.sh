# Sourced by the other scripts: where things are, and how to say what happens.
# After it, the working directory is the root of the repository.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
ROOT=$PWD

# rustup's own place first: a distribution's older cargo must not win.
PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"

TARGET_DIR=${CARGO_TARGET_DIR:-$ROOT/target}
BUILD_DIR=${BUILD_DIR:-$ROOT/build}

# What is installed, for cargo. Whoever builds a crate beside it names it too: for other packages cargo chooses other
# features of what lies below them, and would build all of that again.
INSTALLED=(-p imbrex-cli -p imbrex-capi)

say() { printf '== %s\n' "$*"; }
warn() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }
die() {
    warn "$*"
    exit 1
}

# count_line FILE: prints "<passed> <failed>" summed over every line of the file that counts tests, be it cargo's
# ("test result: ok. 3 passed; 0 failed; …") or ours ("3 passed, 0 failed").
count_line() {
    awk '{ for (i = 2; i <= NF; i++) {
               if ($i ~ /^passed[;,]?$/ && $(i-1) ~ /^[0-9]+$/) p += $(i-1)
               if ($i ~ /^failed[;,]?$/ && $(i-1) ~ /^[0-9]+$/) f += $(i-1)
           } } END { print p + 0, f + 0 }' <(grep -E '^(test result: .*[0-9]+ passed; [0-9]+ failed;|[0-9]+ passed, [0-9]+ failed$)' "$1" || true)
}
