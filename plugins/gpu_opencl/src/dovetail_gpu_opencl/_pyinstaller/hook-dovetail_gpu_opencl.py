"""Runs while PyInstaller packs the device: of PoCL from pip the libraries and files, which pyopencl opens without an import."""

from importlib.util import find_spec

from PyInstaller.utils.hooks import collect_data_files, collect_dynamic_libs

_pocl = [name for name in ("pyopencl", "pocl_binary_distribution") if find_spec("pocl_binary_distribution")]
datas = [one for name in _pocl for one in collect_data_files(name)]
binaries = [one for name in _pocl for one in collect_dynamic_libs(name)]
