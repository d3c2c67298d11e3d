"""Runs the command: supervisor, runner, environment, restarts, and requests to stop."""
