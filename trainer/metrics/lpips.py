"""LPIPS: how different two pictures look, by a network's features (Zhang et al. 2018, arXiv:1801.03924, equation 1).

The weights come from the user, in the files that the package lpips reads: torchvision's AlexNet or VGG16 (names
`features.0.weight`) and its own `lin0.model.1.weight`, or the state dict of its LPIPS, which has both.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

from trainer.base.errors import BadRequestError

# Shape legend: B batch, C channels, H height, W width.
# For pictures in [-1, 1] (github.com/richzhang/PerceptualSimilarity, lpips/lpips.py, ScalingLayer).
_SHIFT, _SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)
_LEAST_NORM = 1e-10
_FEATURE = re.compile(r"(?:features|net\.slice\d)\.(\d+\.(?:weight|bias))")
_HEAD = re.compile(r"lins?\.?(\d)\.model\.\d\.weight")


class _Convolution(NamedTuple):
    """Its number in torchvision's `features`, its channels, its kernel."""

    number: int
    inputs: int
    outputs: int
    kernel: int = 3
    stride: int = 1

    def build(self) -> nn.Conv2d:
        padding = 2 if self.kernel > 3 else 1
        return nn.Conv2d(self.inputs, self.outputs, self.kernel, self.stride, padding)


class _Network(NamedTuple):
    """A network's stages, compared after their last ReLU; those in `pooled` begin with a max pooling of stride 2."""

    window: int
    pooled: frozenset[int]
    stages: tuple[tuple[_Convolution, ...], ...]


_C = _Convolution
# Simonyan and Zisserman 2014 (arXiv:1409.1556, table 1, D); Krizhevsky 2014 (arXiv:1404.5997): torchvision's versions.
_VGG16 = _Network(
    2,
    frozenset({1, 2, 3, 4}),
    (
        (_C(0, 3, 64), _C(2, 64, 64)),
        (_C(5, 64, 128), _C(7, 128, 128)),
        (_C(10, 128, 256), _C(12, 256, 256), _C(14, 256, 256)),
        (_C(17, 256, 512), _C(19, 512, 512), _C(21, 512, 512)),
        (_C(24, 512, 512), _C(26, 512, 512), _C(28, 512, 512)),
    ),
)
_ALEXNET = _Network(
    3,
    frozenset({1, 2}),
    ((_C(0, 3, 64, 11, 4),), (_C(3, 64, 192, 5),), (_C(6, 192, 384),), (_C(8, 384, 256),), (_C(10, 256, 256),)),
)


class Lpips(nn.Module):
    """Maps two batches of pictures in [0, 1], (B, 3, H, W), to their distances, (B,); its weights are fixed.

    Pictures have at least 31 x 31 pixels for AlexNet, 16 x 16 for VGG16. It computes in its weights' dtype, also under
    autocast.
    """

    shift: torch.Tensor
    scale: torch.Tensor

    def __init__(self, network: _Network) -> None:
        super().__init__()
        self.window, self.pooled = network.window, network.pooled
        self.stages = nn.ModuleList(_stack(stage) for stage in network.stages)
        self.heads = nn.ParameterList(torch.zeros(1, stage[-1].outputs, 1, 1) for stage in network.stages)
        for name, values in (("shift", _SHIFT), ("scale", _SCALE)):
            self.register_buffer(name, torch.tensor(values, device="cpu").reshape(1, 3, 1, 1), persistent=False)

    def forward(self, ours_BCHW: torch.Tensor, theirs_BCHW: torch.Tensor) -> torch.Tensor:
        """Return the sum over the stages of the weighted squared differences of unit feature vectors, averaged."""
        with torch.autocast(ours_BCHW.device.type, enabled=False):
            pairs = zip(self._describe(ours_BCHW), self._describe(theirs_BCHW), self.heads, strict=True)
            distances = [((left - right).square() * head).sum(1).mean((1, 2)) for left, right, head in pairs]
            return torch.stack(distances).sum(0)

    def _describe(self, images_BCHW: torch.Tensor) -> Iterator[torch.Tensor]:
        values_BCHW = (2 * images_BCHW.to(self.shift) - 1 - self.shift) / self.scale
        for number, stage in enumerate(self.stages):
            if number in self.pooled:
                values_BCHW = functional.max_pool2d(values_BCHW, self.window, 2)
            values_BCHW = stage(values_BCHW)
            yield functional.normalize(values_BCHW, dim=1, eps=_LEAST_NORM)


def _stack(stage: tuple[_Convolution, ...]) -> nn.Sequential:
    return nn.Sequential(*(layer for each in stage for layer in (each.build(), nn.ReLU())))


def build_lpips(weights: Mapping[str, torch.Tensor], origin: str) -> Lpips:
    """Make LPIPS of these weights, whose network is told by their shapes.

    Args:
        weights: of the network and of the heads together; other entries are ignored.
        origin: the files, for an error.

    Raises:
        BadRequestError: some are missing, or don't fit.
    """
    features = {match[1]: tensor for name, tensor in weights.items() if (match := _FEATURE.fullmatch(name))}
    heads = {f"heads.{match[1]}": tensor for name, tensor in weights.items() if (match := _HEAD.fullmatch(name))}
    first = features.get("0.weight")
    network = _ALEXNET if first is not None and first.shape[-1:] == (11,) else _VGG16
    names = {
        f"{each.number}.{part}": f"stages.{s}.{2 * i}.{part}"
        for s, stage in enumerate(network.stages)
        for i, each in enumerate(stage)
        for part in ("weight", "bias")
    }
    renamed = {names[name]: tensor for name, tensor in features.items() if name in names} | heads
    lpips = Lpips(network)
    try:
        lpips.load_state_dict(renamed)
    except RuntimeError as err:
        raise BadRequestError(
            f"{origin}: these are no weights of LPIPS",
            why=" ".join(str(err).split())[:300],
            fix="give two files with a comma between them: torchvision's alexnet-owt-7be5be79.pth and lpips' "
            "weights/v0.1/alex.pth, or vgg16-397923af.pth and vgg.pth",
        ) from err
    return lpips.eval().requires_grad_(False)
