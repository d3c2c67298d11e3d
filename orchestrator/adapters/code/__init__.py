"""The job's code: which files it is, what they hold, and how they reach a machine.

Everything here is on the path of a `sync-code` that finds nothing to do: what it imports at the top is small.
"""
