"""HFTS: how the number of Gaussians grows, and which are kept."""

from __future__ import annotations

import pytest
import torch

from trainer.recipes.gaussian.decoder import Gaussians
from trainer.recipes.gaussian.hfts import grow, keep_some


@pytest.mark.parametrize(("per_patch", "stages"), [(4, [1, 2, 4, 4]), (8, [1, 2, 4, 8]), (1, [1, 1, 1, 1])])
def test_gaussians_of_a_patch_grow_by_quarters(per_patch: int, stages: list[int]) -> None:
    """1, 2, 4, then all; never more than there are."""
    assert [grow(fraction, per_patch) for fraction in (0, 0.25, 0.5, 0.75)] == stages
    assert [grow(fraction, per_patch) for fraction in (0.2499, 0.4999, 0.7499, 1.0)] == stages


def make(opacities: torch.Tensor) -> Gaussians:
    """Gaussians whose values are their numbers."""
    number = torch.arange(opacities.shape[1]).float().expand(opacities.shape)
    three, four = (number[..., None].expand(*number.shape, width) for width in (3, 4))
    return Gaussians(positions=three, scales=three, rotations=four, colours=three, opacities=opacities)


def test_kept_gaussians_are_drawn_by_opacity() -> None:
    """The first draw of many has chances in proportion to the opacities of its own picture."""
    opacities = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]]).repeat(5000, 1)
    torch.manual_seed(0)
    kept = keep_some(make(opacities), 1).positions[:, 0, 0].long().reshape(5000, 2)
    for column, chances in enumerate(opacities[:2]):
        shares = torch.bincount(kept[:, column], minlength=4) / 5000
        torch.testing.assert_close(shares, chances, atol=0.03, rtol=0)


def test_kept_gaussians_are_different_ones_in_order_and_whole() -> None:
    """All values of a Gaussian stay together, and nothing is drawn twice."""
    opacities = torch.rand(3, 50).requires_grad_()
    kept = keep_some(make(opacities), 20)
    numbers = kept.positions[..., 0].long()
    assert (numbers.diff(dim=1) > 0).all()
    for part in kept[:4]:
        assert (part.long() == numbers[..., None]).all()
    torch.testing.assert_close(kept.opacities, opacities.gather(1, numbers))


def test_opacities_that_are_no_numbers_leave_it_to_the_loss() -> None:
    """The trainer skips a step whose loss is not finite; a draw that raises would end the run, and each restart."""
    opacities = torch.rand(2, 50)
    opacities[0] = torch.nan
    kept = keep_some(make(opacities), 20)
    assert kept.opacities.shape == (2, 20)
    assert kept.opacities[0].isnan().all()
    assert (kept.positions[..., 0].diff(dim=1) > 0).all()


def test_all_are_kept_if_they_are_few() -> None:
    """Also those that can't be seen."""
    gaussians = make(torch.zeros(2, 5))
    assert keep_some(gaussians, 256) is gaussians
    assert keep_some(gaussians, 3).opacities.shape == (2, 3)
