"""The command line: one invoke task for each command, and the drawing of answers. Only this package prints."""
