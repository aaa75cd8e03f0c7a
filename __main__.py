"""The command line where its script is not on the path: `python -m hemiola COMMAND`."""

import sys

from hemiola.api.cli import main

if __name__ == "__main__":
    sys.exit(main())
