"""The job's Python: the image's one or a new environment, its torch, and the virtual environment for `setup`."""
