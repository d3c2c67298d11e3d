"""A run's reports: console, status, metrics, curves, exports, trackers."""
