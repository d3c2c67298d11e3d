"""What a runner needs while its command runs. Nothing here imports modules that take memory (slim.py)."""
