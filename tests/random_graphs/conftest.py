"""Lets the tests import the generator, which is a package beside them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
