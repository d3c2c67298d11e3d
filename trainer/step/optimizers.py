"""Makes the optimizer: its groups, the optimizers of the settings, and a recipe's own.

Muon: Jordan et al., Muon: An optimizer for hidden layers in neural networks (2024). It is for hidden weights of two
dimensions; embeddings, the output layer and everything else are updated by AdamW. Both get the same rate, because
Muon's updates are scaled to the size of AdamW's (Liu et al., Muon is Scalable for LLM Training, 2025, section 2.2).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from trainer.base.config import OptimizerSettings
from trainer.base.errors import BadRequestError
from trainer.base.recipe import Workload

State = dict[str, Any]
Group = dict[str, Any]
BETAS = 2
"""How many moving averages Adam has."""
_MUON_DIMENSIONS = 2
_HALF = {torch.bfloat16, torch.float16}
_FUSED_ON = ("cpu", "cuda")
_NORMS = (
    nn.modules.batchnorm._BatchNorm,
    nn.modules.instancenorm._InstanceNorm,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
)
# What the settings and the recipe say now counts, not what they said when a checkpoint was written. Other keys of a
# group belong to the optimizer: some keep state there.
_FROM_SETTINGS = ("weight_decay", "momentum", "nesterov", "betas", "lr_scale", "fused", "foreach")


def check_optimizer(settings: OptimizerSettings, model: nn.Module, device: torch.device) -> None:
    """Check before the run starts that the optimizer of the settings can train this model on this device.

    Raises:
        BadRequestError: it can't.
    """
    half_types = _HALF & {parameter.dtype for parameter in model.parameters()}
    if half_types and settings.name == "sgd" and device.type == "cpu":
        raise BadRequestError(
            "optimizer.name=sgd does not train this model on a CPU",
            why=f"torch's fused SGD doesn't update most {half_types.pop()} weights there (torch 2.13)",
            fix="use --set optimizer.name=adamw, or single precision weights with --set compute.amp=bf16",
        )
    if len(settings.betas) != BETAS:
        raise BadRequestError(
            f"optimizer.betas has {len(settings.betas)} values",
            why="Adam has two moving averages: of gradients, and of their squares",
            fix="--set optimizer.betas=0.9,0.999",
        )
    if settings.name == "muon" and not hasattr(torch.optim, "Muon"):
        raise BadRequestError(
            "optimizer.name=muon needs a newer torch",
            why=f"torch {torch.__version__} has no torch.optim.Muon; it came with 2.9",
            fix="install torch 2.9 or newer, or use --set optimizer.name=adamw",
        )


def make_optimizer(settings: OptimizerSettings, model: nn.Module, workload: Workload) -> torch.optim.Optimizer:
    """Make the optimizer of all parameters, the recipe's own if it has one.

    Its groups know their parameters' names (`param_names`), by which a checkpoint's moments find them.

    Args:
        settings: the run's.
        model: the model in training, on its device, its parameters sharded if they are to be.
        workload: the recipe's groups and optimizer.

    Raises:
        BadRequestError: the recipe's groups don't have every trainable parameter exactly once.
    """
    names = {parameter: name for name, parameter in model.named_parameters()}
    groups = [dict(group) for group in workload.parameter_groups(model)] if workload.parameter_groups else []
    groups = groups or make_default_groups(settings, model)
    optimizer = (workload.make_optimizer or _of_settings(settings, model))(groups)
    _check_groups(optimizer, names)
    for group in optimizer.param_groups:
        group["param_names"] = [names[parameter] for parameter in group["params"]]
    return optimizer


def make_default_groups(settings: OptimizerSettings, model: nn.Module) -> list[Group]:
    """Make one group of all parameters, or two: with weight decay, and biases and normalisation layers without."""
    if settings.decay_norms:
        return [{"params": list(model.parameters())}]
    norms = [module for module in model.modules() if isinstance(module, _NORMS)]
    of_norms = {parameter for norm in norms for parameter in norm.parameters()}
    groups: list[Group] = [{"params": []}, {"params": [], "weight_decay": 0.0}]
    for parameter in model.parameters():
        groups[parameter.dim() <= 1 or parameter in of_norms]["params"].append(parameter)
    return [group for group in groups if group["params"]]


def can_skip_on_device(optimizer: torch.optim.Optimizer) -> bool:
    """Tell whether `optimizer.found_inf` makes the optimizer skip a step on the device, without a sync.

    Torch's own GradScaler asks the same way; fused optimizers can.
    """
    return bool(getattr(optimizer, "_step_supports_amp_scaling", False))


def use_present_options(state: State, optimizer: torch.optim.Optimizer) -> State:
    """Return a checkpoint's state, whose groups are this optimizer's, with the options of this start."""
    pairs = zip(state["param_groups"], optimizer.state_dict()["param_groups"], strict=True)
    return {**state, "param_groups": [_with_options_of(new, old) for old, new in pairs]}


class MuonWithAdamW(torch.optim.Optimizer):
    """Muon and AdamW as one optimizer, with one state and one list of groups; a group's `muon` says whose it is.

    It can't skip a step on the device.
    """

    def __init__(self, groups: Sequence[Mapping[str, Any]], settings: OptimizerSettings) -> None:
        kinds = {True: [dict(group) for group in groups if group["muon"]], False: []}
        kinds[False] = [dict(group) for group in groups if not group["muon"]]
        self._parts: dict[bool, torch.optim.Optimizer] = {True: _make_muon(kinds[True], settings)}
        if kinds[False]:
            self._parts[False] = _make_adam(torch.optim.AdamW, kinds[False], settings)
        # The parts have filled in their own defaults.
        super().__init__([group for part in self._parts.values() for group in part.param_groups], {})
        self._share()

    def load_state_dict(self, state_dict: State) -> None:
        """Restore what `state_dict` returned."""
        super().load_state_dict(state_dict)
        self._share()

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]  # torch's has overloads
        """Update all parameters; a closure, which recomputes the loss, is called once."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self._parts.values():
            part.step()
        return loss

    def _share(self) -> None:
        """Let the parts work on this optimizer's groups and state, which are new objects after a load."""
        for is_muon, part in self._parts.items():
            part.state = self.state
            part.param_groups = [group for group in self.param_groups if group["muon"] is is_muon]


def _of_settings(
    settings: OptimizerSettings, model: nn.Module
) -> Callable[[Sequence[Mapping[str, Any]]], torch.optim.Optimizer]:
    """Return the function that makes the optimizer of the settings from groups."""
    return {
        "adamw": lambda groups: _make_adam(torch.optim.AdamW, groups, settings),
        "adam": lambda groups: _make_adam(torch.optim.Adam, groups, settings),
        "sgd": lambda groups: _make_sgd(groups, settings),
        "muon": lambda groups: MuonWithAdamW(_split_for_muon(groups, model), settings),
    }[settings.name]


def _make_adam(
    kind: type[torch.optim.Adam], groups: Sequence[Mapping[str, Any]], settings: OptimizerSettings
) -> torch.optim.Optimizer:
    first, second = settings.betas
    return kind(
        [dict(group) for group in groups],
        lr=settings.rate,
        betas=(first, second),
        weight_decay=settings.weight_decay,
        fused=_can_be_fused(groups),
    )


def _make_sgd(groups: Sequence[Mapping[str, Any]], settings: OptimizerSettings) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(
        [dict(group) for group in groups],
        lr=settings.rate,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        nesterov=settings.momentum > 0,
        fused=_can_be_fused(groups) and not _are_sharded(groups),  # torch has no fused SGD of sharded tensors (2.13)
    )
    # A first step that is skipped would leave uninitialised memory in the momentum buffers (torch 2.13).
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if group["momentum"] and parameter.requires_grad:
                optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer


def _make_muon(groups: Sequence[Mapping[str, Any]], settings: OptimizerSettings) -> torch.optim.Optimizer:
    if not groups:
        raise BadRequestError(
            "optimizer.name=muon has nothing to train in this model",
            why="Muon is for hidden weights of two dimensions, without embeddings and the last linear layer",
            fix="use --set optimizer.name=adamw",
        )
    return torch.optim.Muon(
        [dict(group) for group in groups],
        lr=settings.rate,
        weight_decay=settings.weight_decay,
        momentum=settings.momentum,
        nesterov=settings.momentum > 0,
        adjust_lr_fn="match_rms_adamw",
    )


def _split_for_muon(groups: Sequence[Mapping[str, Any]], model: nn.Module) -> list[Group]:
    """Split each group that doesn't say by `muon` whose it is; Muon gets hidden weights of two dimensions."""
    outer = _outer_weights(model)
    split: list[Group] = []
    for group in groups:
        parameters = [group["params"]] if isinstance(group["params"], torch.Tensor) else list(group["params"])
        hidden = [item for item in parameters if item.dim() == _MUON_DIMENSIONS and item not in outer]
        if group.get("muon"):
            _check_matrices(parameters)
        chosen = {True: hidden, False: [item for item in parameters if item not in set(hidden)]}
        if "muon" in group:
            chosen = {bool(group["muon"]): parameters}
        split += [{**group, "params": items, "muon": is_muon} for is_muon, items in chosen.items() if items]
    return split


def _outer_weights(model: nn.Module) -> set[nn.Parameter]:
    """Return the weights of embeddings, of the last linear layer, and of normalisation layers."""
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    outer = [module for module in model.modules() if isinstance(module, (nn.Embedding, nn.EmbeddingBag, *_NORMS))]
    return {parameter for module in (*outer, *linear[-1:]) for parameter in module.parameters()}


def _check_matrices(parameters: Sequence[torch.Tensor]) -> None:
    others = [tuple(item.shape) for item in parameters if item.dim() != _MUON_DIMENSIONS]
    if others:
        raise BadRequestError(
            "a parameter group of the recipe is not for Muon",
            why=f'the group has "muon": True and a parameter of shape {others[0]}; Muon is for two dimensions',
            fix='leave "muon" out of the group: its parameters are then split by their dimensions',
        )


def _check_groups(optimizer: torch.optim.Optimizer, names: Mapping[nn.Parameter, str]) -> None:
    grouped = {parameter for group in optimizer.param_groups for parameter in group["params"]}
    left_out = [name for parameter, name in names.items() if parameter.requires_grad and parameter not in grouped]
    if left_out:
        raise BadRequestError(
            f"no parameter group of the recipe has {left_out[0]}",
            why=f"{len(left_out)} trainable parameters would never be updated",
            fix="add them to a group, or freeze them in the recipe's build with requires_grad_(False)",
        )
    if grouped - names.keys():
        raise BadRequestError(
            "a parameter group of the recipe has a parameter that isn't the model's",
            why="only the model's parameters are saved and averaged over the processes",
            fix="make it a parameter of the model",
        )


def _can_be_fused(groups: Sequence[Mapping[str, Any]]) -> bool:
    parameters = [item for group in groups for item in _as_list(group["params"])]
    return all(item.is_floating_point() and item.device.type in _FUSED_ON for item in parameters)


def _are_sharded(groups: Sequence[Mapping[str, Any]]) -> bool:
    # By an attribute of DTensor: its import takes most of a second.
    return any(hasattr(item, "device_mesh") for group in groups for item in _as_list(group["params"]))


def _as_list(parameters: Any) -> list[torch.Tensor]:
    return [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)


def _with_options_of(new: Group, old: Group) -> Group:
    """Return a checkpoint's group with the options of this start, without those that it has no more."""
    kept = {key: value for key, value in old.items() if key not in _FROM_SETTINGS}
    return {**kept, **{key: new[key] for key in _FROM_SETTINGS if key in new}}
