"""core/values/structs.py makes structs in any thread."""

from __future__ import annotations

import subprocess
import sys

from tests.support.preloaded.process import ROOT

_IN_THREADS = """
import sys, threading, types
from orchestrator.core.values.structs import convert, decode_json
sys.setswitchinterval(1e-6)
SOURCE = '''
from typing import Annotated
import msgspec
class Inner(msgspec.Struct):
    x: int
    y: "str | None" = None
class Middle(msgspec.Struct):
    one: "Inner"
    more: "list[Inner]"
    ratio: Annotated[float, msgspec.Meta(ge=0)] = 1.0
class Outer(msgspec.Struct):
    middle: "Middle"
    named: "dict[str, Middle] | None" = None
    last: "tuple[Inner, ...]" = ()
'''
plain = {"middle": {"one": {"x": 1}, "more": [{"x": 1}]}, "last": [{"x": 3}]}
for number in range(150):
    sys.modules["m"] = module = types.ModuleType("m")
    exec(SOURCE, module.__dict__)
    together = threading.Barrier(6)
    found = []
    def decode():
        together.wait()
        found.append(decode_json('{"middle": {"one": {"x": 1}, "more": [{"x": 1}]}, "last": [{"x": 3}]}', module.Outer))
        found.append(convert(plain, module.Outer))
    threads = [threading.Thread(target=decode) for _ in range(6)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert len(found) == 12 and all(each == found[0] for each in found), (number, found)
"""


def test_first_decoding_in_several_threads_does_not_crash() -> None:
    """Called directly, msgspec crashes here."""
    done = subprocess.run(
        [sys.executable, "-c", _IN_THREADS], check=False, cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
