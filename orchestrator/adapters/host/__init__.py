"""This computer: its files, locks, clock, settings, Pythons and timers, and the files that ship with kedge."""
