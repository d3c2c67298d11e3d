"""The bundled trainer under a name that a user's code doesn't have: `python -m kedge_trainer`.

Where a folder or file called `trainer` comes first on `sys.path`, `python -m trainer` runs that one, and so it should.
`python -m kedge_trainer` runs ours: in its process the name `trainer` is ours, and everything else of the user's folder
can still be imported. The trainer is inside this package (so kedge sends it along if the user's code has a `trainer`)
or beside it.
"""

import sys
from importlib import import_module
from pathlib import Path

NAME = "trainer"


def load_trainer() -> None:
    """Import the bundled trainer as `trainer`, wherever on `sys.path` others of that name are.

    Raises:
        ModuleNotFoundError: it is neither inside this package nor beside it.
    """
    here = Path(__file__).resolve().parent
    home = next((str(each) for each in (here, here.parent) if (each / NAME / "base" / "recipe.py").is_file()), None)
    if home is None:
        raise ModuleNotFoundError(f"kedge's trainer is neither in {here} nor in {here.parent}: install kedge again")
    # First only for this import: its modules are then found through it, and everything else as before.
    sys.path.insert(0, home)
    try:
        import_module(NAME)
    finally:
        sys.path.remove(home)
