"""Sends code and data to machines and fetches results: with rsync, as code streams, and through the object store."""
