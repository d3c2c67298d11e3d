"""The entry point: the console script, and `python -m orchestrator.cli`."""

import gc
import sys


def main() -> None:
    """Run the program; a shell's request for completion is answered without loading it."""
    if sys.argv[1:2] == ["__complete"]:
        from orchestrator.cli import completing

        completing.answer(sys.argv[2:])
        return
    # Imported modules stay in use. Garbage collection during imports would take a twentieth of a short command.
    gc.disable()
    try:
        from orchestrator.cli import program
    except ImportError as err:
        from orchestrator.cli.drawing.checkup import complain_of_installation

        sys.exit(complain_of_installation(err))
    gc.freeze()
    gc.enable()
    program.main()


if __name__ == "__main__":
    main()
