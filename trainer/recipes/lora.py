"""Fine-tuning of a causal language model from a local folder, by low-rank adapters (LoRA).

--set model.path=FOLDER     a Hugging Face folder (config.json, safetensors); needs the package transformers
--set model.path=FILE.py    a file of yours with `def load() -> nn.Module`, which maps tokens (B, L) to logits (B, L, V)
--set data.path=FILE        .jsonl with a "text" or "tokens", or a "prompt" and its "completion", a line; or .txt

Texts are packed into rows, and a model whose forward has the arguments `position_ids` and `attention_mask`, as most of
transformers' have, keeps them apart: it is called with (tokens (B, L), position_ids=(B, L), from 0 in each text,
attention_mask=(B, 1, L, L), true where a place attends to another). One without them is called with the tokens alone,
and attends to the texts before in its row.

Only the adapters are trained and saved. With "prompt" and "completion" only the completion's tokens count.
"""

import importlib.util
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from trainer.base.config import OptimizerSettings, ScheduleSettings, Settings
from trainer.base.errors import BadRequestError, first_line
from trainer.base.recipe import Recipe, Workload
from trainer.base.setting import setting
from trainer.base.sources import Batch, SampleSource
from trainer.data.packing import IGNORED, PackedText, mask_documents
from trainer.data.sources import split
from trainer.step.lora import add_adapters, merged_weights

# Shape legend: B batch, L tokens of a row, V vocabulary.
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")
Tokenize = Callable[[str], list[int]]
_FEWEST_ROWS = 2


class Document(NamedTuple):
    """A text's tokens, and for each 1 if it counts, else 0."""

    tokens: list[int]
    counted: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraModelSettings:
    """The model that is fine-tuned."""

    path: str = setting("", "a Hugging Face folder, or a file FILE.py with load()")
    bf16: bool = setting(False, "keep the frozen weights in bfloat16, which takes half of their memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraSettings:
    """The adapters."""

    rank: int = setting(8, "columns of an adapter's matrices", minimum=1)
    alpha: float = setting(16.0, "an adapter is scaled by alpha / rank", above=0)
    dropout: float = setting(0.0, "of an adapter's input", minimum=0, below=1)
    targets: tuple[str, ...] = setting(("q_proj", "v_proj"), "linear layers, by their last name or a pattern")
    export: Literal["adapter", "merged"] = setting(
        "adapter", "model.safetensors: the adapters alone, or the whole model with them in its weights", change="freely"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraDataSettings:
    """The texts."""

    path: str = setting("", "a file of texts: .jsonl or .txt")
    validation_path: str = setting("", "another one, for validation; empty: a share of the rows")
    validation_share: float = setting(0.05, "the share of the rows that is held out", above=0, below=1)
    length: int = setting(256, "tokens of a row, into which texts are packed", minimum=2)
    end: int = setting(-1, "the token after each text; -1: the tokenizer's end of text, or none", minimum=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraRecipeSettings(Settings):
    """All settings of this recipe."""

    model: LoraModelSettings = field(default_factory=LoraModelSettings)
    lora: LoraSettings = field(default_factory=LoraSettings)
    data: LoraDataSettings = field(default_factory=LoraDataSettings)


def recipe() -> Recipe[LoraRecipeSettings]:
    """Return the default configuration."""
    settings = LoraRecipeSettings(
        epochs=3,
        batch_size=16,
        optimizer=OptimizerSettings(learning_rate=2e-4, weight_decay=0.0),
        schedule=ScheduleSettings(warmup_steps=20),
        onnx=False,
    )
    return Recipe(settings=settings, build=build_workload)


def build_workload(settings: LoraRecipeSettings) -> Workload:
    """Load the model and the texts, and add the adapters."""
    model, tokenize, end = load_model(settings.model.path)
    model = model.to(torch.bfloat16 if settings.model.bf16 else torch.float32)
    lora = settings.lora
    add_adapters(model, lora.targets, rank=lora.rank, alpha=lora.alpha, dropout=lora.dropout)
    train, validation = load_rows(settings.data, tokenize, settings.data.end if settings.data.end >= 0 else end)
    return Workload(
        model=model,
        train_data=train,
        validation_data=validation,
        loss=mean_token_loss,  # validated by it too, weighted with its tokens
        weight=count_tokens,
        blocks=find_blocks(model),
        trainable_only=True,
        exports=merged_weights if lora.export == "merged" else None,
        data=f"{Path(settings.data.path).name}, {len(train):,} rows of {settings.data.length} tokens",
    )


class CountedText:
    """Packed texts; a sample is that of `PackedText`, where the label of a token that doesn't count is -100."""

    def __init__(self, documents: Sequence[Document], *, length: int) -> None:
        lengths = [len(document.tokens) for document in documents]
        # Both are packed alike, because the plan depends on the lengths alone.
        self._text = PackedText([document.tokens for document in documents], length=length, lengths=lengths)
        self._counted = PackedText([document.counted for document in documents], length=length, lengths=lengths)

    def __len__(self) -> int:
        """Count the rows."""
        return len(self._text)

    def sample(self, index: int, rng: np.random.Generator) -> Batch:
        """Return one row, without randomness."""
        row, counted_L = self._text.sample(index, rng), self._counted.sample(index, rng)["input_ids"]
        return {**row, "labels": row["labels"].masked_fill(counted_L == 0, IGNORED)}


def mean_token_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Compute the mean cross-entropy of the tokens that count, a scalar."""
    return token_losses(model, batch).sum() / count_tokens(batch).clamp(min=1)


def count_tokens(batch: Batch) -> torch.Tensor:
    """Count the tokens of a batch that count, a scalar on the device."""
    labels_BL: torch.Tensor = batch["labels"]
    return (labels_BL[:, 1:] != IGNORED).sum()


def token_losses(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Compute the cross-entropy of each token but the first, (B, L - 1); 0 where a token doesn't count."""
    logits_BLV = compute_logits(model, batch)[:, :-1]
    next_BL = batch["labels"][:, 1:]
    losses = functional.cross_entropy(
        logits_BLV.flatten(0, 1).float(), next_BL.flatten(), ignore_index=IGNORED, reduction="none"
    )
    losses_BL: torch.Tensor = losses.view_as(next_BL)
    return losses_BL


def compute_logits(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Compute the logits of a batch of packed rows, (B, L, V), each text by itself if the model can."""
    can = _can_keep_apart(type(model))  # type: ignore[arg-type]  # mypy: a class of modules is hashable
    outputs = model(batch["input_ids"], **_keep_apart(model, batch) if can else {})
    logits_BLV: torch.Tensor = getattr(outputs, "logits", outputs)
    return logits_BLV


@cache
def _can_keep_apart(kind: type[nn.Module]) -> bool:
    # A mask alone may be one of the padding, (B, L), as in models without positions.
    return {"position_ids", "attention_mask"} <= signature(kind.forward).parameters.keys()


def _keep_apart(model: nn.Module, batch: Batch) -> dict[str, torch.Tensor]:
    mask = mask_documents(batch["document_ids"])
    if getattr(getattr(model, "config", None), "_attn_implementation", None) == "eager":
        # transformers' own attention adds the mask to the scores.
        dtype = next(model.parameters()).dtype
        mask = torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, torch.finfo(dtype).min)
    return {"position_ids": batch["position_ids"], "attention_mask": mask}


def find_blocks(model: nn.Module) -> list[nn.Module]:
    """Return the model's layers: its longest list of modules, which gradient checkpointing and FSDP work by."""
    lists = [list(module) for module in model.modules() if isinstance(module, nn.ModuleList)]
    return max(lists, key=len, default=[])


def load_model(path: str) -> tuple[nn.Module, Tokenize | None, int]:
    """Load a model with its tokenizer, if it has one, and the token after a text (-1: none).

    Raises:
        BadRequestError: there is no such model, or it can't be loaded.
    """
    if not path or not Path(path).exists():
        raise BadRequestError(
            f"there is no model at {path}" if path else "no model to fine-tune",
            why="model.path is a folder with config.json and safetensors, or a Python file with load()",
            fix="--set model.path=FOLDER",
        )
    if Path(path).is_dir():
        return _load_folder(path)
    spec = importlib.util.spec_from_file_location("lora_model", path)
    module = importlib.util.module_from_spec(spec) if spec and spec.loader else None
    if module is None or spec is None or spec.loader is None:
        raise BadRequestError(f"{path} is no Python file", why="its name has to end in .py", fix="rename it")
    spec.loader.exec_module(module)
    if not hasattr(module, "load"):
        raise BadRequestError(
            f"{path} has no model", why="it has no function load()", fix="add def load() -> nn.Module to it"
        )
    return module.load(), getattr(module, "tokenize", None), -1


def _load_folder(path: str) -> tuple[nn.Module, Tokenize | None, int]:
    try:
        from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415 - only folders need it
    except ImportError as err:
        raise BadRequestError(
            "a Hugging Face folder needs a package that is missing",
            why="transformers is not installed",
            fix="pip install 'kedge-train[lora]', or write a Python file with load() and name it in model.path",
        ) from err
    local = {"local_files_only": True, "trust_remote_code": False}
    try:
        model = AutoModelForCausalLM.from_pretrained(path, use_safetensors=True, **local)
        has_tokenizer = any((Path(path) / name).exists() for name in _TOKENIZER_FILES)
        tokenizer: Any = AutoTokenizer.from_pretrained(path, **local) if has_tokenizer else None
    except (OSError, ValueError) as err:
        raise BadRequestError(
            f"the model in {path} can't be loaded", why=first_line(err), fix="see what transformers says about it"
        ) from err
    model.config.use_cache = False  # of no use in training
    if tokenizer is None:
        return model, None, -1
    end = tokenizer.eos_token_id
    return model, lambda text: list(tokenizer.encode(text, add_special_tokens=False)), -1 if end is None else end


def load_rows(settings: LoraDataSettings, tokenize: Tokenize | None, end: int) -> tuple[SampleSource, SampleSource]:
    """Read the texts, and pack them into rows for training and for validation.

    Raises:
        BadRequestError: a file can't be read, or has too few tokens.
    """
    rows = CountedText(list(read_documents(settings.path, tokenize, end)), length=settings.length)
    if settings.validation_path:
        held_out = list(read_documents(settings.validation_path, tokenize, end))
        return rows, CountedText(held_out, length=settings.length)
    if len(rows) < _FEWEST_ROWS:
        raise BadRequestError(
            "too few tokens to train and to validate",
            why=f"{settings.path} has {len(rows)} rows of {settings.length} tokens",
            fix="use a smaller data.length, or more text",
        )
    return split(rows, settings.validation_share)


def read_documents(path: str, tokenize: Tokenize | None, end: int = -1) -> Iterator[Document]:
    """Read a file's texts; each ends with the token `end`, unless that is -1.

    Raises:
        BadRequestError: it can't be read; the message names the line.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as err:
        raise BadRequestError(
            f"the texts in {path or 'data.path'} can't be read", why=first_line(err), fix="--set data.path=FILE"
        ) from err
    lines = text.splitlines() if path.endswith(".jsonl") else [json.dumps({"text": text})]
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield _parse_document(json.loads(line), tokenize, [end] if end >= 0 else [])
        except (ValueError, KeyError, TypeError) as err:
            raise BadRequestError(
                f"line {number} of {path} is no text",
                why=first_line(err),
                fix='a line is {"text": "..."}, {"tokens": [1, 2]} or {"prompt": "...", "completion": "..."}; texts '
                "need a tokenizer in the model's folder, or tokenize(text) in its Python file",
            ) from err


def _parse_document(line: Mapping[str, Any], tokenize: Tokenize | None, end: list[int]) -> Document:
    if "tokens" in line:
        tokens = [*(int(token) for token in line["tokens"]), *end]
        return Document(tokens, [1] * len(tokens))
    if tokenize is None:
        raise ValueError("the model has no tokenizer, and the line no tokens")
    prompt = tokenize(line["prompt"]) if "prompt" in line else []
    completion = [*tokenize(line["completion" if "prompt" in line else "text"]), *end]
    return Document([*prompt, *completion], [0] * len(prompt) + [1] * len(completion))
