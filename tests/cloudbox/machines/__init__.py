"""Machines for the clouds of the box: systemd-nspawn containers with addresses, disks and GPUs."""
