"""Does to an OSD what clients do, at random: bytes, attributes and omaps of objects, with snapshots, going back to them, and what takes them away.

load.py CONF POOL SEED OPERATIONS [GROUPS]: GROUPS is how many groups the pool is divided into before.
"""
import json
import random
import sys
import time

import rados

conf, pool, seed, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
rng = random.Random(seed)
cluster = rados.Rados(conffile=conf)
cluster.connect(timeout=20)
io = cluster.open_ioctx(pool)
snaps, done = [], {}
if len(sys.argv) > 5:
    # What the manager tells the monitor, one step after the other. There is no manager here.
    for var in 'pg_num_actual', 'pgp_num_actual':
        command = {'prefix': 'osd pool set', 'pool': pool, 'var': var, 'val': sys.argv[5]}
        code, _, why = cluster.mon_command(json.dumps(command), b'')
        assert code == 0, why
    time.sleep(3)


def data(most):
    """Half of it can be compressed."""
    length = rng.choice([1, 511, 4096, rng.randrange(most) + 1])
    return rng.randbytes(length) if rng.random() < 0.5 else (b'%d ' % rng.randrange(1000)) * (length // 4 + 1)


def pairs():
    return {'key %d' % rng.randrange(60): rng.randbytes(rng.randrange(300)) for _ in range(5)}


def write_op(name, act):
    with rados.WriteOpCtx() as op:
        act(op)
        io.operate_write_op(op, name)


def snapshot(name):
    if len(snaps) < 6 and rng.random() < 0.3:
        io.create_snap('s%d' % len(done))
        snaps.append('s%d' % len(done))
        done[len(done)] = 1


def back(name):
    if snaps and rng.random() < 0.5:
        io.snap_rollback(name, rng.choice(snaps))


def forget(name):
    if len(snaps) > 3:
        io.remove_snap(snaps.pop(rng.randrange(len(snaps))))


ACTS = [
    (8, lambda name: io.write(name, data(70000), rng.randrange(1 << 19))),
    (4, lambda name: io.append(name, data(9000))),
    (4, lambda name: io.write_full(name, data(200000))),
    (2, lambda name: io.trunc(name, rng.randrange(1 << 19))),
    (2, lambda name: write_op(name, lambda op: op.zero(rng.randrange(1 << 18), rng.randrange(1 << 17)))),
    (3, lambda name: io.remove_object(name)),
    (4, lambda name: io.set_xattr(name, 'a%d' % rng.randrange(5), rng.randbytes(rng.randrange(1, 600)))),
    (2, lambda name: io.rm_xattr(name, 'a%d' % rng.randrange(5))),
    (4, lambda name: write_op(name, lambda op: io.set_omap(op, tuple(p := pairs()), tuple(p.values())))),
    (2, lambda name: write_op(name, lambda op: io.remove_omap_keys(op, tuple(pairs())))),
    (1, lambda name: write_op(name, lambda op: io.clear_omap(op))),
    (1, lambda name: write_op(name, lambda op: io.remove_omap_range2(op, 'key 1', 'key 4'))),
    (1, lambda name: write_op(name, lambda op: op.new(1) if rng.random() < 0.5 else op.remove())),
    (2, snapshot),
    (2, back),
    (1, forget),
]
for n in range(count):
    act = rng.choices([act for _, act in ACTS], [weight for weight, _ in ACTS])[0]
    try:
        act('object %d' % rng.randrange(25))
    except (rados.ObjectNotFound, rados.NoData, rados.ObjectExists):
        # What the object has not; an OSD says so, too.
        pass
io.close()
cluster.shutdown()
