# Sourced by the scripts that measure file systems in a VM, after common.sh: the VM, with the newer kernel unless IMBREX_VM_KERNEL says otherwise (the stable one has no
# Zoned XFS), a directory $work that goes when the script ends, and in it hints.so (hints.c). Ends the script with 3 where this machine cannot have the VM; one line on stderr says why.
export IMBREX_VM_KERNEL=${IMBREX_VM_KERNEL:-newer}
# What is measured takes the time of one VM, alone.
export IMBREX_VM_THREAD=${IMBREX_VM_THREAD:-multi}
# BUILD_DIR may be an installed one; the VM stands beside it.
VM_DIR=$BUILD_DIR/vm
mkdir -p "$VM_DIR"
code=0
scripts/vm/prepare 2>"$VM_DIR/prepare.log" >&2 || code=$?
if [ $code != 0 ]; then
    tail -n1 "$VM_DIR/prepare.log" >&2
    exit $code
fi
work=$(mktemp -d "$VM_DIR/measure.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'kill $(jobs -p) 2>/dev/null; exit 143' TERM INT HUP
cc -O2 -shared -fPIC -o "$work/hints.so" scripts/vm/hints.c
# Of Zoned XFS. Its cleaner keeps room to fill that many again: on a disk of 20 TB 128 of some 75,000, and on a device of a few hundred zones a quarter
# of them unless it is told.
OPEN_ZONES=8
