"""Machines on this computer: each has its own sshd, folder, process tree and deadline. No root needed.

provider   implements the port: lays out a machine's folder (layout) and starts its init
init       the machine's daemon: boots it (boot, sshd), keeps it (services), and ends it (ending)
moving     moves the deadline that init holds
processes  finds and ends a machine's processes

`init`, `ending` and their imports are standard library and psutil only: each machine starts them.
"""
