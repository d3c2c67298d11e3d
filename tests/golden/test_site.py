"""The site of docs/: what is generated covers everything, and what is written by hand says what is so.

`make docs` builds it, and fails where a link or an anchor leads nowhere.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.site.commands import render_commands
from docs.site.job_keys import render_job_keys
from docs.site.links import Linker
from docs.site.navigation import ROOT, pages
from docs.site.stage import split_front_page, stage
from orchestrator.adapters.jobfile.schema import job_schema
from orchestrator.adapters.providers import PROVIDERS
from orchestrator.cli.flag_table import flags_of
from orchestrator.cli.help import summaries
from orchestrator.cli.program import namespace
from orchestrator.core import errors
from tests.support.checkout import tracked_files


def section(page: str, heading: str) -> str:
    """Return what stands below a heading, up to the next one of any level."""
    return re.split(r"\n#+ ", page.split(f"# {heading}\n")[1])[0]


def test_the_command_reference_has_every_command_and_every_flag() -> None:
    """As the program itself lists them for completion."""
    page = render_commands(namespace)
    for name, says in summaries(namespace).items():
        said = section(page, name)
        assert says in said
        flags = [flag for row in re.findall(r"^\| `(.+?)` \|", said, re.MULTILINE) for flag in row.split(", ")]
        written = {word for flag in flags_of(name) for word in flag.written}
        assert {flag.split(" ")[0] for flag in flags} == {"-h", "--help"} | written
        assert f"kedge {name}" in said.partition("```console")[2]


def test_the_job_file_reference_has_every_key() -> None:
    """Each in the table of its part, with what the schema says about it."""
    schema = job_schema()
    page = render_job_keys(schema)
    blocks: dict[str, dict[str, Any]] = {f"`{part['title']}`": part for part in schema["$defs"].values()}
    mode = blocks.pop("`mode`")
    for heading, part in {"The job": schema, **blocks}.items():
        rows = [line for line in section(page, heading).splitlines() if line.startswith("| `")]
        assert sorted(row.split("`")[1] for row in rows) == sorted(part["properties"])
        assert all(field["description"] in "".join(rows) for field in part["properties"].values())
    assert all(f"`{key}`" in section(page, "`mode`") for key in mode["properties"])


def test_the_job_file_reference_links_to_its_own_headings() -> None:
    """A key whose value is a mapping leads to the keys of that mapping."""
    page = render_job_keys(job_schema())
    anchors = {heading.lower().replace(".", "") for heading in re.findall(r"^## `?([\w.]+)`?$", page, re.MULTILINE)}
    linked = set(re.findall(r"\]\(#([^)]+)\)", page))
    assert {"resources", "volumes", "mode"} <= linked <= anchors


def test_every_page_of_docs_has_a_place() -> None:
    """A new one is a line of docs/site/navigation.py."""
    written = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert written - set(pages()) == set()
    assert len(set(pages().values())) == len(pages())


def test_all_sources_can_be_staged(tmp_path: Path) -> None:
    """Every link of every page leads to a page, a file or a folder of the repository."""
    stage(tmp_path)
    assert {path.relative_to(tmp_path).with_suffix("").as_posix() for path in tmp_path.rglob("*.md")} == {
        *pages().values(),
        "index",
        "commands",
        "job-file-reference",
    }
    assert (tmp_path / "files" / "infra" / "aws" / "operator-policy.json").is_file()


def test_the_quick_start_is_the_front_page_of_the_repository() -> None:
    """All of it but the list of other pages, which the site's menu replaces."""
    front = (ROOT / "README.md").read_text()
    lead, quick_start = split_front_page(front)
    headings = re.findall(r"^## (.+)$", front, re.MULTILINE)
    assert re.findall(r"^## (.+)$", quick_start, re.MULTILINE) == [each for each in headings if each != "More"]
    assert lead.startswith("# kedge")
    assert "docs/demo.svg" in lead


def test_a_link_to_nothing_is_found(tmp_path: Path) -> None:
    """It fails the build, and is named with its page."""
    linker = Linker(root=tmp_path, pages={"docs/a.md": "a", "docs/b/c.md": "b/c"})
    (tmp_path / "data.json").write_text("{}")
    (tmp_path / "infra").mkdir()
    text = "[a](../a.md#x) [d](../../data.json) [i](../../infra) [w](https://example.org/a.md) [gone](gone.md)\n"
    written = linker.rewrite(text + "```\n[gone](../gone.md)\n```\n", "docs/b/c.md", "b/c")
    assert written.startswith(
        "[a](../a.md#x) [d](../files/data.json) i (`infra` in a checkout) [w](https://example.org"
    )
    assert written.endswith("```\n[gone](../gone.md)\n```\n")
    assert linker.broken == ["docs/b/c.md: [gone](gone.md)"]


def test_a_link_may_go_over_the_end_of_a_line(tmp_path: Path) -> None:
    """Its text is wrapped like any other."""
    linker = Linker(root=tmp_path, pages={"README.md": "start", "docs/reaper.md": "reaper"})
    written = linker.rewrite("[`kedge reap` on another\ncomputer](docs/reaper.md)\n", "README.md", "start")
    assert written == "[`kedge reap` on another\ncomputer](reaper.md)\n"


def test_a_page_is_called_by_its_title_and_not_by_its_file(tmp_path: Path) -> None:
    """`[docs/a.md](docs/a.md)` is a good link at GitHub."""
    linker = Linker(root=tmp_path, pages={"README.md": "quick-start", "docs/a.md": "a"})
    assert linker.rewrite("[docs/a.md](docs/a.md#x), [this](docs/a.md)", "README.md", "quick-start") == (
        "[](a.md#x), [this](a.md)\n"
    )


def test_every_error_of_the_troubleshooting_page_can_happen() -> None:
    """What it quotes stands in the program's own texts, so that whoever searches for an error finds it."""
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    rows = re.split(r"^\| error", page, flags=re.MULTILINE)[1:]
    quoted = [
        words
        for table in rows
        for row in re.findall(r"^\| (.+?) \|", table, re.MULTILINE)
        for words in re.findall(r"`([^`]+)`", row)
    ]
    texts = "\n".join(program_texts())
    assert len(quoted) >= 30
    assert [words for words in quoted if words not in texts] == []


def program_texts() -> Iterator[str]:
    """Return every text of the program, each without the values that are put into it."""
    for path in (ROOT / "orchestrator").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_the_troubleshooting_page_has_every_exit_code() -> None:
    """The codes of errors, and those of signals."""
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    codes = {int(code) for row in re.findall(r"^\| ([\d, ]+) \|", page, re.MULTILINE) for code in row.split(", ")}
    kinds = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.KedgeError)]
    assert codes == {0, 129, 130, 143, *(kind.exit_code for kind in kinds)}


@pytest.mark.parametrize("page", ["providers.md", "guards.md"])
def test_every_provider_is_compared(page: str) -> None:
    """A new one gets its column: what it needs, and what ends its machines."""
    text = (ROOT / "docs" / page).read_text()
    heads = [line for line in text.splitlines() if line.startswith("| |")]
    assert set(re.findall(r"`(\w+)`", heads[0])) == set(PROVIDERS)


def test_a_new_user_finds_every_provider() -> None:
    """In the README's table, and in what the page on the first account says about `kedge doctor`."""
    readme, first = ((ROOT / name).read_text() for name in ("README.md", "docs/first-account.md"))
    assert set(re.findall(r"^\| `(\w+)` \|", readme, re.MULTILINE)) == set(PROVIDERS)
    assert [name for name in PROVIDERS if name != "local" and f"`{name}`" not in first] == []


_TOP = "cli|app|engine|core|adapters|agent|trainer|templates|tests|docs|orchestrator|infra|locks|benchmarks"
_PATH = re.compile(rf"(?<![\w/.])((?:{_TOP})/[\w./-]+)|`((?:[\w.-]+/)*[\w-]+\.(?:py|sh|j2))\b")


def test_every_path_that_the_pages_about_the_code_name_is_there() -> None:
    """As a file, a folder, or a name in a module; `core/planning` is `orchestrator/core/planning`."""
    files = tracked_files()
    known = {f"/{place}" for path in files for place in (path, *map(str, Path(path).parents))}
    pages = [
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        *(f for f in files if re.match(r"docs/(architecture|decisions)/", f)),
    ]
    named = [(page, "".join(found)) for page in pages for found in _PATH.findall((ROOT / page).read_text())]
    places = [(page, path.rstrip("./")) for page, path in named if not re.search(r"(\b|_)[A-Z]{2,}\b", path)]
    assert len(places) > 100
    assert [(page, path) for page, path in places if not is_known(path, known)] == []


def is_known(path: str, known: set[str]) -> bool:
    """Tell whether a place ends so: as it is, as a module, as a template, or as the module of a name."""
    forms = (path, f"{path}.py", f"{path}.j2", f"{path.rpartition('.')[0]}.py")
    return any(place.endswith(f"/{form}") for form in forms for place in known)
