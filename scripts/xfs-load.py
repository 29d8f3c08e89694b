"""Makes objects on a file system as Ceph's NewStore did, so many at once, and prints what that took. `imbrex bench run store-ceph` starts it.

xfs-load.py DIRECTORY METADATA

An object is a file, which is written and fsynced, and then a value of METADATA bytes in a LevelDB beside the files, put and synced. It is made when both are on the drive.
Prints "ready", and then does what lines of its standard input say, until that ends:

  SIZE AT-ONCE SECONDS OBJECTS PREFIX   makes objects of SIZE bytes until the time is over, or so many

Prints "begin", waits for a line, and prints a line of JSON: seconds until the last one has ended, and of each the second it ended in and the milliseconds it took.
"""
import itertools
import json
import os
import sys
import threading
import time

try:
    import plyvel
except ImportError:
    sys.exit('%s has no plyvel; install python3-plyvel, and LevelDB comes with it' % sys.executable)

where, metadata = sys.argv[1], int(sys.argv[2])
files = os.path.join(where, 'objects')
os.mkdir(files)
database = plyvel.DB(os.path.join(where, 'db'), create_if_missing=True)
value = os.urandom(metadata)


def make(name, data):
    file = os.open(os.path.join(files, name), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    if os.write(file, data) != len(data):
        raise OSError('a file was not written whole')
    os.fsync(file)
    os.close(file)
    database.put(name.encode(), value, sync=True)


def load(size, at_once, seconds, objects, prefix):
    noise, numbers = os.urandom(size), itertools.count()
    ended, failed = [], []

    def client():
        try:
            while not failed:
                since = time.monotonic()
                if since - begun >= seconds:
                    return
                # The interpreter's lock makes that one step.
                n = next(numbers)
                if n >= objects:
                    return
                make('%s_object%d' % (prefix, n), n.to_bytes(8, 'little') + noise[8:])
                now = time.monotonic()
                ended.append((now - begun, (now - since) * 1e3))
        except Exception as error:
            failed.append(error)

    clients = [threading.Thread(target=client) for _ in range(at_once)]
    print('begin', flush=True)
    sys.stdin.readline()
    begun = time.monotonic()
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    took = time.monotonic() - begun
    if failed:
        sys.exit('an object cannot be made: %s' % failed[0])
    for n in range(len(ended)):
        name = '%s_object%d' % (prefix, n)
        if os.stat(os.path.join(files, name)).st_size != size or database.get(name.encode()) != value:
            sys.exit('%s is not there as it was made' % name)
    print(json.dumps({'seconds': took, 'ended': [(round(at, 4), round(ms, 4)) for at, ms in ended]}), flush=True)


print('ready', flush=True)
for line in iter(sys.stdin.readline, ''):
    words = line.split()
    load(int(words[0]), int(words[1]), float(words[2]), int(words[3]), words[4])
