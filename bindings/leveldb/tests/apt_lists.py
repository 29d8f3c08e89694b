#!/usr/bin/python3
"""Loads every record of a machine's apt package lists into LevelDB and reads all of it back, with Debian's python3-plyvel.

    LD_PRELOAD=build/libleveldb_imbrex.so IMBREX_DRIVE=drive.img apt_lists.py /imbrex/apt FILE...

FILE is plain text as apt keeps it in /var/lib/apt/lists: records of lines, an empty line between two. A record's key is its package,
version and architecture, and its number, so that no two are the same. Nothing here knows of drives: with a path that is not under
/imbrex/ the database is on the host's file system. The program ends with 0 only if a new opening of the database gives back every byte.
"""

import sys
import time

try:
    import plyvel
except ImportError:
    sys.exit(f"apt_lists.py: {sys.executable} has no plyvel; install python3-plyvel and use /usr/bin/python3")

BATCH = 1000


def records(files):
    number = 0
    for name in files:
        with open(name, "rb") as file:
            for text in file.read().split(b"\n\n"):
                text = text.strip(b"\n")
                if not text:
                    continue
                fields = dict(line.split(b": ", 1) for line in text.split(b"\n") if b": " in line and not line.startswith(b" "))
                key = b"/".join(fields.get(field, b"") for field in (b"Package", b"Version", b"Architecture"))
                yield key + b"/%08d" % number, text
                number += 1


def main():
    if len(sys.argv) < 3:
        sys.exit("usage: apt_lists.py DATABASE FILE...")
    path, files = sys.argv[1], sys.argv[2:]
    expected = list(records(files))
    started = time.monotonic()
    # Tables of LevelDB's own size would waste most of a zone each; `imbrex fs advise` says what suits a drive.
    database = plyvel.DB(path, create_if_missing=True, error_if_exists=True, write_buffer_size=64 << 20, max_file_size=240 << 20)
    for first in range(0, len(expected), BATCH):
        last = first + BATCH >= len(expected)
        with database.write_batch(sync=last) as batch:
            for key, text in expected[first : first + BATCH]:
                batch.put(key, text)
    database.close()
    loaded = time.monotonic()

    database = plyvel.DB(path, paranoid_checks=True)
    expected.sort()
    found = 0
    for (key, text), (want_key, want_text) in zip(database, expected):
        if key != want_key or text != want_text:
            sys.exit(f"apt_lists.py: record {want_key!r} came back as {key!r}, or with other bytes")
        found += 1
    if found != len(expected) or sum(1 for _ in database.iterator(include_value=False)) != found:
        sys.exit(f"apt_lists.py: {len(expected)} records were written, the database has another number")
    for key, text in expected[:: max(1, len(expected) // 10000)]:
        if database.get(key) != text:
            sys.exit(f"apt_lists.py: record {key!r} reads otherwise by its key than in order")
    database.close()
    size = sum(len(key) + len(text) for key, text in expected)
    print(f"{found} records, {size / 1e6:.1f} MB: written in {loaded - started:.1f} s, every byte read back in {time.monotonic() - loaded:.1f} s")
    if not found:
        sys.exit("apt_lists.py: there was no record in these files")


if __name__ == "__main__":
    main()
