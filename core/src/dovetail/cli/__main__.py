"""`python -m dovetail.cli` is the command `dovetail`."""

from dovetail.cli import main

main()
