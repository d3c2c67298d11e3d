"""Run kedge as `python -m orchestrator.cli`."""

from orchestrator.cli.program import main

main()
