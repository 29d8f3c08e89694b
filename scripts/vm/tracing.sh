# Sourced by parts of scripts/vm/guest: what the kernel asks of block devices and when it is answered, from its own trace, into $out, a directory of the host.
tracing=/sys/kernel/tracing
mkdir -p $out
mount -t 9p -o trans=virtio,version=9p2000.L,msize=1048576 out $out
mountpoint -q $tracing || mount -t tracefs none $tracing
echo 0 >$tracing/tracing_on
# That of the programs, so that it can be told when of theirs it was.
echo mono >$tracing/trace_clock
echo 65536 >$tracing/buffer_size_kb
for event in issue complete; do
    echo 1 >$tracing/events/block/block_rq_$event/enable
done

# traced NAME END COMMAND…: runs it; leaves what it prints in NAME.END, and the trace in NAME.trace.
traced() {
    local name=$1 end=$2
    shift 2
    echo >$tracing/trace
    echo 1 >$tracing/tracing_on
    "$@" >"$out/$name.$end" || status=1
    echo 0 >$tracing/tracing_on
    grep ' block_rq_' $tracing/trace >"$out/$name.trace"
    # What does not fit into the kernel's memory for it, it drops.
    if grep -hE '^(overrun|dropped events): [1-9]' $tracing/per_cpu/cpu*/stats; then
        rm "$out/$name.trace"
        status=1
    fi
    echo "vm: $name: $(wc -l <"$out/$name.trace") lines of trace, $SECONDS s"
}
