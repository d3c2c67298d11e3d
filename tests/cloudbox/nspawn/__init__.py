"""systemd-nspawn machines: their root folders, disks, control groups and keeper processes. Knows no cloud."""
