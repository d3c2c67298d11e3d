"""Droplets as machines: hosting, metadata, meter."""
