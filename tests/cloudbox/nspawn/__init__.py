"""systemd-nspawn machines: their root folders, disks, control groups and keeper. Knows no cloud."""
