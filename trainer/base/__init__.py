"""What every part of the trainer uses: errors, files, settings, the run contract, data and recipes."""
