"""Plans, as pure functions of what is wanted and what was observed."""
