"""Settings in TOML files, and the file that reproduces a run."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainer.base.config import OptimizerSettings, Settings
from trainer.base.config_file import apply_config, render_changes, render_config, save_config
from trainer.base.errors import BadRequestError
from trainer.base.overrides import apply_overrides
from trainer.base.setting import setting

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSettings:
    """A group in a group."""

    layers: Literal[18, 50] = setting(18, "how many")
    folder: Path = setting(Path("data"), "where")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """A group."""

    part: PartSettings = field(default_factory=PartSettings)
    grösse: float = setting(1.0, "a name that has to be quoted")  # noqa: PLC2401
    sizes: tuple[int, ...] = setting((8, 16), "of the stages")


@dataclass(frozen=True, slots=True, kw_only=True)
class NestedSettings(Settings):
    """All settings of a recipe."""

    model: ModelSettings = field(default_factory=ModelSettings)


def read(text: str, folder: Path) -> NestedSettings:
    (folder / "a.toml").write_text(text, encoding="utf-8")
    return apply_config(NestedSettings(), folder / "a.toml")


def test_tables_are_groups_and_set_wins(tmp_path: Path) -> None:
    """Nested tables, dotted keys, and --set on top."""
    given_settings = read(
        'epochs = 3\noptimizer.learning_rate = 1\n[schedule]\nname = "constant"\n[model.part]\nlayers = 50\n', tmp_path
    )
    assert (given_settings.epochs, given_settings.optimizer.learning_rate) == (3, 1.0)
    assert (given_settings.schedule.name, given_settings.model.part.layers) == ("constant", 50)
    assert apply_overrides(given_settings, ["epochs=4"]).epochs == 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("epochs = 0", ("epochs = 0 in ", "a.toml", "epochs must be at least 1", "epochs = 10 in ")),
        ('epochs = "3"', ('epochs = "3" in ', "epochs must be a whole number")),
        (
            "[optimizer]\nlearningrate = 1",
            ("unknown setting optimizer.learningrate in ", "optimizer.learning_rate = 1"),
        ),
        ('optimizer = "sgd"', ("unknown setting optimizer in ", "did you mean optimizer.")),
        ("[optimizer.name]\nx = 1", ("unknown setting optimizer.name.x in ", "did you mean optimizer.name = 1")),
        ("epochs = 1979-05-27", ("epochs must be a whole number",)),
        ("epochs = \nseed = 1", ("a.toml cannot be read", "line 1")),
        ("epochs = [" * 99, ("a.toml cannot be read",)),
    ],
)
def test_bad_file_is_one_clear_error_with_file_and_key(text: str, expected: tuple[str, ...], tmp_path: Path) -> None:
    """The same checks and messages as for --set."""
    with pytest.raises(BadRequestError) as caught:
        read(text, tmp_path)
    for part in expected:
        assert part in str(caught.value)
    assert len(str(caught.value).splitlines()) == 3


def test_file_that_cannot_be_read_is_a_clear_error(tmp_path: Path) -> None:
    """Missing, a folder, or not UTF-8."""
    (tmp_path / "bytes.toml").write_bytes(b'name = "\xff"')
    for name in ("none.toml", "", "bytes.toml"):
        with pytest.raises(BadRequestError, match="cannot be read"):
            apply_config(NestedSettings(), tmp_path / name)


def values(hint: Any, bounds: Any) -> st.SearchStrategy[Any]:
    """All values that a setting may have."""
    low, above, below = bounds.get("minimum"), bounds.get("above"), bounds.get("below")
    whole = st.integers(-(2**70) if low is None else int(low), 2**70)
    least = low if above is None else above
    real = st.floats(
        least,
        below,
        exclude_min=above is not None,
        exclude_max=below is not None,
        allow_nan=False,
        allow_infinity=False,
    )
    kinds = {bool: st.booleans(), int: whole, float: real, str: TEXT, Path: TEXT.map(Path)}
    parts = get_args(hint)
    if get_origin(hint) is Literal:
        return st.sampled_from(parts)
    if get_origin(hint) is tuple and parts[-1] is Ellipsis:
        return st.lists(kinds[parts[0]], max_size=3).map(tuple)
    if get_origin(hint) is tuple:
        return st.tuples(*(kinds[part] for part in parts))
    if parts:  # a union
        choices: list[st.SearchStrategy[Any]] = [
            st.none() if part is type(None) else values(part, bounds) for part in parts
        ]
        return st.one_of(choices)
    return kinds[hint]


def drawn(node: Any, draw: Callable[[st.SearchStrategy[Any]], Any]) -> Any:
    """A settings object with drawn values everywhere."""
    hints = get_type_hints(type(node))
    new = {
        item.name: drawn(getattr(node, item.name), draw)
        if is_dataclass(hints[item.name])
        else draw(values(hints[item.name], item.metadata))
        for item in fields(node)
    }
    return replace(node, **new)


@given(data=st.data())
@settings(max_examples=25, suppress_health_check=list(HealthCheck), deadline=None)
def test_saved_settings_are_read_back_the_same(data: st.DataObject, tmp_path: Path) -> None:
    """Every setting that there is, with any value that it may have: whatever text, numbers and choices."""
    ours = drawn(NestedSettings(), data.draw)
    save_config(tmp_path / "config.toml", ours)
    assert apply_config(NestedSettings(), tmp_path / "config.toml") == ours


def test_changes_are_shown_with_the_default(tmp_path: Path) -> None:
    """One line; nothing if all settings are the recipe's."""
    default = NestedSettings()
    ours = replace(
        default,
        epochs=3,
        curves=False,
        optimizer=OptimizerSettings(learning_rate=2e-3),
        model=ModelSettings(sizes=(4,)),
    )
    assert render_changes(default, default) == ""
    assert render_changes(ours, default) == (
        "epochs=3 (10), curves=false (true), optimizer.learning_rate=0.002 (0.001), model.sizes=4 (8,16)"
    )
    assert '[model.part]\nlayers = 18\nfolder = "data"\n' in render_config(ours)
    with pytest.raises(BadRequestError, match="cannot be written"):
        save_config(tmp_path / "none" / "config.toml", ours)
