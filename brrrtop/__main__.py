"""`python -m brrrtop`."""

import sys

from brrrtop.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
