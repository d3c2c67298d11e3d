"""Measures of quality that several recipes share: pictures, point clouds, volumes, surfaces.

They are functions of arrays or tensors. A recipe makes per-sample metrics or a `SetMetric` of them.
"""
