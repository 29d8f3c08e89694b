"""A pytest plug-in (-p plyvel_on_drive): plyvel's own tests, unchanged, with their databases under /imbrex/.

They make temporary directories, which /imbrex/ has none of: a database needs no directory there. So a temporary directory is a name, and to
remove it is to destroy the databases of that name and behind it."""

import itertools
import os
import shutil
import tempfile

import plyvel

ROOT = "/imbrex/"
_numbers = itertools.count()
_made = set()
_rmtree_of_host = shutil.rmtree
_makedirs_of_host = os.makedirs


def _mkdtemp(*_args, **_more):
    return f"{ROOT}plyvel.{os.getpid()}.{next(_numbers)}"


def _makedirs(path, *args, **more):
    if str(path).startswith(ROOT):
        _made.add(path)
    else:
        _makedirs_of_host(path, *args, **more)


def _rmtree(path, *args, **more):
    if not str(path).startswith(ROOT):
        _rmtree_of_host(path, *args, **more)
        return
    inside = {made for made in _made if made.startswith(path + "/")}
    for name in {path} | inside:
        try:
            plyvel.destroy_db(name)
        except plyvel.Error as error:
            # The comparator of the test is gone; its drive goes, too.
            if "does not know" not in str(error):
                raise
    _made.difference_update(inside)


tempfile.mkdtemp = _mkdtemp
shutil.rmtree = _rmtree
os.makedirs = _makedirs
