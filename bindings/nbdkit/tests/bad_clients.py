"""Clients that speak no NBD, or lie: bad_clients.py SOCKET. Nothing of it may end the server."""

import random
import socket
import struct
import sys

import nbd

path = sys.argv[1]
rng = random.Random(5)


def connect():
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(10)
    client.connect(path)
    return client


def handshake(client):
    client.recv(18, socket.MSG_WAITALL)
    client.sendall(struct.pack(">I", 3))


def option(client, number, data, length=None):
    client.sendall(b"IHAVEOPT" + struct.pack(">II", number, len(data) if length is None else length) + data)


# Noise, at once and behind the handshake.
for n in range(30):
    with connect() as client:
        if n % 2:
            handshake(client)
        try:
            client.sendall(rng.randbytes(rng.randrange(1, 5000)))
        except OSError:
            pass
# Options that are as long as can be said, names of every kind.
for length in (0, 1, 4096, 5000, 2**32 - 1):
    with connect() as client:
        handshake(client)
        try:
            option(client, 1, b"x" * min(length, 5000), length)
            client.shutdown(socket.SHUT_WR)
            client.recv(100)
        except OSError:
            pass
# Requests as long as can be said; cut off in the middle of their bytes.
for kind, length, offset in [(0, 2**32 - 1, 0), (1, 2**32 - 1, 0), (4, 2**32 - 1, 0), (6, 2**32 - 1, 2**63), (0, 4096, 2**64 - 1), (1, 4096, 0), (99, 1, 1)]:
    with connect() as client:
        handshake(client)
        option(client, 1, b"disk")
        client.recv(10, socket.MSG_WAITALL)
        try:
            client.sendall(struct.pack(">IHHQQI", 0x25609513, 0, kind, 7, offset, length))
            client.sendall(b"y" * 100)
            client.shutdown(socket.SHUT_WR)
            client.recv(4096)
        except OSError:
            pass
# A client that is lawful finds the image as it was.
client = nbd.NBD()
client.set_export_name("disk")
client.connect_unix(path)
assert client.pread(8 << 20, 0) == bytes(8 << 20), "a client that lied has changed the image"
client.shutdown()
