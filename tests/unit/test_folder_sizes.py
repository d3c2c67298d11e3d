"""No folder has more modules than a reader takes in at a glance, and no module more lines than one can follow."""

from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST = 16
ROOMS = ("orchestrator", "trainer", "tests/cloudbox", "tests/support")
MOST_LINES = 300
SOURCES = ("orchestrator", "trainer", "kedge_trainer", "tests", "benchmarks", "docs", "infra", "locks")


def test_no_folder_holds_more_than_sixteen_modules() -> None:
    """Folders of tests are exempt; `__init__.py` doesn't count."""
    sizes = Counter(
        path.parent.relative_to(ROOT).as_posix()
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        if path.name != "__init__.py" and not path.name.startswith("test_")
    )
    assert {folder: size for folder, size in sizes.items() if size > MOST} == {}


def test_every_folder_says_what_lives_there() -> None:
    """The docstring of its `__init__.py`."""
    folders = {
        path.parent for room in ROOMS for path in (ROOT / room).rglob("*.py") if not path.name.startswith("test_")
    }
    silent = {
        folder.relative_to(ROOT).as_posix()
        for folder in folders
        if not (init := folder / "__init__.py").exists() or not init.read_text().startswith('"""')
    }
    assert silent == set()


def test_no_module_has_more_than_three_hundred_lines() -> None:
    """Tests included: a longer one has more than one subject."""
    modules = [ROOT / "tasks.py", *(path for source in SOURCES for path in (ROOT / source).rglob("*.py"))]
    lengths = {path.relative_to(ROOT).as_posix(): path.read_bytes().count(b"\n") for path in modules}
    assert {path: lines for path, lines in lengths.items() if lines > MOST_LINES} == {}
