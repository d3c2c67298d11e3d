"""Use cases that launch a run, change it, or give it another machine."""
