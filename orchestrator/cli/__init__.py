"""The command line: invoke tasks by topic, and how their answers are drawn. Nothing else prints."""

import gc

# What is imported stays: looking for garbage among it costs a twentieth of a short command. `KedgeProgram.run` looks
# again.
gc.disable()
