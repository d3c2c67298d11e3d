"""EC2 instances: what a launch needs, its request, how they are found, and why they ended."""
