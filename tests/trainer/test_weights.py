"""Weights under a model's names: wrappers on either side are told apart from the model's own parts by its names."""

from itertools import accumulate

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.base.errors import CheckpointMismatchError
from trainer.checkpoints.weights import match_loosely, match_weights

NAMES = ("stem.weight", "head.bias")
PARTS = ("a", "b", "module", "model", "net", "0")
MODELS = st.sets(
    st.lists(st.sampled_from(PARTS), max_size=3).map(lambda parts: ".".join([*parts, "weight"])), min_size=1, max_size=6
)
PREFIXES = ("module.", "model.", "net.", "_orig_mod.", "_fsdp_wrapped_module.")
OUTER = st.lists(st.sampled_from(PREFIXES), max_size=4).map("".join)


def numbered(names: list[str], prefix: str = "") -> dict[str, torch.Tensor]:
    """Weights that tell which one they are."""
    return {f"{prefix}{name}": torch.tensor([float(number)]) for number, name in enumerate(names)}


@pytest.mark.parametrize(
    "saved", ["", "module.", "model.", "model.module.", "module.model.", "module._orig_mod.model."]
)
@pytest.mark.parametrize("wanted", ["", "module.", "model.", "model.module.", "_orig_mod."])
def test_prefixes_are_told_apart_by_the_model_s_own_names(saved: str, wanted: str) -> None:
    """`model.` is a wrapper's if the model has no such part, and the model's own if it has."""
    matched = match_weights(numbered([*NAMES], saved), [f"{wanted}{name}" for name in NAMES])
    assert matched == numbered([*NAMES], wanted)


def test_a_part_that_is_called_model_or_module_keeps_its_name() -> None:
    """Below DDP it is found, and nothing else is taken for it."""
    own = ["model.weight", "module.weight", "head.weight"]
    assert match_weights(numbered(own, "module."), own) == numbered(own)
    assert match_weights(numbered(own, "model.module."), own) == numbered(own)
    with pytest.raises(CheckpointMismatchError) as caught:
        match_weights(numbered(["weight", "other.weight", "head.weight"]), own)
    assert "missing: model.weight, module.weight" in caught.value.why
    assert "not in this model: weight, other.weight" in caught.value.why


@given(model=MODELS, saved=OUTER, wrapped=OUTER)
def test_wrappers_around_either_side_never_confuse_two_weights(model: set[str], saved: str, wrapped: str) -> None:
    """Whatever the model's parts are called: every weight arrives under its own name."""
    names = sorted(model)
    wanted = [f"{wrapped}{name}" for name in names]
    assert match_weights(numbered(names, saved), wanted) == numbered(names, wrapped)


@given(model=MODELS, inner=st.lists(st.sampled_from(("module", "_orig_mod")), min_size=6, max_size=6), at=st.data())
def test_wrappers_within_a_model_are_resolved_or_refused_but_never_mixed_up(
    model: set[str], inner: list[str], at: st.DataObject
) -> None:
    """Wrapped parts anywhere: a model whose own parts are called `module` may be refused."""
    names = sorted(model)
    places = sorted({place for name in names for place in accumulate(name.split(".")[:-1], "{}.{}".format)})
    wrapped = at.draw(st.sets(st.sampled_from(places))) if places else set()
    weights = {}
    for number, name in enumerate(names):
        *parts, last = name.split(".")
        built: list[str] = []
        for depth, part in enumerate(parts):
            built.append(part)
            if ".".join(parts[: depth + 1]) in wrapped:
                built.append(inner[depth])
        weights[".".join([*built, last])] = torch.tensor([float(number)])
    try:
        matched = match_weights(weights, names)
    except CheckpointMismatchError:
        assert any("module" in name for name in names)
        return
    assert matched == numbered(names)


def test_loose_match_says_what_is_missing_left_over_and_of_another_shape() -> None:
    """A classifier for other classes: its body is taken, below whatever prefix, and the rest is named."""
    weights = {
        "module.body.weight": torch.ones(3, 2),
        "module.head.weight": torch.ones(1000, 3),
        "module.head.bias": torch.ones(1000),
        "epoch": torch.tensor(3),
    }
    match = match_loosely(weights, {"body.weight": (3, 2), "head.weight": (10, 3), "neck.weight": (3, 3)})
    assert list(match.weights) == ["body.weight"]
    assert match.weights["body.weight"] is weights["module.body.weight"]
    assert match.missing == ("neck.weight",)
    assert match.misshaped == {"head.weight": (1000, 3)}
    assert match.left_over == ("module.head.bias", "epoch")


def test_loose_match_of_a_backbone_finds_it_within_the_model() -> None:
    """Weights of a part alone: shapes tell which part of the model it is."""
    wanted = {"model.stem.weight": (4,), "stem.weight": (2,), "head.weight": (4,)}
    match = match_loosely({"stem.weight": torch.ones(4)}, wanted)
    assert list(match.weights) == ["model.stem.weight"]
    assert match.missing == ("stem.weight", "head.weight")
    assert match_loosely({}, wanted).missing == tuple(wanted)
