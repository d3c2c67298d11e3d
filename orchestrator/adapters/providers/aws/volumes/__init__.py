"""EBS volumes: EC2's requests and answers about them, and the snapshots that new ones are filled from.

adapters/cloud/volumes decides about a volume's life.
"""
