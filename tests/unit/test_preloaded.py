"""A forked program is like one that was started anew: tests/support/preloaded."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.preloaded.process import ROOT, PreloadedProcess, run
from tests.support.preloaded.request import usable

pytestmark = pytest.mark.skipif(not usable(), reason="no system on which programs are forked")

MIRROR = "tests.support.preloaded.mirror"


def _both(folder: Path, *argv: str, **more: Any) -> list[dict[str, Any]]:
    """What a program sees that was started anew, and what one that was forked."""
    argv = (sys.executable, *argv)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "LETTERS": "ä ö", "EMPTY": ""}
    common = {"cwd": folder, "env": env, "stdin": subprocess.DEVNULL, "timeout": 60, **more}
    seen = []
    for preload in ((), ("json",)):
        done = run(argv, preload=preload, **common)
        assert (done.returncode, done.stderr) == (0, "")
        seen.append(json.loads(done.stdout))
    return seen


@pytest.mark.parametrize("more", [{}, {"start_new_session": True}])
@pytest.mark.parametrize("argv", [["-m", MIRROR], ["-u", "-m", MIRROR], [str(ROOT / f"{MIRROR.replace('.', '/')}.py")]])
def test_a_forked_program_sees_what_one_started_anew_sees(tmp_path: Path, argv: list[str], more: Any) -> None:
    """Command line, environment, folder, parent, session, signals, open files, streams, limits, flags, locale."""
    anew, forked = _both(tmp_path, *argv, "one", "", "zwei drei", **more)
    assert forked == anew
    assert forked["folder"] == str(tmp_path)
    assert forked["parent"] == os.getpid()


def test_it_has_the_permissions_mask_of_the_test(tmp_path: Path) -> None:
    """A test may have set one."""
    before = os.umask(0o027)
    try:
        anew, forked = _both(tmp_path, "-m", MIRROR)
    finally:
        os.umask(before)
    assert forked["umask"] == anew["umask"] == 0o027


def _ending(script: Path, code: str, **more: Any) -> list[tuple[int, str, str]]:
    script.write_text(code)
    argv = [sys.executable, str(script)]
    ended = [run(argv, preload=preload, timeout=60, **more) for preload in ((), ("json",))]
    return [(done.returncode, done.stdout, done.stderr.splitlines()[-1] if done.stderr else "") for done in ended]


@pytest.mark.parametrize(
    ("code", "ends"),
    [
        ("print('x')", (0, "x\n", "")),
        ("raise SystemExit(7)", (7, "", "")),
        ("raise SystemExit('words')", (1, "", "words")),
        ("raise ValueError('why')", (1, "", "ValueError: why")),
        ("import sys; sys.exit(300)", (44, "", "")),
        ("import atexit; atexit.register(print, 'last'); raise SystemExit(3)", (3, "last\n", "")),
        ("import threading; threading.Timer(.2, lambda: print('late')).start()", (0, "late\n", "")),
        ("import os; os.abort()", (-signal.SIGABRT, "", "")),
        ("import os; os.kill(os.getpid(), 2)", (-signal.SIGINT, "", "KeyboardInterrupt")),
        ("import sys; print(sys.stdin.read().upper())", (0, "", "")),
    ],
)
def test_it_ends_as_one_started_anew_ends(tmp_path: Path, code: str, ends: tuple[int, str, str]) -> None:
    """Exit code, signal, last words, threads that still run, functions for the end."""
    anew, forked = _ending(tmp_path / "program.py", code, stdin=subprocess.DEVNULL)
    assert forked == anew
    assert forked == ends or "stdin" in code


def test_it_reads_what_the_test_writes_and_gets_its_signals(tmp_path: Path) -> None:
    """Pipes to both sides, and a handler of its own."""
    script = tmp_path / "program.py"
    script.write_text(
        "import signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
        "print(sys.stdin.readline().upper(), flush=True)\n"
        "signal.pause()\n"
    )
    pipe = subprocess.PIPE
    with PreloadedProcess(
        [sys.executable, str(script)], preload=["json"], stdin=pipe, stdout=pipe, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None  # noqa: PT018 - for the types
        process.stdin.write("words\n")
        process.stdin.flush()
        assert process.stdout.readline() == "WORDS\n"
        assert process.poll() is None
        process.terminate()
        assert process.wait(timeout=60) == 9


def test_one_that_is_killed_is_gone(tmp_path: Path) -> None:
    """It dies itself, not something that stands for it."""
    script = tmp_path / "program.py"
    script.write_text("import signal\nprint('there', flush=True)\nsignal.pause()\n")
    with PreloadedProcess(
        [sys.executable, str(script)], preload=["json"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        process.kill()
        assert process.wait(timeout=60) == -signal.SIGKILL
        assert not Path(f"/proc/{process.pid}").exists()


def test_one_that_takes_too_long_says_where(tmp_path: Path) -> None:
    """As pytest does, whose faulthandler is on."""
    (tmp_path / "mine.py").write_text("import faulthandler, time\nfaulthandler.enable()\ntime.sleep(60)\n")
    with pytest.raises(subprocess.TimeoutExpired) as late:
        run([sys.executable, "-m", "mine"], preload=["json"], timeout=2, cwd=tmp_path)
    assert 'mine.py", line 3 in <module>' in late.value.__notes__[0]


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    """As by subprocess."""
    with pytest.raises(FileNotFoundError):
        run([sys.executable, "-m", MIRROR], preload=["json"], timeout=60, cwd=tmp_path / "nowhere")


def test_a_server_that_can_not_import_is_no_silent_start_anew() -> None:
    """All programs would be slow, and nobody would see why."""
    with pytest.raises(RuntimeError, match="standard error"):
        run([sys.executable, "-m", MIRROR], preload=["no_such_module"], timeout=60)


def test_a_program_with_another_python_path_is_started_anew(tmp_path: Path) -> None:
    """What the interpreter reads when it starts can't be changed later: there is another server for it."""
    (tmp_path / "mine.py").write_text("import sys\nprint(sys.path[1])\n")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = run([sys.executable, "-m", "mine"], preload=["json"], timeout=60, env=env, cwd="/")
    assert done.stdout == f"{tmp_path}\n"
