"""Job files: text from outside in, frozen specifications or one clear refusal out.

document.py   YAML text -> text values with line numbers
models.py     what a job file may say: the pydantic models, from which schema.py makes the editors' schema
validate.py   values -> models; every mistake with its key, its line and the nearest valid one
build.py      models, a mode laid over them, and the laptop -> core.job.Job
flags.py      the command line's flags, laid last
find.py       which file a command means
"""
