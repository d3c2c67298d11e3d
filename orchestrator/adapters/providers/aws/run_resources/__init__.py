"""A run's resources at AWS besides machines: its role, security groups, and the schedules of deadlines."""
