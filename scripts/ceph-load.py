"""Writes or reads objects of an OSD, so many at once, and prints what that took. scripts/ceph-side starts it.

ceph-load.py CONF POOL write|read SIZE AT-ONCE SECONDS OBJECTS PREFIX

`write` makes objects until the time is over, or so many. `read` reads so many, each once, in an order of chance, until the time is over.
Prints "begin", waits for a line, and prints a line of JSON: seconds until the last one has ended, and of each the second it ended in and the milliseconds it took.
"""
import json
import os
import random
import sys
import threading
import time

import rados

conf, pool, what = sys.argv[1:4]
size, at_once, seconds, objects, prefix = int(sys.argv[4]), int(sys.argv[5]), float(sys.argv[6]), int(sys.argv[7]), sys.argv[8]
cluster = rados.Rados(conffile=conf)
cluster.connect(timeout=20)
io = cluster.open_ioctx(pool)
noise = os.urandom(size)
order = list(range(objects))
if what == 'read':
    random.Random(7).shuffle(order)
room = threading.Semaphore(at_once)
ended, failed = [], []


def name(n):
    return '%s_object%d' % (prefix, n)


def done(n, since, good):
    now = time.monotonic()
    if good:
        ended.append((now - begun, (now - since) * 1e3))
    else:
        failed.append(name(n))
    room.release()


def write(n, since):
    # Each has its own bytes at the front, and is known by them.
    data = n.to_bytes(8, 'little') + noise[8:]
    io.aio_write(name(n), data, 0, oncomplete=lambda completion: done(n, since, completion.get_return_value() == 0))


def read(n, since):
    def good(data):
        return data is not None and len(data) == size and data[:8] == n.to_bytes(8, 'little')

    io.aio_read(name(n), size, 0, lambda completion, data: done(n, since, good(data)))


act = write if what == 'write' else read
print('begin', flush=True)
sys.stdin.readline()
begun = time.monotonic()
for n in order:
    room.acquire()
    since = time.monotonic()
    if since - begun >= seconds or failed:
        room.release()
        break
    act(n, since)
for _ in range(at_once):
    room.acquire()
took = time.monotonic() - begun
if failed:
    sys.exit('%d objects could not be %s as they are, the first %s' % (len(failed), what, failed[0]))
print(json.dumps({'seconds': took, 'ended': [(round(at, 4), round(ms, 4)) for at, ms in ended]}), flush=True)
io.close()
cluster.shutdown()
