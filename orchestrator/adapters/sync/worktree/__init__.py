"""Decides which files of a folder are its code: as git does, but without running the repository's own configuration."""
