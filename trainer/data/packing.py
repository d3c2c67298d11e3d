"""Packs token sequences into rows of one length, so that no computation is spent on padding.

The plan is computed from the lengths and doesn't change with the epoch: rows are numbered samples, in another order in
each epoch. So packed text resumes like any other source.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from trainer.base.errors import BadRequestError
from trainer.base.sources import Sample

# Shape legend: B batch, L length of a row.
IGNORED = -100
"""The label that torch's cross-entropy leaves out."""
NO_DOCUMENT = -1
_PACKING_STREAM = 5


class Sequences(Protocol):
    """Token sequences by number: lists, arrays, tensors, or a data set with a column of them."""

    def __len__(self) -> int:
        """Count the sequences."""
        ...

    def __getitem__(self, index: int, /) -> Any:
        """Return the tokens of a sequence, one-dimensional."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingPlan:
    """Which piece of which sequence lies in which row: row n has the pieces from `first[n]` to `first[n + 1]`.

    A piece has the tokens from `begin` to `end` of a sequence.
    """

    first: NDArray[np.int64]
    sequence: NDArray[np.int64]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.first) - 1


def plan_packing(lengths: ArrayLike, length: int, *, seed: int = 0) -> PackingPlan:
    """Plan rows of `length` tokens: best-fit decreasing, so that few sequences are cut and little is padded.

    Only sequences longer than a row are cut, into whole rows and a rest. Every token lies in exactly one row. Source:
    Ding et al., Fewer Truncations Improve Language Modeling (2024), section 3.

    Args:
        lengths: of each sequence, in tokens.
        length: of a row.
        seed: shuffles sequences of the same length, so that neighbours don't always share a row.
    """
    sequence, begin, end = _cut(np.asarray(lengths, dtype=np.int64), length)
    shuffled = np.random.default_rng((_PACKING_STREAM, seed)).permutation(len(sequence))
    order = shuffled[np.argsort((begin - end)[shuffled], kind="stable")]
    rows = _fit((end - begin)[order].tolist(), length)
    by_row = order[np.argsort(rows, kind="stable")]
    counts = np.bincount(rows) if len(rows) else np.empty(0, np.int64)
    return PackingPlan(
        first=np.cumsum([0, *counts], dtype=np.int64), sequence=sequence[by_row], begin=begin[by_row], end=end[by_row]
    )


class PackedText:
    """Rows of packed sequences. A sample is a dict of tensors (L,), all int64.

    input_ids: the tokens, one sequence after the other, then `padding`.
    labels: the tokens again, for models that shift labels themselves (those of transformers do): the label at a place
        is predicted from the places before it. -100 at the first token of each piece, which would be predicted from
        another sequence, and in the padding.
    position_ids: from 0 in each piece.
    document_ids: the number of the piece in its row, -1 in the padding; see `mask_documents`.
    """

    def __init__(
        self,
        sequences: Sequences,
        *,
        length: int,
        lengths: ArrayLike | None = None,
        padding: int = 0,
        seed: int = 0,
    ) -> None:
        """Plan the rows.

        Args:
            sequences: the tokens of each document.
            length: of a row.
            lengths: of each sequence, if they are known: else each is read once.
            padding: the token after the last sequence of a row.
            seed: of the plan, which is part of the task: leave it when the run's seed changes.

        Raises:
            BadRequestError: the lengths don't fit to the sequences, or there are no tokens.
        """
        known = [len(sequences[number]) for number in range(len(sequences))] if lengths is None else lengths
        self._lengths = np.asarray(known, dtype=np.int64)
        if length < 1 or self._lengths.shape != (len(sequences),) or not (self._lengths > 0).any():
            raise BadRequestError(
                f"the sequences can't be packed into rows of {length}",
                why=f"there are {len(sequences)} sequences, and lengths of shape {self._lengths.shape}",
                fix="give a row at least one token, and one length per sequence, some of them above 0",
            )
        self._sequences = sequences
        self._length = length
        self._padding = padding
        self._plan = plan_packing(self._lengths, length, seed=seed)

    @property
    def fill(self) -> float:
        """Return the share of all places that hold tokens."""
        return float(self._lengths.sum()) / (len(self) * self._length)

    def __len__(self) -> int:
        """Count the rows."""
        return len(self._plan)

    def sample(self, index: int, rng: np.random.Generator) -> Sample:  # noqa: ARG002
        """Return a row, without randomness.

        Raises:
            BadRequestError: a sequence hasn't the length that was planned with.
        """
        plan = self._plan
        row = {
            "input_ids": torch.full((self._length,), self._padding),
            "labels": torch.full((self._length,), IGNORED),
            "position_ids": torch.zeros(self._length, dtype=torch.int64),
            "document_ids": torch.full((self._length,), NO_DOCUMENT),
        }
        place = 0
        for document, piece in enumerate(range(plan.first[index], plan.first[index + 1])):
            tokens = self._read(int(plan.sequence[piece]))[plan.begin[piece] : plan.end[piece]]
            here = slice(place, place + len(tokens))
            row["input_ids"][here] = tokens
            row["labels"][place + 1 : here.stop] = tokens[1:]
            row["position_ids"][here] = torch.arange(len(tokens))
            row["document_ids"][here] = document
            place = here.stop
        return row

    def _read(self, number: int) -> torch.Tensor:
        found = self._sequences[number]
        # Copied: a memory map may not be writable, which torch warns of.
        tokens = found if isinstance(found, torch.Tensor) else torch.from_numpy(np.array(found, dtype=np.int64))
        if tokens.shape != (self._lengths[number],):
            raise BadRequestError(
                f"sequence {number} can't be packed",
                why=f"it has the shape {tuple(tokens.shape)}, planned were {self._lengths[number]} tokens",
                fix="give the lengths of these sequences",
            )
        return tokens


def mask_documents(document_ids_BL: torch.Tensor) -> torch.Tensor:
    """Return which places each place attends to, (B, 1, L, L): earlier ones of its own document, and itself.

    For `scaled_dot_product_attention(..., attn_mask=mask)`. Padding attends to itself, so that no row is empty.
    """
    same_BLL = document_ids_BL[:, :, None] == document_ids_BL[:, None, :]
    return same_BLL.tril()[:, None]


def _cut(lengths: NDArray[np.int64], length: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Cut sequences into pieces of at most a row: the sequence, begin and end of each."""
    pieces = -(-lengths // length)
    sequence = np.repeat(np.arange(len(lengths)), pieces)
    number = np.arange(len(sequence)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    begin = number * length
    return sequence, begin, np.minimum(begin + length, lengths[sequence])


def _fit(lengths: Sequence[int], length: int) -> NDArray[np.int64]:
    """Put each piece, longest first, into the fullest row that has room; return the row of each."""
    rows: list[int] = []
    with_room: list[list[int]] = [[] for _ in range(length + 1)]
    rooms = 0  # bit n is set if there is a row with room for exactly n more tokens
    count = 0
    for piece in lengths:
        fitting = rooms >> piece
        if fitting:
            room = piece + (fitting & -fitting).bit_length() - 1
            row = with_room[room].pop()
            rooms ^= 0 if with_room[room] else 1 << room
        else:
            room, row, count = length, count, count + 1
        rows.append(row)
        if room > piece:
            with_room[room - piece].append(row)
            rooms |= 1 << (room - piece)
    return np.asarray(rows, dtype=np.int64)
