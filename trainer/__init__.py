"""The trainer: runs recipes on CUDA, ROCm and CPU, in one process or under torchrun. Never imports the orchestrator."""

import sys

PROGRAM = f"python -m {'kedge_trainer' if 'kedge_trainer' in sys.modules else __name__}"
"""How the user started it, for help and advice: `-m trainer` may be another one in that folder."""
