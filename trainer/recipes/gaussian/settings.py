"""The settings of the recipe `gaussian`."""

from dataclasses import dataclass, field
from typing import Literal

from trainer.api import Settings, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSettings:
    """The pictures and what was computed of them."""

    folder: str = setting("", "has X.jpg, and features/ with X_dinov2.bin and X_depth.bin")
    features: Literal["auto", "small", "base", "large"] = setting(
        "auto", "whose DINOv2 files are read; auto: those that are there"
    )
    pixels: int = setting(256, "side of the square that is rendered and compared", minimum=16)
    max_images: int = setting(0, "use only the first so many pictures; 0: all", minimum=0)
    held_out: float = setting(0.1, "share of the pictures that validate, always the same ones", above=0, below=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """The decoder."""

    gaussians_per_patch: int = setting(4, "K: 37 x 37 x K Gaussians a picture", minimum=1)
    dropout: float = setting(0.1, "after each hidden layer", minimum=0, below=1)
    upright: bool = setting(True, "false: the rows of patches are upside down, as in fresnel's own checkpoints")
    near_in_front: bool = setting(False, "true: depth 1, near, is rendered nearest; false: farthest, as in fresnel")


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSettings:
    """The weights of the loss's parts; the L1 of the colours has 1."""

    ssim: float = setting(0.5, "weight of 1 - SSIM", minimum=0, change="announced")
    depth: float = setting(0.1, "weight of the L1 of the standardised depths", minimum=0, change="announced")
    lpips: float = setting(0.1, "weight of LPIPS, where its weights are given", minimum=0, change="announced")
    lpips_weights: tuple[str, ...] = setting(
        (),
        "files alexnet-owt-7be5be79.pth,alex.pth (or vgg16-397923af.pth,vgg.pth); none: no LPIPS",
        change="announced",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HftsSettings:
    """Hybrid fast training: small pictures, few Gaussians. Validation always has all pixels and all Gaussians."""

    enabled: bool = setting(False, "K grows with the run: 1, 2, 4, then all, in quarters")
    pixels: int = setting(64, "side of the training pictures", minimum=16)
    kept: int = setting(256, "Gaussians of a picture that are rendered, drawn by opacity; 0: all", minimum=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianSettings(Settings):
    """All settings of this recipe."""

    data: DataSettings = field(default_factory=DataSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    loss: LossSettings = field(default_factory=LossSettings)
    hfts: HftsSettings = field(default_factory=HftsSettings)
