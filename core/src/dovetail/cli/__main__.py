"""`python -m dovetail.cli`: the former name of `python -m dovetail`."""

from dovetail._deprecation import deprecated
from dovetail.cli import main

if __name__ == "__main__":
    # Python shows the warning: it blames __main__.
    deprecated("python -m dovetail.cli", since="0.1", removed_in="0.3", instead="write python -m dovetail", stacklevel=1)
    main()
