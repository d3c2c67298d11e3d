"""Entry point of `python3 -m kedge_agent VERB`: called once at boot to install the launchers."""

import sys

from .main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
