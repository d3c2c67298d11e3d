"""The agent: runs on the machine. Standard library only, Python 3.10 or newer; it imports nothing else of kedge.

It is sent as an archive that holds this folder as `kedge_agent/`, so imports inside are relative.
"""
