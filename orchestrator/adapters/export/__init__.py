"""Renders a job for somebody else's scheduler: AWS Batch, SageMaker or Slurm (`kedge export`).

Everything here is pure, except `code` and `folder`, which read the code and write the files. Nothing is contacted.
"""
