"""`--set`: every type that a recipe may declare, its bounds, and the errors for others."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from trainer.base.config import Settings
from trainer.base.errors import BadRequestError
from trainer.base.overrides import apply_overrides, check_value, parse_value
from trainer.base.setting import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class WideSettings(Settings):
    """Fields of every type."""

    layers: Literal[18, 50] = setting(18, "how many")
    folder: Path = setting(Path("data"), "where the images are")
    cache: Path | None = setting(None, "where decoded images are kept")
    sizes: tuple[int, ...] = setting((8, 16), "of the stages", minimum=1)
    window: tuple[float, float] = setting((0.0, 1.0), "the range of values", below=10)
    extra: bytes = setting(b"", "nothing that --set has")
    most: int | None = setting(None, "the largest number", minimum=2)


@pytest.mark.parametrize(
    ("text", "hint", "value"),
    [
        ("1,2, 3", tuple[int, ...], (1, 2, 3)),
        ("", tuple[str, ...], ()),
        ("a, b", tuple[str, ...], ("a", "b")),
        ("3,x", tuple[int, str], (3, "x")),
        ("none", int | None, None),
        ("4", int | None, 4),
        ("a", int | str, "a"),
        ("off", bool, False),
        ("50", Literal[18, 50], 50),
        ("true", Literal[True, "auto"], True),
        ("auto", Literal[True, "auto"], "auto"),
        ("none", Literal["a", None], None),
        ("50", Literal[18, 50] | None, 50),
        ("18, 50", tuple[Literal[18, 50], ...], (18, 50)),
        ("a/b", Path, Path("a/b")),
        ("None", Path | None, None),
        ("a/b", Path | None, Path("a/b")),
        ("a,b", tuple[Path, ...], (Path("a"), Path("b"))),
    ],
)
def test_text_is_read_by_the_declared_type(text: str, hint: Any, value: Any) -> None:
    """The value has the type itself, not only the spelling."""
    read = parse_value(text, hint)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("text", "hint", "why"),
    [
        ("34", Literal[18, 50], "one of 18, 50"),
        ("34", Literal[18, 50] | None, "one of 18, 50 or none"),
        ("x", int | None, "a whole number or none"),
        ("1", tuple[float, float], "2 values"),
        ("1,x", tuple[int, ...], "a whole number"),
        ("no", Literal[True], "one of true"),
        ("\udcff", str, "text in UTF-8"),
    ],
)
def test_other_text_is_refused_with_what_is_valid(text: str, hint: Any, why: str) -> None:
    """The message names the type or the choices."""
    with pytest.raises(ValueError, match=why):
        parse_value(text, hint)


@pytest.mark.parametrize(
    ("value", "hint", "why"),
    [
        (3.0, int, "a whole number"),
        (True, int, "a whole number"),
        (True, float, "a number"),
        ("3", int, "a whole number"),
        (float("inf"), float, "a finite number"),
        (10**400, float, "a finite number"),
        (1, bool, "true or false"),
        (3, str, "text in quotes"),
        (3, Path, "text in quotes"),
        ("1,2", tuple[int, ...], "a list"),
        ([1], tuple[int, int], "2 values"),
        ("18", Literal[18, 50], "one of 18, 50"),
        (1, Literal[True], "one of true"),
        (0.5, int | None, "a whole number or none"),
    ],
)
def test_values_of_a_file_have_types_themselves(value: Any, hint: Any, why: str) -> None:
    """Unlike text, they aren't converted; only a whole number is a number as well."""
    with pytest.raises(ValueError, match=why):
        check_value(value, hint)
    assert check_value(3, float) == 3.0


def test_settings_of_all_types_are_set_within_their_bounds() -> None:
    """Each value of a tuple has to be in bounds; none has no bounds."""
    settings = apply_overrides(
        WideSettings(),
        ["layers=50", "folder=/x", "cache=y", "sizes=4,8", "window=-1,2", "most=3", "optimizer.betas=0.8,0.9"],
    )
    assert (settings.layers, settings.folder, settings.cache) == (50, Path("/x"), Path("y"))
    assert (settings.sizes, settings.window, settings.most) == ((4, 8), (-1.0, 2.0), 3)
    assert settings.optimizer.betas == (0.8, 0.9)
    assert apply_overrides(settings, ["most=none", "checkpoint.replicas=none"]).most is None
    for assignment, why in {"sizes=4,0": "at least 1", "window=0,10": "less than 10", "most=1": "at least 2"}.items():
        with pytest.raises(BadRequestError) as caught:
            apply_overrides(settings, [assignment])
        assert why in caught.value.why


def test_type_that_cannot_be_set_is_named() -> None:
    """Bytes have no spelling on a command line: no KeyError, but what may be declared instead."""
    with pytest.raises(BadRequestError) as caught:
        apply_overrides(WideSettings(), ["extra=1"])
    assert caught.value.what == "extra cannot be set"
    assert "declares it as bytes" in caught.value.why
    assert "Path or Literal" in caught.value.fix
