"""The composition root and the use cases, by topic, like the tasks of the command line.

root.py        the `App`: settings -> adapters -> world; which run a command means
world.py       makes the engine's `World` for one provider
launch/        job files, launches, resumes and recoveries (loads pydantic)
acting.py      plans for an existing run
booting.py     waits for a machine that is still booting
results.py     where results go on this computer, and what was left behind in them
syncing.py     sends code to an existing machine: quick, because nothing has to be planned
looking.py     status and cost: quick, because they load neither pydantic, jinja2, fabric nor an SDK
reaping.py     surveys all providers and ends what runs have left
checking.py    what `kedge doctor` looks at
account.py     sets up and removes what kedge needs once in an account
selftest/      a run's whole life on the cheapest machine, with probes
"""
