"""Access to an AWS account: credentials, sessions, regions and zones, and which regions are closed to it."""
