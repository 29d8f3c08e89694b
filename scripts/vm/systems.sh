# Sourced by parts of scripts/vm/guest: file systems for zoned drives, each on a new zoned null_blk.
#
#   bluefs              with the options SYSTEM_BLUEFS behind the drive's name
#   xfs                 Zoned XFS with room for SYSTEM_OPEN open zones
#   xfs-as-it-comes     without that, and without write-lifetime hints, as with Debian's RocksDB
#   f2fs, btrfs

# What a shell's <(…) needs.
[ -e /dev/fd ] || ln -s /proc/self/fd /dev/fd
# RocksDB keeps every table open: 2,000 of 4 MiB on 8 GiB.
ulimit -n 65536

# What a program that failed said: its last complaint, else its last line. db_bench writes its progress over and over in one.
said() {
    local lines
    lines=$(tr '\r' '\n' <"$1" | grep -v '^ *$\|^WARNING: ')
    { grep -i 'error\|assert\|failed' <<<"$lines" || cat <<<"$lines"; } | tail -n1 | cut -c1-300
}

# made SYSTEM DEVICE AT LOG: makes it and mounts it at AT; what programs say goes to LOG. Sets `offered`, the bytes that files may take, and `on`, the
# beginning of db_bench's command line there.
made() {
    local system=$1 device=$2 at=$3 log=$4 options=()
    offered=0
    on=(env "LD_PRELOAD=$SYSTEM_HINTS" db_bench "--db=$at/bench")
    mkdir -p "$at"
    case $system in
        bluefs*)
            on=(env "LD_PRELOAD=$BUILD_DIR/ablation/libimbrex_ablation.so:$BUILD_DIR/librocksdb_imbrex.so" db_bench "--fs_uri=imbrex:///dev/$device?$SYSTEM_BLUEFS" --db=/bench)
            "$BUILD_DIR/imbrex" fs format "/dev/$device" --force >"$log" 2>&1 || return
            offered=$("$BUILD_DIR/imbrex" fs df --json "/dev/$device" | sed -n 's/.*"total": \([0-9]*\).*/\1/p')
            return
            ;;
        xfs*)
            options=(-o "max_open_zones=$SYSTEM_OPEN")
            [ "$system" = xfs ] || options=() on=(db_bench "--db=$at/bench")
            # Without the three variables mkfs.xfs wants 300 MiB of conventional zones, which no device of this size has.
            TEST_DIR=/x TEST_DEV=/y QA_CHECK_FS=1 mkfs.xfs -f "/dev/$device" >"$log" 2>&1 || return
            mount -t xfs "${options[@]}" "/dev/$device" "$at" >"$log" 2>&1 || return
            ;;
        f2fs) { mkfs.f2fs -f -q -m "/dev/$device" && mount -t f2fs "/dev/$device" "$at"; } >"$log" 2>&1 || return ;;
        btrfs) { mkfs.btrfs -f -q -O zoned -m single -d single "/dev/$device" && mount -t btrfs "/dev/$device" "$at"; } >"$log" 2>&1 || return ;;
    esac
    offered=$(df --block-size=1 --output=avail "$at" | tail -n1 | tr -d ' ')
}

# new_device NAME MIB ZONE CONVENTIONAL SETTING=VALUE…: a zoned null_blk. No native zone append, as on an SMR disk: the block layer makes ordinary writes of it.
new_device() {
    local name=$1
    null_blk "$name" zoned=1 size="$2" blocksize=4096 zone_size="$3" zone_nr_conv="$4" zone_append_max_sectors=0 "${@:5}"
    wait_for "/dev/$name"
    echo mq-deadline >"/sys/block/$name/queue/scheduler"
}

# away DEVICE AT
away() {
    ! mountpoint -q "$2" || umount "$2"
    echo 0 >"/sys/kernel/config/nullb/$1/power"
    rmdir "/sys/kernel/config/nullb/$1"
}
