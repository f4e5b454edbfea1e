"""The conformance kit: cases and checks that devices and op packs run against themselves."""

from dovetail.testing.case import Case, passed

__all__ = ["Case", "passed"]
