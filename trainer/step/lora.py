"""LoRA: linear layers whose weights stay as they are, beside a trained product of two thin matrices.

Hu et al., LoRA: Low-Rank Adaptation of Large Language Models (2021): W x + (alpha / rank) B A x. B begins as zeros, so
that training starts from the unchanged model.
"""

import math
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

import torch
from torch import nn
from torch.nn import functional

from trainer.base.errors import BadRequestError

# Shape legend: I features in, O features out, R rank.
_SHOWN = 12


class LowRankLinear(nn.Linear):
    """A linear layer with an adapter. The layer's weight and bias are the given ones, under the same names, frozen.

    The adapter `lora_A` (R, I) and `lora_B` (O, R) is float32 whatever the weight is: its steps are too small for 16
    bits.
    """

    def __init__(self, linear: nn.Linear, *, rank: int, alpha: float, dropout: float = 0.0) -> None:
        has_bias = linear.bias is not None
        super().__init__(linear.in_features, linear.out_features, bias=has_bias, device="meta")
        self.weight, self.bias = linear.weight, linear.bias
        device = linear.weight.device
        self.lora_A = nn.Parameter(torch.empty(rank, self.in_features, device=device))
        self.lora_B = nn.Parameter(torch.zeros(self.out_features, rank, device=device))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))
        self.scale = alpha / rank
        self.dropout = dropout
        self.is_merged = False
        self.train(linear.training)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map (..., I) to (..., O)."""
        outputs = functional.linear(inputs, self.weight, self.bias)
        if self.is_merged:
            return outputs
        dropped = functional.dropout(inputs, self.dropout, self.training).to(self.lora_A.dtype)
        low_rank = functional.linear(functional.linear(dropped, self.lora_A), self.lora_B)
        return outputs + (self.scale * low_rank).to(outputs.dtype)

    @torch.no_grad()
    def merged_weight(self) -> torch.Tensor:
        """Return the weight with the adapter in it, rounded once to the weight's type."""
        if self.is_merged:
            return self.weight
        return (self.weight.float() + self.product()).to(self.weight.dtype)

    @torch.no_grad()
    def product(self) -> torch.Tensor:
        """Return the adapter's part of the weight, (O, I) in float32."""
        return self.scale * (self.lora_B.float() @ self.lora_A.float())

    def extra_repr(self) -> str:
        """Describe the layer for print(model)."""
        return f"{super().extra_repr()}, rank={len(self.lora_A)}, scale={self.scale:g}, dropout={self.dropout}"


def add_adapters(
    model: nn.Module, targets: Sequence[str], *, rank: int, alpha: float, dropout: float = 0.0
) -> list[str]:
    """Freeze a model, and put an adapter into each linear layer that a pattern names.

    Args:
        model: changed in place; its weights keep their names and values.
        targets: patterns of shell style for full names (`*.self_attn.?_proj`), or the last part of a name (`q_proj`).
        rank: columns of the thin matrices.
        alpha: the adapter's scale is alpha / rank.
        dropout: of the adapter's input, in training.

    Returns:
        The names of these layers.

    Raises:
        BadRequestError: no linear layer has such a name.
    """
    linear = {name: module for name, module in model.named_modules() if type(module) is nn.Linear}
    chosen = [name for name in linear if any(_names(target, name) for target in targets)]
    if not chosen:
        ends = sorted({name.rpartition(".")[2] for name in linear})
        raise BadRequestError(
            f"no linear layer of the model is called {', '.join(targets)}",
            why=f"it has {', '.join(ends[:_SHOWN]) or 'none at all'}",
            fix="name some of these, or patterns of full names, with --set lora.targets=...",
        )
    model.requires_grad_(requires_grad=False)
    for name in chosen:
        parent, _, last = name.rpartition(".")
        adapted = LowRankLinear(linear[name], rank=rank, alpha=alpha, dropout=dropout)
        setattr(model.get_submodule(parent), last, adapted)
    return chosen


@torch.no_grad()
def merge_adapters(model: nn.Module) -> None:
    """Add the adapters to the weights, in place: the model computes the same, faster."""
    for _, layer in list_adapters(model):
        if not layer.is_merged:
            layer.weight.copy_(layer.merged_weight())
            layer.is_merged = True


@torch.no_grad()
def unmerge_adapters(model: nn.Module) -> None:
    """Undo `merge_adapters`; the weights are the former ones except for rounding."""
    for _, layer in list_adapters(model):
        if layer.is_merged:
            layer.weight.copy_((layer.weight.float() - layer.product()).to(layer.weight.dtype))
            layer.is_merged = False


def merged_weights(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return the weights of the model as it was before `add_adapters`, with the adapters in them; nothing changes."""
    weights: dict[str, torch.Tensor] = dict(model.state_dict())
    for name, layer in list_adapters(model):
        prefix = f"{name}." if name else ""
        weights[f"{prefix}weight"] = layer.merged_weight()
        del weights[f"{prefix}lora_A"], weights[f"{prefix}lora_B"]
    return weights


def list_adapters(model: nn.Module) -> Iterator[tuple[str, LowRankLinear]]:
    """List a model's layers with adapters, by name."""
    return ((name, module) for name, module in model.named_modules() if isinstance(module, LowRankLinear))


def _names(target: str, name: str) -> bool:
    return fnmatchcase(name, target) or name.rpartition(".")[2] == target
