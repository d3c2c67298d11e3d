"""Finds and lists job files, and decides which are trusted. Loads nothing heavy."""
