"""Sends the job's code to machines: reads the tree, packs what changed, and streams it.

A `sync-code` without changes uses all these modules, so they import only small modules at the top.
"""
