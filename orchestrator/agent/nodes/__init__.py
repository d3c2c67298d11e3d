"""Several machines that run a task together: their variables, their start at the same time, and their common end."""
