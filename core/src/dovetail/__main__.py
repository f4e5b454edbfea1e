"""`python -m dovetail`: the same as the installed program."""

from dovetail.cli import main

if __name__ == "__main__":
    main()
