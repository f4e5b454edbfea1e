"""Plugins: found by their entry points without being imported, loaded when something asks for them by name.

`PluginManager` is what the runtime calls; `PluginRecord` is what it knows of one plugin, `PACKS` the kinds of packs, `LISTED` the
kinds that a manifest lists, which is at `manifest_path`, has the text `manifest_text`, and is read by `read_manifest`. `register`
and `temporary` make a module or an object of this process a plugin; `full_name` and `plain_domain` write the names of operators
and of their domains, of which `STANDARD_DOMAIN` is ONNX's. All are imported on first use.
"""

from typing import TYPE_CHECKING

from dovetail._lazy import lazy_names

if TYPE_CHECKING:
    from dovetail.plugins.in_process import register, temporary
    from dovetail.plugins.manager import PluginManager
    from dovetail.plugins.manifest import LISTED, check_manifest, manifest_path, manifest_text, read_manifest
    from dovetail.plugins.records import PACKS, STANDARD_DOMAIN, PluginRecord, full_name, plain_domain
    from dovetail.plugins.selection import parsed_operator

__all__ = [
    "LISTED",
    "PACKS",
    "STANDARD_DOMAIN",
    "PluginManager",
    "PluginRecord",
    "check_manifest",
    "full_name",
    "manifest_path",
    "manifest_text",
    "parsed_operator",
    "plain_domain",
    "read_manifest",
    "register",
    "temporary",
]

__getattr__ = lazy_names(
    __name__,
    {
        "dovetail.plugins.in_process": ("register", "temporary"),
        "dovetail.plugins.manager": ("PluginManager",),
        "dovetail.plugins.manifest": ("LISTED", "check_manifest", "manifest_path", "manifest_text", "read_manifest"),
        "dovetail.plugins.records": ("PACKS", "STANDARD_DOMAIN", "PluginRecord", "full_name", "plain_domain"),
        "dovetail.plugins.selection": ("parsed_operator",),
    },
)
