"""Parsers of a job file's values: names, paths, limits, addresses, requirements."""
