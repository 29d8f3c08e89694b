"""Does to an erasure-coded pool what its clients do, several operations at once: most are overwrites of 4 KiB.

erasure.py CONF POOL overwrite SEED OPERATIONS GROUP: then the group of processes is stopped, one OSD's; and a stripe of each object is overwritten, for which nobody waits.
erasure.py CONF POOL read: reads all objects, and so waits until all of the pool can be used.
"""
import os
import random
import signal
import sys
import threading
import time

import rados

conf, pool, what, *rest = sys.argv[1:]
cluster = rados.Rados(conffile=conf)
cluster.connect(timeout=20)
io = cluster.open_ioctx(pool)
BLOCK, STRIPE, AT_ONCE = 4096, 8192, 16


def overwrite(seed, count, group):
    rng = random.Random(seed)
    room, sizes, snaps, failed = threading.Semaphore(AT_ONCE), {}, 0, []

    def done(completion):
        if completion.get_return_value() < 0:
            failed.append(completion.get_return_value())
        room.release()

    def block(name):
        size = sizes.get(name, 0)
        if size < BLOCK:
            return whole(name)
        io.aio_write(name, rng.randbytes(BLOCK), rng.randrange(size // BLOCK) * BLOCK, oncomplete=done)

    def write(name):
        data, at = rng.randbytes(rng.randrange(1, 20000)), rng.randrange(sizes.get(name, 0) + 1)
        sizes[name] = max(sizes.get(name, 0), at + len(data))
        io.aio_write(name, data, at, oncomplete=done)

    def append(name):
        data = rng.randbytes(rng.randrange(1, 9000))
        sizes[name] = sizes.get(name, 0) + len(data)
        io.aio_append(name, data, oncomplete=done)

    def whole(name):
        sizes[name] = rng.randrange(50000, 300000)
        io.aio_write_full(name, rng.randbytes(sizes[name]), oncomplete=done)

    def remove(name):
        if sizes.pop(name, None) is None:
            return whole(name)
        io.aio_remove(name, oncomplete=done)

    acts = [(40, block), (5, write), (4, append), (1, whole), (1, remove)]
    for n in range(count):
        # Before a snapshot all that was asked has ended.
        if n % 100 == 99 and snaps < 3:
            for _ in range(AT_ONCE):
                room.acquire()
            io.create_snap('s%d' % n)
            snaps += 1
            for _ in range(AT_ONCE):
                room.release()
        room.acquire()
        rng.choices([act for _, act in acts], [weight for weight, _ in acts])[0]('object %d' % rng.randrange(20))
    for _ in range(AT_ONCE):
        room.acquire()
    assert not failed, failed
    os.killpg(group, signal.SIGSTOP)
    for name in (name for name, size in sizes.items() if size >= STRIPE):
        io.aio_write(name, rng.randbytes(STRIPE), 0)
    time.sleep(2)
    # Whoever closes the pool waits for the answers.
    os._exit(0)


if what == 'overwrite':
    overwrite(*map(int, rest))
for name in sorted(found.key for found in io.list_objects()):
    io.read(name)
io.close()
cluster.shutdown()
