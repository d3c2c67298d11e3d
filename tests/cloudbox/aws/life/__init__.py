"""Instances as machines: life cycle, identity, metadata, disks, schedules, meter."""
