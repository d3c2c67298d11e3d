"""IAM in the box: what a call needs (needs), who asks (callers), and whether their policies allow it (evaluation).

Moto checks signatures; its own evaluation ignores conditions, boundaries and most resources, and isn't used.
"""
