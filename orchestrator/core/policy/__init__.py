"""Decides what to reap, which runs to recover and which commands hang: pure functions."""
