"""Asks an OSD for what a file says, and writes down what it answers. librados.rs makes the file, and reads the answers.

librados.py CONF POOL DIRECTORY
"""
import sys
import zlib

import rados

conf, pool, directory = sys.argv[1:4]
cluster = rados.Rados(conffile=conf)
cluster.connect(timeout=20)
io = cluster.open_ioctx(pool)
blob = open(directory + '/blob', 'rb').read()
objects = 8
snaps = {}


def data(at, length):
    return blob[at:at + length]


def with_op(name, act):
    with rados.WriteOpCtx() as op:
        act(op)
        io.operate_write_op(op, name)


def crc(pairs):
    return ','.join('%s=%08x' % (key, zlib.crc32(value)) for key, value in sorted(pairs))


def looks(name):
    """One line of all that an object has."""
    try:
        size = io.stat(name)[0]
        content = io.read(name, size + 10)
        with rados.ReadOpCtx() as op:
            found, _ = io.get_omap_vals(op, '', '', 1000)
            io.operate_read_op(op, name)
            omap = list(found)
        return '%d %08x [%s] [%s]' % (len(content), zlib.crc32(content), crc(io.get_xattrs(name)), crc(omap))
    except rados.ObjectNotFound:
        return 'none'


def look(out):
    for snap in [None] + sorted(snaps):
        # CEPH_NOSNAP is the head.
        io.set_read(io.lookup_snap('s%d' % snap).snap_id if snap else (1 << 64) - 2)
        for n in range(objects):
            print('  %s %d %s' % (snap or 'head', n, looks('o%d' % n)), file=out)
    io.set_read((1 << 64) - 2)


def ask(what, name, n):
    if what == 'write':
        io.write(name, data(n[1], n[2]), n[0])
    elif what == 'append':
        io.append(name, data(n[1], n[2]))
    elif what == 'full':
        io.write_full(name, data(n[1], n[2]))
    elif what == 'truncate':
        io.trunc(name, n[0])
    elif what == 'zero':
        # python3-rados 16.2 hands the two on in the other order.
        with_op(name, lambda op: op.zero(n[2], n[0]))
    elif what == 'remove':
        io.remove_object(name)
    elif what == 'set':
        io.set_xattr(name, 'a%d' % n[0], data(n[1], n[2]))
    elif what == 'unset':
        io.rm_xattr(name, 'a%d' % n[0])
    elif what == 'pairs':
        with_op(name, lambda op: io.set_omap(op, tuple('k%02d' % (n[0] + i) for i in range(5)), (data(n[1], n[2]),) * 5))
    elif what == 'unpair':
        with_op(name, lambda op: io.remove_omap_keys(op, ('k%02d' % n[0],)))
    elif what == 'clear':
        with_op(name, io.clear_omap)
    elif what == 'snapshot':
        io.create_snap('s%d' % n[0])
        snaps[n[0]] = 1
    elif what == 'forget':
        io.remove_snap('s%d' % n[0])
        del snaps[n[0]]
    elif what == 'back':
        io.snap_rollback(name, 's%d' % n[0])
    else:
        raise ValueError(what)


with open(directory + '/answers', 'w') as out:
    for line in open(directory + '/asks'):
        what, *numbers = line.split()
        if what == 'look':
            print('look', file=out)
            look(out)
            continue
        numbers = [int(n) for n in numbers]
        try:
            ask(what, 'o%d' % numbers[0], numbers[1:])
            print('done', file=out)
        except rados.ObjectNotFound:
            print('none', file=out)
io.close()
cluster.shutdown()
