"""The machine's boot: launchers, boot phases, burn-in, and the new SSH host key."""
