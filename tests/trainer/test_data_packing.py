"""Packed text: no token is lost, no document sees another, and rows resume like any samples."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from trainer.base.errors import BadRequestError
from trainer.data.loader import BatchLoader
from trainer.data.packing import PackedText, mask_documents, plan_packing
from trainer.data.seeded import sample_rng

# Shape legend: B batch, L length of a row, V vocabulary, C channels.
RNG = sample_rng(seed=0, epoch=0, index=0)


def make_sequences(lengths: list[int]) -> list[torch.Tensor]:
    """Make sequences whose tokens are all different, from 1 on."""
    tokens = torch.arange(1, sum(lengths) + 1)
    return list(torch.split(tokens, lengths))


@settings(max_examples=60)
@given(lengths=st.lists(st.integers(0, 25), min_size=1, max_size=20), length=st.integers(1, 12))
def test_packing_loses_no_token_and_cuts_only_long_sequences(lengths: list[int], length: int) -> None:
    """Every token is in exactly one row, in order; sequences that fit into a row are whole."""
    if not sum(lengths):
        return
    text = PackedText(make_sequences(lengths), length=length)
    rows = [text.sample(number, RNG) for number in range(len(text))]
    tokens = torch.cat([row["input_ids"][row["document_ids"] >= 0] for row in rows])
    assert sorted(tokens.tolist()) == list(range(1, sum(lengths) + 1))
    pieces = [row["input_ids"][row["document_ids"] == number] for row in rows for number in range(length)]
    pieces = [piece for piece in pieces if len(piece)]
    assert len(pieces) == sum(-(-count // length) for count in lengths)
    assert all((piece.diff() == 1).all() for piece in pieces)


@settings(max_examples=30)
@given(lengths=st.lists(st.integers(1, 25), min_size=1, max_size=12), length=st.integers(2, 12))
def test_labels_and_positions_restart_with_each_piece(lengths: list[int], length: int) -> None:
    """Labels are the tokens, but none at a piece's first place or in the padding; positions count from 0."""
    text = PackedText(make_sequences(lengths), length=length, padding=-7)
    for number in range(len(text)):
        row = text.sample(number, RNG)
        starts = row["position_ids"] == 0
        ignored = row["labels"] == -100
        padded = row["document_ids"] < 0
        assert torch.equal(ignored, starts | padded)
        assert torch.equal(row["labels"][~ignored], row["input_ids"][~ignored])
        assert (row["input_ids"][padded] == -7).all()
        assert ((row["position_ids"].diff() == 1) | starts[1:] | padded[1:]).all()


class Attention(nn.Module):
    """One attention layer over embedded tokens and positions."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(40, 8)
        self.places = nn.Embedding(20, 8)

    def forward(self, ids_BL: torch.Tensor, places_BL: torch.Tensor, mask_B1LL: torch.Tensor) -> torch.Tensor:
        values_B1LC = (self.tokens(ids_BL) + self.places(places_BL))[:, None]
        return functional.scaled_dot_product_attention(values_B1LC, values_B1LC, values_B1LC, attn_mask=mask_B1LL)


def test_attention_in_a_packed_row_equals_that_of_each_document_alone() -> None:
    """With the documents' mask and positions a row computes what its documents compute without neighbours."""
    torch.manual_seed(0)
    model, text = Attention(), PackedText(make_sequences([5, 4, 3, 6]), length=10)
    for number in range(len(text)):
        row = {name: part[None] for name, part in text.sample(number, RNG).items()}
        packed_BLC = model(row["input_ids"], row["position_ids"], mask_documents(row["document_ids"]))[:, 0]
        assert packed_BLC.isfinite().all()
        for document in range(int(row["document_ids"].max()) + 1):
            here_BL = row["document_ids"] == document
            ids_BL = row["input_ids"][here_BL][None]
            count = ids_BL.shape[1]
            causal = torch.ones(1, 1, count, count, dtype=torch.bool).tril()
            alone_BLC = model(ids_BL, torch.arange(count)[None], causal)[:, 0]
            assert torch.allclose(packed_BLC[here_BL], alone_BLC[0], atol=1e-6)


def test_rows_are_nearly_full() -> None:
    """Documents of typical lengths fill at least 99 % of the places."""
    lengths = np.random.default_rng(0).lognormal(4, 1, 2000).astype(int) + 1
    plan = plan_packing(lengths, 512)
    assert len(plan) * 512 * 0.99 <= lengths.sum()


def test_packed_text_resumes_exactly_and_has_another_order_in_each_epoch() -> None:
    """A resumed epoch has the rest of the rows; another seed of the plan makes other rows."""
    sequences = make_sequences(np.random.default_rng(0).integers(1, 30, 50).tolist())
    text = PackedText(sequences, length=32)
    loader = BatchLoader(text, seed=1, device=torch.device("cpu"))

    def read(epoch: int, first_step: int = 0) -> list[list[int]]:
        batches = loader.batches(epoch=epoch, batch_size=2, first_step=first_step)
        return [batch["input_ids"].flatten().tolist() for batch in batches]

    assert read(0, first_step=3) == read(0)[3:]
    assert read(0) != read(1)
    other = PackedText(sequences, length=32, seed=1)
    assert any(not torch.equal(other.sample(n, RNG)["input_ids"], text.sample(n, RNG)["input_ids"]) for n in range(5))


def test_lengths_that_dont_fit_are_refused() -> None:
    """A wrong number of lengths, no tokens at all, and a sequence of another length than planned."""
    for lengths in ([3], [0, 0]):
        with pytest.raises(BadRequestError, match="can't be packed"):
            PackedText(make_sequences([2, 3]), length=4, lengths=lengths)
    text = PackedText(make_sequences([2, 3]), length=5, lengths=[2, 2])
    with pytest.raises(BadRequestError, match="sequence 1") as raised:
        text.sample(0, RNG)
    assert "planned were 2" in raised.value.why
