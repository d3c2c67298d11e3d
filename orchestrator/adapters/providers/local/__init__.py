"""Machines on this computer: each its own sshd, folder, process tree and deadline. No root needed.

provider   what kedge calls; lays a machine's folder out (layout) and starts its init
init       the machine's daemon: boots it (boot, sshd), keeps it (services), and ends it (ending)
processes  how a machine's processes are found, and how they are ended

`init`, `ending` and what they import are standard library and psutil only: they start with each machine.
"""
