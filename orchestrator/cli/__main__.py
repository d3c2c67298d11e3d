"""Where kedge starts: the console script, and `python -m orchestrator.cli`."""

import gc


def main() -> None:
    """Run the program."""
    # What is imported stays: looking for garbage among it costs a twentieth of a short command.
    gc.disable()
    from orchestrator.cli import program

    gc.freeze()
    gc.enable()
    program.main()


if __name__ == "__main__":
    main()
