"""Input from outside is read or refused: the corpus, and the same mutations of it each time.

Longer runs, which search for unforeseen inputs, are `python -m tests.fuzz`; their findings join the corpus.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz.running import bounded_memory, seeded, try_in, working_folder
from tests.fuzz.target import CORPUS, BrokenPromiseError, Target
from tests.fuzz.targets import NAMES, load


@pytest.mark.parametrize("name", NAMES)
def test_no_input_breaks_a_promise(name: str, tmp_path: Path) -> None:
    """Each target's docstring lists its promises; the inputs are the same each time."""
    target = load(name)
    with working_folder() as folder, bounded_memory():
        for data in (*target.seeds(), *seeded(target, count=target.examples)):
            _try(target, data, folder, tmp_path / "finding")


@pytest.mark.parametrize("cloud", ["do", "aws"])
def test_good_answers_are_accepted(cloud: str, tmp_path: Path) -> None:
    """If every answer were refused, none would break a promise."""
    from tests.fuzz.targets import answers

    for call in ("machines", "describe", "sweep", "guard"):
        assert answers.ask(cloud, call, tmp_path, None)


def test_every_target_has_a_corpus_and_no_corpus_lacks_its_target() -> None:
    """An attack in a folder without a target would never be tried."""
    assert {folder.name for folder in CORPUS.iterdir()} == set(NAMES)
    assert all(any((CORPUS / name).iterdir()) for name in NAMES)


@pytest.mark.parametrize(
    "run",
    [
        lambda data, _folder: data[5],
        lambda _data, _folder: bytearray(1 << 40),
        lambda data, _folder: int(data),
        lambda _data, folder: (folder.parent / "outside").write_text("x"),
    ],
)
def test_a_broken_promise_is_found(run: Callable[[bytes, Path], None], tmp_path: Path) -> None:
    """A harness that can't fail proves nothing: another exception, endless memory, a file outside."""
    from tests.fuzz.trees import guarded

    def watched(data: bytes, folder: Path) -> None:
        with guarded(folder):
            run(data, folder)

    target = Target(name="broken", run=watched, allowed=(KeyboardInterrupt,))  # type: ignore[arg-type]
    with bounded_memory(), pytest.raises(BrokenPromiseError):
        try_in(target, b"x", tmp_path)


def _try(target: Target, data: bytes, folder: Path, kept: Path) -> None:
    try:
        try_in(target, data, folder)
    except BrokenPromiseError as err:
        kept.write_bytes(data)
        pytest.fail(f"{err}\nthe input is {kept}; mend it, and put it into {CORPUS / target.name}")
