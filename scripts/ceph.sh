# Sourced behind common.sh by scripts that run a monitor and OSDs of Debian's Ceph (scripts/ceph-setup), on 127.0.0.1 only. What they set before:
# `release`, 16.2 or 18.2.
#
# It leaves `ceph`, where that is unpacked, `python`, which can load its libraries, and `work`, a new directory. That and all processes go with the script, however it ends. Where Ceph
# cannot run here, the script ends with 3 and one line "not run: …". What a script may set before it starts the monitor:
store=filestore  # what an OSD keeps its objects in: filestore or bluestore
osds=1           # how many OSDs there are
osd=             # directory of the first OSD's data; empty: one in $work. Those of the others end with .1, .2, …
journal_size=256 # MiB of FileStore's journal, which stands in that directory
settings=        # more lines of the configuration
lasts=600        # seconds after which a process of `begins` ends by itself; 0: when the script is gone

cannot() {
    echo "not run: scripts/$(basename "$0"): $*"
    exit 3
}
code=0
ceph=$(scripts/ceph-setup "$release") || code=$?
[ $code = 0 ] || {
    echo "$ceph"
    exit $code
}
libraries=$ceph/usr/lib/x86_64-linux-gnu:$ceph/usr/lib/x86_64-linux-gnu/ceph:$ceph/lib/x86_64-linux-gnu
work=$(mktemp -d "${TMPDIR:-/tmp}/imbrex-ceph.XXXXXX")
# What stands before a program of Ceph's, or $python.
ours=(env "CEPH_CONF=$work/ceph.conf")
loader=$ceph/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2
if [ -x "$loader" ]; then
    # It was built for a later C library than this machine's, and has it beside it.
    python=$(echo "$ceph"/usr/bin/python3.[0-9]*)
    ours+=("PYTHONHOME=$ceph/usr" "$loader" --library-path "$libraries")
else
    python=/usr/bin/python3
    ours+=("LD_LIBRARY_PATH=$libraries" "PYTHONPATH=$ceph/usr/lib/python3/dist-packages")
fi
with() { "${ours[@]}" "$@"; }
with "$ceph/usr/bin/ceph-osd" --version >/dev/null 2>&1 || {
    rm -rf "$work"
    cannot "the programs of Ceph do not start here"
}

# Processes that run, each with a group of its own.
declare -A running=()
# begins NAME COMMAND…
begins() {
    local name=$1 guard=(setpriv --pdeathsig KILL --)
    shift
    [ "$lasts" = 0 ] || guard=(timeout -k 5 "$lasts")
    setsid "${guard[@]}" "${ours[@]}" "$@" >"$work/log/$name" 2>&1 &
    running[$name]=$!
}
# ends NAME [SIGNAL]
ends() {
    [ -n "${running[$1]:-}" ] || return 0
    kill "-${2:-TERM}" -- "-${running[$1]}" 2>/dev/null || true
    wait "${running[$1]}" 2>/dev/null || true
    unset "running[$1]"
}
finish() {
    for name in "${!running[@]}"; do ends "$name" KILL; done
    for at in "$work"/fuse/*; do ! mountpoint -q "$at" || umount -l "$at" || true; done
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 143' TERM INT HUP

# until_ SECONDS COMMAND…: waits until it succeeds.
until_() {
    local tries=$(($1 * 5))
    shift
    for ((; tries > 0; tries--)); do
        "$@" >/dev/null 2>&1 && return 0
        sleep 0.2
    done
    return 1
}
command_() { timeout 20 "${ours[@]}" "$python" "$ceph/usr/bin/ceph" -c "$work/ceph.conf" "$@"; }
rados() { timeout 60 "${ours[@]}" "$ceph/usr/bin/rados" -c "$work/ceph.conf" "$@"; }
rbd() { timeout 60 "${ours[@]}" "$ceph/usr/bin/rbd" -c "$work/ceph.conf" "$@"; }

# data_of NUMBER: directory of an OSD's data.
data_of() { [ "$1" = 0 ] && echo "$osd" || echo "$osd.$1"; }

configured() {
    local port number
    port=$(/usr/bin/python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
    fsid=$(cat /proc/sys/kernel/random/uuid)
    monitor="[v2:127.0.0.1:$port]"
    cat >"$work/ceph.conf" <<CONF
[global]
fsid = $fsid
mon_host = v2:127.0.0.1:$port
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_autoscale_mode = off
mon_allow_pool_size_one = true
osd_crush_chooseleaf_type = 0
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
ms_bind_ipv6 = false
run_dir = $work/run
pid_file = $work/run/\$name.pid
admin_socket = $work/run/\$name.asok
log_file = $work/log/\$name.log
log_to_stderr = false
keyring = $work/keyring
plugin_dir = $ceph/usr/lib/x86_64-linux-gnu/ceph
erasure_code_dir = $ceph/usr/lib/x86_64-linux-gnu/ceph/erasure-code
osd_class_dir = $ceph/usr/lib/x86_64-linux-gnu/rados-classes
osd_objectstore = $store
osd_journal_size = $journal_size
osd_max_object_name_len = 256
osd_max_object_namespace_len = 64
mon_data = $work/mon
mon_data_avail_crit = 1
$settings
CONF
    for ((number = 0; number < osds; number++)); do
        printf '[osd.%s]\nosd_data = %s\nosd_journal = %s/journal\n' "$number" "$(data_of "$number")" "$(data_of "$number")" >>"$work/ceph.conf"
    done
}

monitor_runs() {
    osd=${osd:-$work/osd}
    mkdir -p "$work"/{run,log,mon}
    configured
    with "$ceph/usr/bin/ceph-authtool" --create-keyring "$work/keyring" --gen-key -n mon. --cap mon 'allow *'
    with "$ceph/usr/bin/ceph-authtool" "$work/keyring" --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *'
    with "$ceph/usr/bin/monmaptool" --create --clobber --fsid "$fsid" --addv a "$monitor" "$work/monmap"
    with "$ceph/usr/bin/ceph-mon" -c "$work/ceph.conf" --mkfs -i a --monmap "$work/monmap" --keyring "$work/keyring"
    begins mon "$ceph/usr/bin/ceph-mon" -c "$work/ceph.conf" -i a -f
    local uuid number
    for ((number = 0; number < osds; number++)); do
        uuid=$(cat /proc/sys/kernel/random/uuid)
        mkdir -p "$(data_of "$number")"
        until_ 20 command_ osd new "$uuid" "$number" &&
            with "$ceph/usr/bin/ceph-osd" -c "$work/ceph.conf" -i "$number" --osd-uuid "$uuid" --mkfs || return 1
    done
}
are_up() { [ "$(command_ osd dump | grep -c '^osd\.[0-9]* up')" = "$osds" ]; }
osds_run() {
    local number
    for ((number = 0; number < osds; number++)); do begins "osd.$number" "$ceph/usr/bin/ceph-osd" -c "$work/ceph.conf" -i "$number" -f; done
    until_ 40 are_up
}
# osds_end [SIGNAL]
osds_end() {
    local number
    for ((number = 0; number < osds; number++)); do ends "osd.$number" "$@"; done
}
# pool NAME GROUPS
pool() { command_ osd pool create "$1" "$2" "$2" replicated && command_ osd pool set "$1" size 1 --yes-i-really-mean-it; }
