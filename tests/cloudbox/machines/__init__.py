"""Machines for the clouds of the box: a fleet of nspawn machines with addresses, disks and GPUs."""
