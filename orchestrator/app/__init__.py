"""The composition root and the use cases, by topic like the command line's tasks.

root.py        the `App`: settings -> adapters -> world; which run a command means
launching.py   job files and launches (loads pydantic)
exposure.py    which credentials of the user's a job's folders hold
acting.py      plans for a run that is there
syncing.py     code to a machine that is there: quick, so nothing is planned
looking.py     status and cost: quick, so they load neither pydantic nor jinja2, fabric or an SDK
"""
