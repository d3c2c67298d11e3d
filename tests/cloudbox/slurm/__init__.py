"""A Slurm cluster on this computer: Debian's munged, slurmctld and two slurmd, as root, on loopback."""
