"""Crash-safe creation and deletion of machines at any cloud: the record is on the disk before a request is sent."""
