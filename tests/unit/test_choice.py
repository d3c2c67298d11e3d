"""What `fetch --only`, and wildcards in `outputs`, choose among a run's results."""

from __future__ import annotations

import pytest

from orchestrator.core.errors import BadRequestError
from orchestrator.core.protocol.choice import NAMES, Choice, parse_only
from orchestrator.core.protocol.results import ResultFile

OF_TRAINER = (
    "run.log",
    "checkpoints/best-00000264.safetensors",
    "checkpoints/step-00000099.safetensors",
    "checkpoints/step-00000264/shard-0.bin",
    "checkpoints/step-00000264/index.json",
    "output/curves.png",
    "output/metrics.csv",
    "output/model.onnx",
    "output/model.onnx.data",
    "output/model.safetensors",
    "output/samples/step-00000264.png",
    "output/status.json",
)
OF_OTHERS = (
    "voxel/run.log",
    "voxel/checkpoints/model_best.pt",
    "voxel/checkpoints/model.pt",
    "voxel/checkpoints/epoch_999.pth",
    "voxel/checkpoints/epoch_1999.pth",
    "2-fast/checkpoints/epoch_7.pth",
    "output/results/history.json",
    "output/results/events.out.tfevents.1.host.2",
    "output/results/plots/loss.svg",
)


def choose(words: str, paths: tuple[str, ...]) -> list[str]:
    files = [ResultFile(path=path, bytes=1, sha256="x") for path in paths]
    return [file.path for file in Choice(only=parse_only(words)).of(files)]


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        ("best", [1, 9]),
        ("last", [3, 4]),
        ("curves", [5]),
        ("metrics", [6, 11]),
        ("onnx", [7, 8]),
        ("plots", [5, 10]),
        ("samples", [10]),
        ("logs", [0]),
        ("best, curves", [1, 5, 9]),
        ("all", list(range(len(OF_TRAINER)))),
        ("*.safetensors", [1, 2, 9]),
        ("checkpoints/step-*", [2, 3, 4]),
        ("step-00000264", [3, 4]),
        ("shard-?.bin", [3]),
        ("/output/*.png", [5]),
        ("output/**/*.png", [5, 10]),
        ("/curves.png", []),
    ],
)
def test_names_and_patterns_choose_files_in_any_folder(words: str, chosen: list[int]) -> None:
    """A pattern that matches a folder means all in it; one that begins with a slash begins at the results' top."""
    assert choose(words, OF_TRAINER) == [OF_TRAINER[number] for number in chosen]


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        ("last", [2, 4, 5]),
        ("best", [1]),
        ("curves", [6, 7]),
        ("plots", [8]),
        ("voxel/checkpoints/*", [1, 2, 3, 4]),
    ],
)
def test_the_newest_checkpoint_is_that_of_each_task_and_each_series(words: str, chosen: list[int]) -> None:
    """By the numbers in its name, not by its letters: epoch_1999 comes after epoch_999."""
    assert choose(words, OF_OTHERS) == [OF_OTHERS[number] for number in chosen]


def test_best_is_a_word_in_small_or_capital_letters() -> None:
    """Between the letters of another word it isn't; a pattern of the user's own has the case that it is written in."""
    best = ("output/Best.pth", "checkpoints/model-best.pt", "checkpoints/MODEL_BEST", "best2.pt", "best/weights.bin")
    paths = (*best, "left-behind/bestiary.txt", "checkpoints/asbestos-7.pt", "output/model.pt")
    assert choose("best", paths) == list(best)
    assert choose("last", paths) == ["checkpoints/asbestos-7.pt"]
    assert choose("*best.pt", paths) == ["checkpoints/model-best.pt"]
    assert choose("*BEST.pt", paths) == []


def test_all_parts_of_the_newest_checkpoint_are_chosen() -> None:
    """A rank's number makes no checkpoint newer."""
    names = ("step-9-rank0.pt", "step-9-rank1.pt", "step-10-rank0.pt", "step-10-rank1.pt", "w-5-00001-of-00002.bin")
    paths = tuple(f"checkpoints/{name}" for name in (*names, "w-5-00002-of-00002.bin"))
    assert choose("last", paths) == list(paths[2:])


def test_a_choice_of_nothing_is_refused_with_the_names_that_are_known() -> None:
    """A misspelt name is taken for a pattern, which matches nothing."""
    files = [ResultFile(path=path, bytes=1, sha256="x") for path in OF_TRAINER]
    choice = Choice(only=("bset",))
    with pytest.raises(BadRequestError, match="no result is called bset") as caught:
        choice.require_some(files, choice.of(files))
    assert "run.log, checkpoints/best-00000264.safetensors" in caught.value.why
    assert all(name in caught.value.fix for name in NAMES)
    with pytest.raises(BadRequestError, match="a name is missing"):
        parse_only("best,,last")
    with pytest.raises(BadRequestError, match="can't match anything"):
        parse_only("best,[abc")


def test_outputs_with_wildcards_leave_out_the_rest_of_their_folder_only() -> None:
    """Other folders come whole. `--only` has the last word."""
    paths = ("output/results/a.png", "output/results/deep/b.png", "output/results/c.pt", "output/d.pt", "run.log")
    files = [ResultFile(path=path, bytes=10, sha256="x") for path in paths]
    choice = Choice(outputs=("output/results/*.png",))
    assert [file.path for file in choice.of(files)] == [paths[0], paths[3], paths[4]]
    assert choice.describe_rest(files, choice.of(files)) == "not fetched, by the job's `outputs`: 2 files, 20 B"
    assert Choice(outputs=choice.outputs, only=("all",)).of(files) == files
    assert Choice().describe_rest(files, files) == ""


def test_the_trainers_older_step_checkpoints_are_left_in_each_folder() -> None:
    """An unfinished folder of shards isn't the newest; other names, and those of other programs, all come."""
    paths = (
        *(
            "checkpoints/step-00000099.safetensors",
            "checkpoints/step-00000200/shard-0",
            "checkpoints/step-00000200/index.json",
        ),
        *("checkpoints/step-00000264.safetensors", "checkpoints/step-00000300/shard-0"),
        *("checkpoints/best-00000100.safetensors", "checkpoints/step-00000098.pt", "checkpoints/fold-1.safetensors"),
        *("2-fast/checkpoints/step-00000007.safetensors", "output/samples/step-00000005/a.png", "run.log"),
    )
    files = [ResultFile(path=path, bytes=10, sha256="x") for path in paths]
    stored = frozenset((path, "x") for path in paths)
    choice = Choice(leaves_steps=True, stored=stored)
    assert [file.path for file in choice.of(files)] == list(paths[3:])
    assert choice.describe_rest(files, choice.of(files)) == (
        "not fetched: 2 older checkpoints, 30 B, which stay in the object store; `kedge fetch --only all` brings them"
    )
    assert Choice(leaves_steps=True, stored=stored, only=("all",)).of(files) == files
    both = Choice(leaves_steps=True, stored=stored, outputs=("output/*.csv",))
    assert both.describe_rest(files, both.of(files)).startswith(
        "not fetched, by the job's `outputs`: 1 file, 10 B; not"
    )
    assert Choice(stored=stored).of(files) == files


@pytest.mark.parametrize("lacks", ["all", "a shard", "the same content"])
def test_a_checkpoint_that_the_store_does_not_have_whole_is_not_left_to_it(lacks: str) -> None:
    """It would be lost with the machine."""
    older = "checkpoints/step-00000099"
    paths = (f"{older}/a", f"{older}/index.json", "checkpoints/step-00000264.safetensors")
    files = [ResultFile(path=path, bytes=10, sha256="x") for path in paths]
    stored = {"all": [], "a shard": [(paths[1], "x")], "the same content": [(paths[0], "y"), (paths[1], "x")]}[lacks]
    assert Choice(leaves_steps=True, stored=frozenset(stored)).of(files) == files
