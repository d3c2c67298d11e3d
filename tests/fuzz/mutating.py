"""Seeded mutations: of the parsed input, and of its bytes."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from random import Random
from typing import Any

from tests.fuzz.forms import DEEP, Form
from tests.fuzz.trees import ABSOLUTE

Path = tuple[str | int, ...]
_MOST_BYTES = 1 << 16
_MOST_PLACES = 3000
_MEANING = 0.7
"""The share of mutations that change the parsed input: a fuzzer of bytes can't do that."""

NUMBERS: tuple[Any, ...] = (
    *(0, -1, 1, 2, 16, 17, 255, 256, 1 << 31, (1 << 31) - 1, 1 << 32, 1 << 60, 1 << 63, (1 << 63) - 1, 1 << 64),
    *(-(1 << 31), -(1 << 63), 10**30, 10**400, 0.5, -0.0, 1e15, 1e300, -1e300, 1e-300, 16_725_225_601.0),
    *(math.inf, -math.inf, math.nan),
)
TEXTS = (
    *(
        "",
        " ",
        ".",
        "..",
        "../..",
        "../canary",
        "/",
        ABSOLUTE,
        "a/../../canary",
        "./a",
        "a//b",
        "~",
        "~root",
        "-",
        "--",
    ),
    *(
        ".git",
        ".GIT/config",
        "HEAD",
        "deep/HEAD",
        ".g\u200cit",
        ".kedge-partial",
        ".kedge",
        "sh -c id",
        "$(id)",
        "${HOME}",
    ),
    *("a\0b", "\n", "a\nb", "\r", "\t", "\x1b[2J", "\x1b]0;x\x07", "\x9b31m", "\u202e", "\u200b", "\ufeff", "\u2028"),
    *(
        "\udcff",
        "\ud800",
        "\U0001f600",
        "\xe9",
        "e\u0301",
        "\ufdfa",
        "a" * 300,
        "a/" * 300 + "a",
        "9" * 5000,
        "a" * 70_000,
    ),
    *(
        "null",
        "true",
        "NaN",
        "1e999",
        "1E+999999",
        "-1",
        "0x10",
        "1_0",
        "\u0661",
        "\xb2",
        "2026-02-30",
        "9999-12-31T23:59:59Z",
    ),
    *(
        "s3://bucket/x",
        "https://host/x",
        f"file://{ABSOLUTE}",
        "a:b",
        "[",
        "{",
        "*",
        "&a",
        "!!python/object",
        "%",
        "<html>",
    ),
)
OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], {"": None}, DEEP)


def mutate(data: bytes, random: Random, *, form: Form, tokens: Sequence[bytes], others: Sequence[bytes]) -> bytes:
    """Change an input a little, or a lot; the same seed makes the same change.

    Args:
        data: the input.
        random: the source of all choices.
        form: the format of this target's inputs.
        tokens: words with a meaning for this target.
        others: other inputs of this target, from which pieces are taken.
    """
    for _ in range(random.choice((1, 1, 2, 3, 5))):
        if random.random() < 0.7:
            data = _mutate_meaning(data, random, form) or _mutate_bytes(data, random, tokens, others)
        else:
            data = _mutate_bytes(data, random, tokens, others)
    return data[:_MOST_BYTES]


def _mutate_meaning(data: bytes, random: Random, form: Form) -> bytes:
    try:
        top = [form.read(data)]
    except ValueError:
        return b""
    places = list(islice(_places(top, ()), 1, _MOST_PLACES))
    change: Callable[..., None] = random.choice(
        (_replace, _replace, _replace, _tweak, _tweak, _move, _drop, _rename, _repeat)
    )
    try:
        change(top, random.choice(places), random, places)
        return form.write(top[0])
    except (ValueError, TypeError, RecursionError, OverflowError):
        # The format can't express some changes.
        return b""


def _places(value: Any, at: Path) -> Iterator[Path]:
    """Yield the place of each part of a value, outermost first."""
    waiting: list[tuple[Any, Path]] = [(value, at)]
    while waiting:
        each, where = waiting.pop()
        yield where
        if isinstance(each, dict):
            waiting += [(inner, (*where, name)) for name, inner in each.items()]
        elif isinstance(each, list):
            waiting += [(inner, (*where, index)) for index, inner in enumerate(each)]


def _at(top: Any, path: Path) -> Any:
    for part in path:
        top = top[part]
    return top


def _replace(top: Any, path: Path, random: Random, _places: list[Path]) -> None:
    _at(top, path[:-1])[path[-1]] = copy.deepcopy(random.choice(random.choice((NUMBERS, TEXTS, TEXTS, OTHERS))))


def _tweak(top: Any, path: Path, random: Random, _places: list[Path]) -> None:
    value = _at(top, path)
    if isinstance(value, str):
        at, piece = random.randint(0, len(value)), random.choice(TEXTS)
        value = random.choice((value[:at] + piece + value[at:], value[:at], value[at:], value * 2, f"{piece}/{value}"))
    elif isinstance(value, bool) or value is None:
        value = random.choice((not value, str(value), 0))
    elif isinstance(value, int | float):
        value = random.choice((value + 1, value - 1, -value, value * 2, str(value), [value], value + 0.5))
    else:
        value = random.choice(([value], {"a": value}, str(value)[:100]))
    _at(top, path[:-1])[path[-1]] = value


def _move(top: Any, path: Path, random: Random, places: list[Path]) -> None:
    """Replace this part by another part of the input."""
    _at(top, path[:-1])[path[-1]] = copy.deepcopy(_at(top, random.choice(places)))


def _drop(top: Any, path: Path, _random: Random, _places: list[Path]) -> None:
    if len(path) > 1:
        del _at(top, path[:-1])[path[-1]]


def _rename(top: Any, path: Path, random: Random, _places: list[Path]) -> None:
    around = _at(top, path[:-1])
    if isinstance(around, dict):
        around[random.choice((*TEXTS, *around))] = around.pop(path[-1])


def _repeat(top: Any, path: Path, random: Random, _places: list[Path]) -> None:
    around, here = _at(top, path[:-1]), path[-1]
    if isinstance(around, list) and isinstance(here, int) and len(path) > 1:
        around[:] += [around[here]] * random.choice((1, 2, 100))


def _mutate_bytes(data: bytes, random: Random, tokens: Sequence[bytes], others: Sequence[bytes]) -> bytes:
    at = random.randint(0, len(data))
    end = min(len(data), at + random.choice((1, 2, 4, 16, 100)))
    other, spot = random.choice(others), random.randint(0, max(0, len(data) - 1))
    changes: tuple[Callable[[], bytes], ...] = (
        lambda: (
            data[:spot] + bytes(each ^ 1 << random.randrange(8) for each in data[spot : spot + 1]) + data[spot + 1 :]
        ),
        lambda: data[:at] + data[end:],
        lambda: data[:end] + data[at:end] * random.choice((1, 3, 1000)) + data[end:],
        lambda: data[:at],
        lambda: data[:at] + other[random.randint(0, len(other)) :],
        lambda: data[:at] + random.randbytes(end - at) + data[end:],
        lambda: data[:at] + _piece(random, tokens) + data[random.choice((at, end)) :],
    )
    return random.choice(changes)()


def _piece(random: Random, tokens: Sequence[bytes]) -> bytes:
    if tokens and random.random() < 0.5:
        return random.choice(tokens)
    return _text(random).encode("utf-8", "surrogatepass")


def _text(random: Random) -> str:
    return random.choice((random.choice(TEXTS), str(random.choice(NUMBERS))[:400]))
