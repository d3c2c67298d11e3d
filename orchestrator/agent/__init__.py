"""What runs on the machine. Standard library only, Python 3.10 or newer; it imports nothing of the rest.

It travels as an archive that holds this folder as `kedge_agent/`, so imports inside are relative.
"""
