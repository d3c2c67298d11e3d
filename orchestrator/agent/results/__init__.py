"""A run's results: which files count, a checkpoint's progress, upload to the store and restore from it."""
