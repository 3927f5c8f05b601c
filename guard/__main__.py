"""``python -m guard`` is the command ``outguard``."""

from guard.cli import main

if __name__ == "__main__":
    main(prog_name="outguard")
