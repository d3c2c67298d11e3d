"""Makes plans: pure functions of what is wanted and what was observed.

launch, restart, teardown   the plans; launch also plans every `resume`
to_start                    the actions until the command runs, on a new machine or on an existing one
price                       price, duration, worst case; refuses what exceeds the budget
notes                       what the user should know before confirming
"""
