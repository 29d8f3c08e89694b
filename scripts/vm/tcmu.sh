# Sourced by the parts that want a drive which outlives the VM: an HM-SMR disk of tcmu-runner, whose backing file lies on a
# file system in the VM's memory, which is a file of the host (scripts/test-kernel). What the drive has acknowledged is in that
# file at once (DAX, no page cache in between), so it is there however the VM dies. Sets DISK.

tcmu=$BUILD_DIR/vm/tcmu
libs=/usr/lib/x86_64-linux-gnu
mkdir -p /run/pmem
mount -t ext4 -o dax=always /dev/pmem0 /run/pmem || echo "vm: no /dev/pmem0"

# tcmu-runner wants to see its kernel module, which is only in the VM's first root; the host's files are at /host there.
outside() { chroot /proc/1/root "$@"; }
outside /bin/busybox mkdir -p /etc /run
outside /bin/busybox cp -r "/host$tcmu/etc/tcmu" /etc/

core=/sys/kernel/config/target/core/user_0/zbc
port=/sys/kernel/config/target/loopback/naa.5001405000000001/tpgt_1
options=model-HM/lba-4096/zsize-16/conv-8/open-14@
# With options it makes the drive anew.
[ ! -e /run/pmem/drive ] || options=
mkdir -p $core
# The kernel does not wait for an answer of tcmu-runner, which finds the device when it begins.
echo "dev_config=zbc/$options/host/run/pmem/drive,dev_size=$((768 << 20)),hw_block_size=4096,nl_reply_supported=-1" >$core/control
echo imbrex-test-drive >$core/wwn/vpd_unit_serial
echo 1 >$core/enable
wait_for /dev/uio0
outside "/host$libs/ld-linux-x86-64.so.2" --library-path "/host$libs:/host/lib/x86_64-linux-gnu:/host$tcmu$libs:/host$tcmu/lib/x86_64-linux-gnu" \
    "/host$tcmu/usr/bin/tcmu-runner" --handler-path="/host$tcmu$libs/tcmu-runner" --tcmu-log-dir=/host/run >/run/tcmu.out 2>&1 &
wait_for /run/pmem/drive
mkdir -p $port/lun/lun_0
echo naa.5001405000000002 >$port/nexus
ln -s $core $port/lun/lun_0/zbc
DISK=$(scsi_disk LIO-ORG)
case $DISK in /dev/no-*) cat /run/tcmu.out /run/tcmu-runner.log ;; esac
