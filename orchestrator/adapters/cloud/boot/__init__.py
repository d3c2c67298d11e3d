"""The first boot of a rented machine: cloud-config, user-data and its check, and the bundle sent over SSH."""
