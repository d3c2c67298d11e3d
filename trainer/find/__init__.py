"""`find-lr` and `find-batch`: measure good settings on this machine."""
