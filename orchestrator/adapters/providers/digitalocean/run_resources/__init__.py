"""A run's resources besides droplets: SSH key, tag, firewall, project, and their record."""
