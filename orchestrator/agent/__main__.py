"""`python3 -m kedge_agent VERB`, as whatever boots the machine calls it once to install the launchers."""

import sys

from .main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
