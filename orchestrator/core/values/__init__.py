"""Small value types and their rules: money, disks, networks, printable names, credentials."""
