import sys

from smoothheads.cli import main

if __name__ == "__main__":  # the server's worker processes import this file
    sys.exit(main())
