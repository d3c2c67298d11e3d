"""DINOv2's vision transformer (Oquab et al. 2023, arXiv:2304.07193), with the names of the official checkpoints.

The files dinov2_vits14_pretrain.pth, _vitb14_ and _vitl14_ of github.com/facebookresearch/dinov2 load as they are.
Width and depth are read from the weights. Those with registers are refused: their features are others.
"""

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn import functional

from trainer.base.errors import BadRequestError

# Shape legend: B batch, H height, W width, N tokens, D width, G patches along a side, A heads, E width of a head.
PATCH = 14
_HEAD = 64
"""Width of an attention head, in all sizes (Dosovitskiy et al. 2021, arXiv:2010.11929, table 1)."""
_EPSILON = 1e-6
_UNUSED = {"mask_token"}
"""Only training needs it."""
Weights = Mapping[str, torch.Tensor]


class DinoV2(nn.Module):
    """Maps pictures (B, 3, H, W), normalised, with sides that are multiples of 14, to patch features."""

    def __init__(self, width: int, depth: int, grid: int) -> None:
        """Make the network; `grid` is the number of patches along a side for which it has positions."""
        super().__init__()
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + grid * grid, width))
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(3, width, PATCH, PATCH)})
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.norm = nn.LayerNorm(width, eps=_EPSILON)

    def forward(self, images_B3HW: torch.Tensor) -> torch.Tensor:
        """Return the normalised patch tokens of the last block, (B, rows, columns, D)."""
        patches_BDGG = self.patch_embed["proj"](images_B3HW)
        batch, width, rows, columns = patches_BDGG.shape
        tokens_BND = torch.cat([self.cls_token.expand(batch, -1, -1), patches_BDGG.flatten(2).mT], 1)
        tokens_BND = tokens_BND + self._place(rows, columns)
        for block in self.blocks:
            tokens_BND = block(tokens_BND)
        patches_BND: torch.Tensor = self.norm(tokens_BND)[:, 1:]
        return patches_BND.reshape(batch, rows, columns, width)

    def _place(self, rows: int, columns: int) -> torch.Tensor:
        """Return the positions' embedding, (1, N, D), interpolated if the picture has another number of patches."""
        grid = round((self.pos_embed.shape[1] - 1) ** 0.5)
        if (rows, columns) == (grid, grid):
            return self.pos_embed
        square_1DGG = self.pos_embed[:, 1:].mT.reshape(1, -1, grid, grid)
        resized = functional.interpolate(square_1DGG, (rows, columns), mode="bicubic", align_corners=False)
        return torch.cat([self.pos_embed[:, :1], resized.flatten(2).mT], 1)


class Block(nn.Module):
    """Attention and an MLP, each after a layer normalisation, scaled, and added."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=_EPSILON), nn.LayerNorm(width, eps=_EPSILON)
        self.attn, self.mlp = Attention(width), Mlp(width)
        self.ls1, self.ls2 = (nn.ParameterDict({"gamma": nn.Parameter(torch.ones(width))}) for _ in range(2))

    def forward(self, tokens_BND: torch.Tensor) -> torch.Tensor:
        """Return tokens of the same shape."""
        tokens_BND = tokens_BND + self.ls1["gamma"] * self.attn(self.norm1(tokens_BND))
        added_BND: torch.Tensor = tokens_BND + self.ls2["gamma"] * self.mlp(self.norm2(tokens_BND))
        return added_BND


class Attention(nn.Module):
    """Self-attention with heads of 64."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, tokens_BND: torch.Tensor) -> torch.Tensor:
        """Return tokens of the same shape."""
        batch, count, _ = tokens_BND.shape
        three_BN3AE = self.qkv(tokens_BND).reshape(batch, count, 3, -1, _HEAD)
        query_BANE, key_BANE, value_BANE = three_BN3AE.permute(2, 0, 3, 1, 4)
        mixed_BANE = functional.scaled_dot_product_attention(query_BANE, key_BANE, value_BANE)
        mixed_BND: torch.Tensor = self.proj(mixed_BANE.transpose(1, 2).flatten(2))
        return mixed_BND


class Mlp(nn.Module):
    """Two layers with GELU between them, four times as wide inside."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, tokens_BND: torch.Tensor) -> torch.Tensor:
        """Return tokens of the same shape."""
        mapped_BND: torch.Tensor = self.fc2(functional.gelu(self.fc1(tokens_BND)))
        return mapped_BND


def build_dinov2(weights: Weights, origin: str) -> DinoV2:
    """Make the network that these weights belong to, in evaluation mode.

    Raises:
        BadRequestError: they are no DINOv2 weights of this kind.
    """
    weights = {name: tensor for name, tensor in weights.items() if name not in _UNUSED}
    try:
        width, grid = weights["pos_embed"].shape[2], round((weights["pos_embed"].shape[1] - 1) ** 0.5)
        depth = len({name.split(".")[1] for name in weights if name.startswith("blocks.")})
        with torch.device("meta"):
            model = DinoV2(width, depth, grid)
        model.load_state_dict(weights, assign=True)
    except (KeyError, IndexError, ValueError, RuntimeError) as err:
        why = f"it has no {err}" if isinstance(err, KeyError) else " ".join(str(err).split())[:300]
        raise BadRequestError(
            f"{origin} has no weights of DINOv2 without registers",
            why=why,
            fix="give the official dinov2_vits14_pretrain.pth (or vitb14, vitl14)",
        ) from err
    return model.float().eval().requires_grad_(False)
