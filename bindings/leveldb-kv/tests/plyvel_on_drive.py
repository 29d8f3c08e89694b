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
_opened = set()


class DB(plyvel.DB):
    def __init__(self, name, *args, **more):
        if isinstance(name, str):
            _opened.add(name)
        super().__init__(name, *args, **more)


def _mkdtemp(*_args, **_more):
    return f"{ROOT}plyvel.{os.getpid()}.{next(_numbers)}"


def _on_host(function):
    def call(path, *args, **more):
        if not str(path).startswith(ROOT):
            function(path, *args, **more)

    return call


def _rmtree(path, *args, **more):
    if not str(path).startswith(ROOT):
        _rmtree_of_host(path, *args, **more)
        return
    for name in sorted(_opened):
        if name == path or name.startswith(path + "/"):
            plyvel.destroy_db(name)
            _opened.discard(name)


_rmtree_of_host = shutil.rmtree
plyvel.DB = DB
tempfile.mkdtemp = _mkdtemp
shutil.rmtree = _rmtree
os.makedirs = _on_host(os.makedirs)
