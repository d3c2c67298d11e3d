"""Recipes from anywhere: a file, a module, an installed package; what is told if there is none or it fails."""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer import harness
from tests.trainer.foreign import install_package, write_recipe
from trainer.base.setting import describe_settings
from trainer.base.signals import StopFlag
from trainer.checkpoints.store import load_checkpoint
from trainer.cli import main
from trainer.recipes import find_recipe, list_recipes
from trainer.recipes._loading import load_recipe


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Neither `sys.path` nor the modules stay changed."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith(("kedge_recipe_", "beside_recipe", "mine")):
            del sys.modules[name]


def call(*argv: object) -> int:
    return main([*map(str, argv)], environ={}, stop=StopFlag())


def test_file_trains_with_workers_and_goes_on_after_it_has_moved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What lies beside it is imported, the card has its description, and checkpoints know it by its name alone."""
    recipe, output = write_recipe(tmp_path / "here"), tmp_path / "output"
    assert call(recipe, "--set", "workers=1", "--set", "epochs=1", "--output-dir", output) == 0
    assert "settings: epochs=1 (2), workers=1 (0)" in capsys.readouterr().out
    assert "A line, fitted by a line." in (output / "README.md").read_text()
    assert load_checkpoint(harness.newest_checkpoint(output))["fingerprint"]["recipe"] == "line"
    shutil.move(tmp_path / "here", tmp_path / "there")
    assert call(tmp_path / "there" / "line.py", "--output-dir", output) == 0
    out = capsys.readouterr().out
    assert "resumed from step 2" in out
    assert "settings:" not in out


def test_saved_settings_reproduce_the_run(tmp_path: Path) -> None:
    """OUTPUT/config.toml has all settings, those of files and of --set; with it alone the weights are the same bits."""
    recipe, first, second = write_recipe(tmp_path), tmp_path / "first", tmp_path / "second"
    (tmp_path / "a.toml").write_text("seed = 3\nepochs = 1\n[model]\nwidth = 5\n")
    (tmp_path / "b.toml").write_text("[optimizer]\nlearning_rate = 0.01\n[track]\ntags = ['a']\n")
    files = ("--config", tmp_path / "a.toml", "--config", tmp_path / "b.toml")
    assert call(recipe, *files, "--set", "epochs=2", "--output-dir", first) == 0
    assert "epochs = 2\n" in (first / "config.toml").read_text()
    assert call(recipe, "--config", first / "config.toml", "--output-dir", second) == 0
    harness.assert_same_run(second, first)
    assert (second / "config.toml").read_bytes() == (first / "config.toml").read_bytes()
    assert call(recipe, "--config", first / "config.toml", "--set", "epochs=3", "--output-dir", first) == 0
    assert "epochs = 3\n" in (first / "config.toml").read_text()


def test_module_and_function_are_found_and_the_same_recipe_as_the_file(tmp_path: Path) -> None:
    """`package.module:function`; its last name identifies it, and another function in addition."""
    write_recipe(tmp_path / "mine")
    (tmp_path / "mine" / "__init__.py").write_text("raise AssertionError('listing imports nothing')")
    sys.path[:0] = [str(tmp_path), str(tmp_path / "mine")]
    assert find_recipe("mine.line:recipe").name == find_recipe(str(tmp_path / "mine" / "line.py")).name == "line"
    assert find_recipe("mine.line:wide").name == find_recipe(f"{tmp_path}/mine/line.py:wide").name == "line.wide"
    (tmp_path / "mine" / "__init__.py").write_text("")
    loaded = load_recipe(find_recipe("mine.line:wide"))
    assert loaded.description == "A line, fitted by a wide line."
    assert load_recipe(find_recipe("line:recipe")).description == "A line, fitted by a line."


def test_installed_recipes_are_listed_and_found_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without importing any; a name that the trainer or two packages have is given as module and function instead."""
    write_recipe(tmp_path / "mine")
    (tmp_path / "mine" / "__init__.py").write_text("raise AssertionError('listing imports nothing')")
    install_package(tmp_path, "one", {"line": "mine.line:recipe", "big": "mine.line:wide", "digits": "mine.line:a"})
    install_package(tmp_path, "two", {"big": "mine.none:recipe"})
    sys.path.insert(0, str(tmp_path))
    assert call("recipes", "--json") == 0
    listed = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert listed["line"] == {"name": "line", "origin": "one", "description": "A line, fitted by a line."}
    assert listed["digits"]["origin"] == "built in"
    assert listed["mine.line:wide"]["description"] == "A line, fitted by a wide line."
    assert listed["mine.none:recipe"]["description"] == ""
    assert "big" not in listed
    for command in ("recipes", "--list"):
        assert call(command) == 0
        assert "line              A line, fitted by a line. (one)\n" in capsys.readouterr().out
    assert find_recipe("line").name == "line"
    assert find_recipe("digits").origin == "built in"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (None, ("there is no recipe", "the file doesn't exist")),
        ("x = = 1", ("cannot be imported", "SyntaxError: invalid syntax", "bad.py:1)")),
        ("import json\n\njson.loads('{')", ("cannot be imported", "JSONDecodeError", "bad.py:3)")),
        ("import nonesuch", ("No module named 'nonesuch'", "bad.py:1)", "install nonesuch")),
        ("raise SystemExit('no')", ("cannot be imported", "SystemExit: no", "bad.py:1)")),
        ("def other(): pass", ("has no function recipe", "it has: other")),
        ("recipe = 3", ("failed in recipe()", "'int' object is not callable")),
        ("def recipe():\n    return {}['x']", ("failed in recipe()", "KeyError: 'x'", "bad.py:2)")),
        ("def recipe(): return 3", ("returns no Recipe", "returned <class 'int'>", "trainer.api.Recipe")),
        (
            "from trainer.api import Recipe\ndef recipe(): return Recipe(settings={}, build=print)",
            ("returns no Recipe", "settings of type dict"),
        ),
    ],
)
def test_recipe_that_fails_is_one_clear_error(
    source: str | None, expected: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2; what it was and where in the user's file, without a traceback of ours. Nothing is written."""
    if source is not None:
        (tmp_path / "bad.py").write_text(source)
    for argv in (["bad.py"], ["bad.py", "--help"]):
        assert call(tmp_path / argv[0], *argv[1:], "--output-dir", tmp_path / "output") == 2
        err = capsys.readouterr().err
        for part in expected:
            assert part in err
        assert len(err.splitlines()) == 3
    assert not (tmp_path / "output").exists()


BUILDS = """
from trainer.api import BadRequestError, Recipe, Settings, Workload

def recipe():
    return Recipe(settings=Settings(), build=build)

def build(settings):
    {}
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("open('nonesuch')", ("failed in build", "FileNotFoundError: [Errno 2]", "'nonesuch'", "bad.py:8)")),
        ("import json; json.loads('{')", ("failed in build", "JSONDecodeError", "bad.py:8)", "correct that line")),
        ("raise BadRequestError('no data', why='w', fix='f')", ("error: no data", "why: w", "fix: f")),
        (
            "return Workload(model=lambda: [][0], train_data=[], validation_data=[], loss=None)",
            ("failed in a function of its workload", "IndexError", "bad.py:8)"),
        ),
        ("return 3", ("builds no Workload", "build returned <class 'int'>", "trainer.api.Workload")),
    ],
)
def test_build_that_fails_is_one_clear_error(
    line: str, expected: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2 of every command that builds: the error and the line of the user's file; the recipe's own unchanged."""
    (tmp_path / "bad.py").write_text(BUILDS.format(line))
    for command in ([], ["find-lr"], ["advise"]):
        assert call(*command, tmp_path / "bad.py", "--output-dir", tmp_path / "output") == 2
        err = capsys.readouterr().err
        for part in expected:
            assert part in err
        assert len(err.splitlines()) == 3
    assert not (tmp_path / "output").exists()


def test_network_that_fails_in_build_is_no_mistake_of_the_recipe(tmp_path: Path) -> None:
    """Exit 1 with a traceback: the same command may work later."""
    (tmp_path / "good.py").write_text(BUILDS.format("raise ConnectionError('the server is away')"))
    with pytest.raises(ConnectionError, match="away"):
        call(tmp_path / "good.py", "--output-dir", tmp_path / "output")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("digit", "did you mean python -m trainer digits?"),
        ("nonesuch.module:recipe", "nonesuch is neither in this folder nor installed"),
        ("trainer.nonesuch:recipe", "trainer.nonesuch is neither in this folder nor installed"),
        ("a b:recipe", "a b:recipe names no function"),
        (".:recipe", "names no function"),
        ("./", "it is a folder"),
        ("/dev/null", "its name doesn't end in .py"),
    ],
)
def test_recipe_that_is_not_there_is_one_clear_error(
    text: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2 for every command that takes a recipe."""
    for command in ([], ["find-lr"], ["find-batch"]):
        assert call(*command, text) == 2
        err = capsys.readouterr().err
        assert expected in err
        assert len(err.splitlines()) == 3


def test_file_that_was_given_without_its_ending_is_suggested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`line` for line.py in this folder."""
    write_recipe(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert call("line") == 2
    assert "did you mean python -m trainer ./line.py?" in capsys.readouterr().err


def test_help_of_a_recipe_lists_every_setting_within_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Default, type, bounds and meaning, of its own settings too, as --config and --set make them."""
    recipe = write_recipe(tmp_path)
    monkeypatch.setenv("COLUMNS", "60")
    assert call(recipe, "--help", "--set", "epochs=7") == 0
    out = capsys.readouterr().out
    for each in describe_settings(load_recipe(find_recipe(str(recipe))).settings):
        assert f"  {each.key}=" in out
    assert "  epochs=7 (whole number, at least 1)\n      how often each training sample is seen\n" in out
    assert "  optimizer.name=adamw (adamw | adam | sgd | muon)\n" in out
    assert (
        "\nThe network's size.\n  model.width=4 (whole number, at least 1)\n      neurons of the hidden layer\n" in out
    )
    assert max(map(len, out.splitlines())) <= 60


@pytest.mark.parametrize("name", [each.name for each in list_recipes() if each.origin == "built in"])
def test_every_setting_of_a_built_in_recipe_has_a_meaning(name: str) -> None:
    """For --help."""
    described = describe_settings(load_recipe(find_recipe(name)).settings)
    assert [each.key for each in described if not each.meaning] == []
