"""Stands before the real torch of the images' Python: answers kedge's probe, and is the real one to everybody else.

Machines lay it over `torch/__init__.py`. No machine of the box has a GPU that the real torch would see, so that the
answer to `torch_check.py probe` is known, and loading torch for it would be a third of what a machine computes.
KEDGE_TESTS_START_ANEW=1 has all machines ask the real one; `tests/agent/test_probed_torch.py` compares the two answers.
"""

import sys
from pathlib import Path
from types import SimpleNamespace

REAL = "/usr/share/kedge-box/torch_init.py"
"""Where a machine has the file that this one stands before."""

if sys.argv[0].endswith("/torch_check.py") and sys.argv[1:] == ["probe"]:
    from torch import version

    __version__ = version.__version__
    cuda = SimpleNamespace(is_available=lambda: False)
elif __name__ == "torch":
    exec(compile(Path(REAL).read_text(), __file__, "exec"))
