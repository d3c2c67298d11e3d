"""Batches of any structure: stacked, padded, counted, split and moved."""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.base.errors import BadRequestError
from trainer.base.sources import Batch
from trainer.data.batch import count_samples, move_batch, slice_batch, split_batch, stack_samples
from trainer.data.padding import pad_samples


class Pair(NamedTuple):
    image: torch.Tensor
    label: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    volume: torch.Tensor
    spacing: Any
    name: Any


def make_samples(count: int = 5) -> list[dict[str, Any]]:
    return [
        {
            "pair": Pair(torch.full((2, 3), float(number)), number),
            "scan": Scan(volume=torch.full((4,), float(number)), spacing=(0.5, float(number)), name=f"scan {number}"),
            "boxes": [torch.zeros(number, 4)],
            "array": np.full(2, number),
            "weight": np.float32(number),
        }
        for number in range(count)
    ]


def test_structure_is_kept_and_tensors_arrays_and_numbers_are_stacked() -> None:
    """Dicts, named tuples and dataclasses stay what they are; lists and texts have an entry per sample."""
    batch = stack_samples(make_samples())
    assert type(batch["pair"]) is Pair
    assert batch["pair"].image.shape == (5, 2, 3)
    assert batch["pair"].label.tolist() == [0, 1, 2, 3, 4]
    assert type(batch["scan"]) is Scan
    assert batch["scan"].spacing[1].tolist() == [0, 1, 2, 3, 4]
    assert batch["scan"].name == [f"scan {number}" for number in range(5)]
    assert [len(boxes) for (boxes,) in batch["boxes"]] == [0, 1, 2, 3, 4]
    assert batch["array"].tolist() == [[number, number] for number in range(5)]
    assert batch["weight"].dtype == torch.float32


def test_any_batch_is_counted_split_and_moved_part_by_part() -> None:
    """Each micro-batch has its samples of every part, and the batch's own structure, also on another device."""
    batch = stack_samples(make_samples())
    parts = split_batch(batch, 2, samples=5)
    assert [count_samples(part) for part in parts] == [2, 2, 1]
    assert parts[1]["pair"].label.tolist() == [2, 3]
    assert parts[1]["scan"].name == ["scan 2", "scan 3"]
    assert [len(boxes) for (boxes,) in parts[2]["boxes"]] == [4]
    moved = move_batch(batch, torch.device("meta"))
    assert moved["scan"].volume.is_meta
    assert moved["boxes"][1][0].is_meta
    assert moved["scan"].name == batch["scan"].name


def test_objects_that_move_themselves_do_so() -> None:
    """A packed sequence keeps its sizes on the CPU, as its own `to` does."""
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3, 2), torch.ones(1, 2)])
    moved, labels_B = move_batch((packed, torch.zeros(2)), torch.device("meta"))
    assert moved.data.is_meta
    assert labels_B.is_meta
    assert moved.batch_sizes.device.type == "cpu"


def test_what_is_not_per_sample_stays_whole() -> None:
    """A scalar or a text beside the samples is neither counted nor split."""
    batch = {"temperature": torch.tensor(0.5), "name": "set", "values": torch.arange(4)}
    assert count_samples(batch) == 4
    part = slice_batch(batch, 1, 3)
    assert (float(part["temperature"]), part["name"], part["values"].tolist()) == (0.5, "set", [1, 2])
    with pytest.raises(BadRequestError, match="no samples"):
        count_samples({"temperature": torch.tensor(0.5), "name": "set"})


@pytest.mark.parametrize(
    ("samples", "text"),
    [
        ([torch.zeros(3), torch.zeros(4)], r"sample is \(3,\) and \(4,\)"),
        ([(1, {"a": torch.zeros(2)}), (1, {"a": torch.zeros(1, 2)})], r"sample\[1\]\['a'\] is \(2,\) and \(1, 2\)"),
        ([{"a": 1}, {"a": 1, "b": 2}], "sample is a dict of a and a dict of a, b"),
        ([{"a": 1, "b": 2}, {"a": 1}], "sample is a dict of a, b and a dict of a"),
        ([(1, 2), (1, 2, 3)], "sample is a tuple of 2 and a tuple of 3"),
        ([torch.zeros(2), None], "sample is a Tensor and a NoneType"),
        ([(np.zeros(2),), (np.zeros(3),)], r"sample\[0\] is \(2,\) and \(3,\)"),
        (
            [Scan(volume=torch.zeros(size), spacing=(1, 1), name="") for size in (1, 2)],
            r"sample\.volume is \(1,\) and \(2,\)",
        ),
    ],
)
def test_samples_that_dont_stack_are_refused_with_the_place(samples: list[Batch], text: str) -> None:
    """The message names the part that differs and how, and proposes a collate."""
    with pytest.raises(BadRequestError, match=text) as raised:
        stack_samples(samples)
    assert "collate" in raised.value.fix


def test_errors_that_are_no_misfit_are_left_as_they_are() -> None:
    """Samples of one structure whose stacking fails raise torch's own error, for example of memory."""
    huge = torch.zeros(1).expand(2**50)
    with pytest.raises(RuntimeError, match="memory"):
        stack_samples([huge, huge])


@settings(max_examples=30)
@given(lengths=st.lists(st.integers(0, 9), min_size=1, max_size=6), multiple_of=st.sampled_from([1, 4]))
def test_padded_samples_are_whole_below_the_mask(lengths: list[int], multiple_of: int) -> None:
    """Each row is its sample, then padding; mask and lengths say where it ends."""
    samples: list[Batch] = [
        {"ids": torch.arange(1, length + 1), "labels": -torch.ones(length), "name": "x"} for length in lengths
    ]
    batch = pad_samples(samples, padding={"ids": 0, "labels": -100}, multiple_of=multiple_of)
    assert batch["lengths"].tolist() == lengths
    assert batch["mask"].sum(dim=1).tolist() == lengths
    assert batch["name"] == ["x"] * len(lengths)
    assert batch["ids"].shape == batch["labels"].shape == batch["mask"].shape
    assert batch["ids"].shape[1] == -(-max(lengths) // multiple_of) * multiple_of
    for row, mask, sample in zip(batch["ids"], batch["mask"], samples, strict=True):
        assert torch.equal(row[mask], sample["ids"])
        assert not row[~mask].any()
    assert (batch["labels"][~batch["mask"]] == -100).all()


def test_plain_tensors_are_padded_along_their_first_dimension() -> None:
    """Tensors that aren't in a dict are the batch's values; the other dimensions stay."""
    batch = pad_samples([torch.ones(2, 3), torch.ones(4, 3)], padding=7)
    assert batch["values"].shape == (2, 4, 3)
    assert batch["values"][0, 2:].unique().tolist() == [7]
    assert count_samples(batch) == 2


@pytest.mark.parametrize(
    ("samples", "padding", "text"),
    [
        ([(torch.zeros(2), 1)], 0, "tensors, or dicts"),
        ([{"ids": torch.zeros(2), "labels": torch.zeros(3)}], {"ids": 0, "labels": 0}, "different lengths"),
        ([{"ids": torch.zeros(2)}], {"labels": 0}, "labels is not a tensor"),
        ([torch.zeros(2, 3), torch.zeros(2, 4)], 0, "more than their first dimension"),
    ],
)
def test_samples_that_cant_be_padded_are_refused(samples: list[Batch], padding: Any, text: str) -> None:
    """The reason is named, instead of torch's error."""
    with pytest.raises(BadRequestError) as raised:
        partial(pad_samples, padding=padding)(samples)
    assert text in raised.value.why
