"""What every part of the agent uses: errors, files, paths, wire format, state and processes."""
