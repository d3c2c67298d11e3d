"""The life of a data volume, the same at every cloud: found or made, attached, marked, and ended as its run says.

A cloud answers through `model.VolumeApi`; the modules here decide, wait and retry. They need that port and a clock,
and know nothing of machines' records.
"""
