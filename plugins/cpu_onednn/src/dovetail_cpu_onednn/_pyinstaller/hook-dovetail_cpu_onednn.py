"""Runs while PyInstaller packs the device: oneDNN's library goes into `lib` of the bundle, where frozen programs look for it."""

from dovetail.device import Unavailable
from dovetail_cpu_onednn.library import load

_found = load()
binaries = [] if isinstance(_found, Unavailable) else [(_found.path, "lib")]
