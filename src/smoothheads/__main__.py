import sys

from smoothheads.cli import main

sys.exit(main())
