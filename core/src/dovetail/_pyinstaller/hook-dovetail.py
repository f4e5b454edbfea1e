"""Runs while PyInstaller packs a program that imports dovetail: all installed plugins, which no `import` statement names.

A plugin is its distribution's metadata, which has the entry points, and all modules and data files of its package. A package with
native libraries elsewhere has a hook file of its own.
"""

from PyInstaller.utils.hooks import collect_all, copy_metadata

from dovetail.plugins.discovery import index
from dovetail.plugins.records import HOST

_plugins = index()
datas, binaries, hiddenimports = [], [], []
for _distribution in sorted({HOST, *(record.distribution for record in _plugins)}):
    datas += copy_metadata(_distribution)
for _package in sorted({HOST, *(record.value.partition(":")[0].partition(".")[0] for record in _plugins)}):
    _datas, _binaries, _modules = collect_all(_package, include_py_files=False)
    datas += _datas
    binaries += _binaries
    hiddenimports += _modules
