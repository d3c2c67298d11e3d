"""Wraps the real torch of the images' Python: it answers kedge's probe itself, and otherwise loads the real torch.

Machines mount it over `torch/__init__.py`. No machine of the box has a GPU that the real torch would see, so the answer
to `torch_check.py probe` is known, and loading torch for it would take a third of a machine's CPU time. With
KEDGE_TESTS_START_ANEW=1 all machines ask the real torch; `tests/agent/test_probed_torch.py` compares both answers.
"""

import sys
from pathlib import Path
from types import SimpleNamespace

REAL = "/usr/share/kedge-box/torch_init.py"
"""Where a machine has the file that this one replaces."""

if sys.argv[0].endswith("/torch_check.py") and sys.argv[1:] == ["probe"]:
    from torch import version

    __version__ = version.__version__
    cuda = SimpleNamespace(is_available=lambda: False)
elif __name__ == "torch":
    exec(compile(Path(REAL).read_text(), __file__, "exec"))
