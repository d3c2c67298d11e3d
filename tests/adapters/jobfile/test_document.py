"""YAML is read as plain text with line numbers, and anything but a mapping of reasonable size is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.adapters.jobfile.document import MAX_BYTES, read_document
from orchestrator.core.errors import BadRequestError


def refused(path: Path, content: str | bytes) -> BadRequestError:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(BadRequestError) as caught:
        read_document(path)
    return caught.value


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("on", "on"),
        ("no", "no"),
        ("1.10", "1.10"),
        ("0123", "0123"),
        ("1:30", "1:30"),
        ("1e3", "1e3"),
        ("2026-01-01", "2026-01-01"),
        ("'null'", "null"),
        ("0x1F", "0x1F"),
    ],
)
def test_scalars_are_the_text_that_was_written(tmp_path: Path, written: str, text: str) -> None:
    """YAML's guesses (booleans, octals, base 60, floats, dates) change nothing."""
    path = tmp_path / "job.yaml"
    path.write_text(f"key: {written}\n")
    assert read_document(path).value == {"key": text}


@pytest.mark.parametrize("written", ["", "~", "null"])
def test_null_is_not_text(tmp_path: Path, written: str) -> None:
    """A key without a value is None."""
    path = tmp_path / "job.yaml"
    path.write_text(f"key: {written}\n")
    assert read_document(path).value == {"key": None}


def test_every_key_and_item_has_its_line(tmp_path: Path) -> None:
    """Lines count from 1; an unknown key has the line of its parent."""
    path = tmp_path / "job.yaml"
    path.write_text("# comment\na:\n  b:\n    - x\n    - c: y\n")
    document = read_document(path)
    assert document.line(("a", "b", 1, "c")) == 5
    assert document.line(("a", "b", 0)) == 4
    assert document.line(("a", "b", "nothing", "here")) == 3


def test_anchors_and_merge_keys_work(tmp_path: Path) -> None:
    """Keys beside `<<` override the merged ones, and the first of several mappings overrides the next."""
    path = tmp_path / "job.yaml"
    path.write_text("a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc:\n  <<: [*a, *b]\n  x: 3\nd: {<<: *a}\nlist: [*a]\n")
    value = read_document(path).value
    assert value["c"] == {"x": "3", "y": "1", "z": "2"}
    assert value["d"] == value["list"][0] == {"x": "1", "y": "1"}


def test_a_key_that_is_written_twice_is_refused(tmp_path: Path) -> None:
    """YAML would silently keep the last."""
    error = refused(tmp_path / "job.yaml", "run: a\nresources:\n  region: x\n  region: y\n")
    assert error.what == f"{tmp_path}/job.yaml:4: `resources.region` is written twice"


@pytest.mark.parametrize(
    "content",
    [
        "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)).replace("*a0", "x"),
        "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 30)).replace(
            "*a0", "{x: 1}"
        ),
        "a: &a [*a]\n",
        "a: &a {<<: *a}\n",
        "a: &a {b: *a}\n",
        "[" * 60_000,
        "- " * 30_000,
        "{a: " * 10_000,
    ],
    ids=["laughs", "merge-laughs", "own-list", "own-merge", "own-mapping", "flow", "block", "mappings"],
)
@pytest.mark.timeout(10)
def test_huge_and_endless_trees_are_refused(tmp_path: Path, content: str) -> None:
    """Aliases and depth are limited, so the refusal is quick."""
    assert refused(tmp_path / "job.yaml", content).fix


@pytest.mark.parametrize(
    "content",
    [
        "",
        "just text",
        "- a\n- list\n",
        "a: 1\n---\nb: 2\n",
        "a: [1\n",
        "\ta: 1\n",
        "a: !!python/object/apply:os.system [ls]\n",
        "a: !secret x\n",
        "a: !!set {x}\n",
        "? [complex]\n: key\n",
        "~: null key\n",
        "<<: text\n",
        'a: "\\UFFFFFFFF"\n',
        'a: "\\uD800"\n',
        'a: "\\0"\n',
        "%YAML " + "9" * 5000 + ".1\n---\na: 1\n",
        b"a: \xff\n",
        b"\xff\xfea\x00",
        "a: \x07\n",
    ],
)
def test_anything_but_a_plain_mapping_is_refused_with_its_file(tmp_path: Path, content: str | bytes) -> None:
    """The refusal is one line, which begins with the file and the line."""
    error = refused(tmp_path / "job.yaml", content)
    assert error.what.startswith(f"{tmp_path}/job.yaml:")
    assert "\n" not in error.what


def test_a_huge_file_is_refused(tmp_path: Path) -> None:
    """No more than the limit is read."""
    assert str(MAX_BYTES) in refused(tmp_path / "job.yaml", "#" * (MAX_BYTES + 1)).why


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """The error tells a missing file from a folder."""
    with pytest.raises(BadRequestError, match="No such file"):
        read_document(tmp_path / "none.yaml")
    with pytest.raises(BadRequestError, match="directory"):
        read_document(tmp_path)


def test_a_byte_order_mark_is_not_part_of_the_first_key(tmp_path: Path) -> None:
    """Editors on Windows write one."""
    path = tmp_path / "job.yaml"
    path.write_bytes(b"\xef\xbb\xbfrun: x\n")
    assert read_document(path).value == {"run": "x"}
