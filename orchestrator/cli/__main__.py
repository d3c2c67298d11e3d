"""Where kedge starts: the console script, and `python -m orchestrator.cli`."""

import gc
import sys


def main() -> None:
    """Run the program, or answer a shell that completes a word: that loads none of it."""
    if sys.argv[1:2] == ["__complete"]:
        from orchestrator.cli import completing

        completing.answer(sys.argv[2:])
        return
    # What is imported stays: looking for garbage among it costs a twentieth of a short command.
    gc.disable()
    try:
        from orchestrator.cli import program
    except ImportError as err:
        from orchestrator.cli.checkup import complain_of_installation

        sys.exit(complain_of_installation(err))
    gc.freeze()
    gc.enable()
    program.main()


if __name__ == "__main__":
    main()
