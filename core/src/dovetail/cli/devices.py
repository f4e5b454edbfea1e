"""`dovetail devices`: the devices that can be opened, and why others cannot."""

from dovetail.cli._command import command as make_command
from dovetail.cli._devices import describe_devices, print_devices
from dovetail.cli._models import make_core
from dovetail.cli._output import print_json, print_table


@make_command("dovetail devices --json")
def command(as_json: bool) -> None:
    """List the devices that models can run on.

    The best one comes first. A device whose plugin is installed but cannot be used is listed with the reason.

    \b
    JSON: {"devices": [{"name", "type", "kind", "full_name", "priority",
                        "provider", "details": {}}],
           "missing": [{"plugin", "device", "state", "reason", "hint"}]}
    """
    described = describe_devices(make_core())
    if as_json:
        print_json(described)
        return
    print_devices(described)
    details = [(d["name"], key, value) for d in described["devices"] for key, value in d["details"].items()]
    if details:
        print_table("Details", ("device", "property", "value"), details)
