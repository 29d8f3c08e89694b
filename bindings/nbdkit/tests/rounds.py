"""Images under kill -9 and loss of power: what was acknowledged outlives the process, what was flushed outlives the power.

    rounds.py IMBREX DIR ROUNDS [SEED [OPTION]]      OPTION of the URI counts when the store is formatted, as metadata=rocksdb

One client writes, discards, flushes, and takes snapshots now and then. In half of the rounds the server is killed at a random moment, in the others the drive loses its power as well. The image
must then be what the first so many operations made of it, and at least those that were promised. The last line is "N passed, N failed".
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time

import nbd

SIZE = 24 << 20
GRAIN = 4096


def content(number, length):
    word = (number * 0x9E3779B97F4A7C15 + 1 & (1 << 64) - 1).to_bytes(8, "little")
    return (word * (length // 8 + 1))[:length]


class Round:
    def __init__(self, imbrex, directory, rng):
        self.imbrex, self.directory, self.rng = imbrex, directory, rng
        self.drive = os.path.join(directory, "rounds.img")
        self.socket = os.path.join(directory, "rounds.sock")
        self.server = None

    def run(self, *arguments):
        return subprocess.run([self.imbrex, *arguments], check=True, capture_output=True, text=True).stdout

    def serve(self):
        self.server = subprocess.Popen(
            [self.imbrex, "image", "serve", self.drive, "--socket", self.socket], stderr=subprocess.PIPE
        )
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            client = nbd.NBD()
            client.set_export_name("disk")
            try:
                client.connect_unix(self.socket)
                return client
            except nbd.Error:
                if self.server.poll() is not None:
                    raise SystemExit(f"the server ended: {self.server.stderr.read().decode()}")
                time.sleep(0.01)
        raise SystemExit("nobody serves after a minute")

    def kill(self):
        self.server.send_signal(signal.SIGKILL)
        self.server.wait()

    def operation(self, number):
        """What comes next: its kind, and where."""
        kind = self.rng.choices(["write", "zero", "flush", "snapshot", "fua"], [70, 12, 8, 1, 4])[0]
        start = self.rng.randrange(SIZE // GRAIN) * GRAIN
        most = self.rng.choice([GRAIN, 4 * GRAIN, 300 << 10, 9 << 20 if kind == "zero" else 1 << 20])
        length = min(self.rng.randrange(1, most // GRAIN + 1) * GRAIN, SIZE - start)
        if kind in ("write", "fua") and self.rng.random() < 0.2:
            start, length = start + self.rng.randrange(GRAIN), max(1, length - self.rng.randrange(GRAIN) - GRAIN)
            length = min(length, SIZE - start)
        return kind, number, start, length

    def perform(self, client, operation):
        kind, number, start, length = operation
        if kind in ("write", "fua"):
            client.pwrite(content(number, length), start, nbd.CMD_FLAG_FUA if kind == "fua" else 0)
        elif kind == "zero":
            client.trim(length, start)
        elif kind == "flush":
            client.flush()
        else:
            self.run("image", "snap", self.drive, f"disk@s{number}")


def apply(image, operation):
    kind, number, start, length = operation
    if kind in ("write", "fua"):
        image[start : start + length] = content(number, length)
    elif kind == "zero":
        image[start : start + length] = bytes(length)


def read_all(client):
    found = bytearray()
    while len(found) < SIZE:
        found += client.pread(min(4 << 20, SIZE - len(found)), len(found))
    return found


def main():
    imbrex, directory, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    rng = random.Random(seed)
    here = Round(imbrex, directory, rng)
    here.run("drive", "create", here.drive, "--profile", "tiny", "--capacity", "2G")
    here.run("store", "format", f"imbrex://{here.drive}?{sys.argv[5]}" if len(sys.argv) > 5 else here.drive)
    here.run("image", "create", here.drive, "disk", str(SIZE))
    image, number, failed, totals = bytearray(SIZE), 0, 0, [0, 0, 0]
    for n in range(rounds):
        power = n % 2 == 1
        client = here.serve()
        begun, acknowledged, durable = [], 0, 0
        timer = threading.Timer(rng.uniform(0.02, 0.6), here.kill)
        timer.start()
        try:
            while True:
                number += 1
                operation = here.operation(number)
                begun.append(operation)
                here.perform(client, operation)
                acknowledged = len(begun)
                if operation[0] in ("flush", "snapshot", "fua"):
                    durable = acknowledged
        except (nbd.Error, subprocess.CalledProcessError):
            pass
        timer.join()
        here.server.stderr.close()
        if power:
            here.run("drive", "power-loss", here.drive, "--seed", str(rng.randrange(1 << 30)))
        least = durable if power else acknowledged
        client = here.serve()
        found, expected, right = read_all(client), bytearray(image), None
        for done in range(len(begun) + 1):
            if done > 0:
                apply(expected, begun[done - 1])
            if done >= least and expected == found:
                right = done
                break
        if right is None:
            failed += 1
            what = "power" if power else "kill"
            print(f"round {n} ({what}), seed {seed}: the image is none of those after {least} to {len(begun)} operations")
        totals[0] += len(begun)
        totals[1] += acknowledged
        totals[2] += 0 if right is None else len(begun) - right
        image = found
        client.shutdown()
        here.server.terminate()
        here.server.wait()
        here.server.stderr.close()
        # Snapshots keep what nobody looks at; a few are enough.
        import json

        snapshots = json.loads(here.run("image", "ls", here.drive, "--json"))["images"][0]["snapshots"]
        for snapshot in snapshots[:-2]:
            here.run("image", "rm", here.drive, f"disk@{snapshot['name']}")
    problems = here.run("store", "check", here.drive, "--deep")
    print(f"{totals[0]} operations begun, {totals[1]} acknowledged, {totals[2]} not there in the end; {problems.strip()}")
    print(f"{rounds - failed} passed, {failed} failed")
    sys.exit(failed > 0)


main()
