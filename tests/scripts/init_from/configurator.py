"""Sets the variables of the script that runs this, from the command line. It is executed, not imported."""

import ast
import sys

for argument in sys.argv[1:]:
    key, _, text = argument.removeprefix("--").partition("=")
    if key not in globals():
        raise ValueError(f"there is no variable {key}")
    try:
        globals()[key] = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        globals()[key] = text
    print(f"Overriding: {key} = {globals()[key]}")
