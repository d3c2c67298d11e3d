"""Makes plans: pure functions of what is wanted and what was observed.

launch, restart, extend, teardown   the plans; launch also plans every `resume`
to_start                    the actions until the command runs, on a new machine or on an existing one
price                       price, duration, worst case; refuses what exceeds the budget
tasks                       which tasks are started, and on which offers they fit
notes                       what the user should know before confirming
"""
