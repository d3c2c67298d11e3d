"""Builds a core.job.Job from a document, a mode, flags and the laptop's environment."""
