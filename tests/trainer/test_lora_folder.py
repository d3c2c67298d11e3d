"""The recipe `lora` with a Hugging Face folder, which the test writes."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.trainer import harness
from trainer.base.signals import StopFlag
from trainer.checkpoints.document import read_document
from trainer.cli import main
from trainer.data.batch import stack_samples
from trainer.recipes.lora import CountedText, Document, compute_logits, load_model

ADAPTERS = 2 * (4 * 32 + 4 * 32 + 4 * 32 + 4 * 16)
"""Two layers, rank 4: q_proj is 32 x 32, v_proj 16 x 32."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a Llama of two layers, and texts of tokens."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path / "llama")
    line = json.dumps({"tokens": list(range(1, 9)) * 3})
    (tmp_path / "texts.jsonl").write_text(f"{line}\n" * 24)
    return tmp_path


def fine_tune(folder: Path, name: str, *settings: str) -> int:
    places = (f"model.path={folder / 'llama'}", f"data.path={folder / 'texts.jsonl'}")
    sizes = ("epochs=3", "batch_size=4", "lora.rank=4", "data.length=24", "optimizer.learning_rate=0.02")
    argv = ["lora", *harness.settings_args([*places, *sizes, "curves=false", *settings])]
    return main([*argv, "--output-dir", str(folder / name)], environ={}, stop=StopFlag())


def test_folder_is_fine_tuned_and_its_adapters_are_exported(folder: Path) -> None:
    """Its layers recompute, as blocks of gradient checkpointing; no code of the folder is run."""
    assert fine_tune(folder, "output", "compute.gradient_checkpointing=true") == 0
    losses = [row["val_loss"] for row in harness.read_rows(folder / "output") if "val_loss" in row]
    assert losses[-1] < losses[0]
    exported = read_document(folder / "output" / "model.safetensors")["model"]
    assert sum(value.numel() for value in exported.values()) == ADAPTERS


def test_merged_export_loads_into_transformers_own_model(folder: Path) -> None:
    """Under its own names."""
    assert fine_tune(folder, "output", "epochs=1", "lora.export=merged") == 0
    exported = read_document(folder / "output" / "model.safetensors")["model"]
    model = LlamaForCausalLM.from_pretrained(folder / "llama")
    before = model.state_dict()["model.layers.0.self_attn.q_proj.weight"].clone()
    model.load_state_dict(exported)
    assert not torch.equal(model.state_dict()["model.layers.0.self_attn.q_proj.weight"], before)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_texts_of_a_row_are_kept_apart(folder: Path, attention: str) -> None:
    """Each gets the logits that it has alone, whatever stands before it in its row."""
    model, _, _ = load_model(str(folder / "llama"))
    model.set_attn_implementation(attention)  # type: ignore[operator]  # transformers' models have it
    second = [7, 3, 9]

    def logits_of_second(first: Sequence[int]) -> torch.Tensor:
        texts = [text for text in (first, second) if text]
        rows = CountedText([Document(list(text), [1] * len(text)) for text in texts], length=8)
        batch = stack_samples([rows.sample(0, np.random.default_rng(0))])
        begin = len(first)  # the longer text is packed first
        assert batch["input_ids"][0, begin : begin + 3].tolist() == second
        return compute_logits(model, batch)[0, begin : begin + 3].detach()

    alone = logits_of_second([])
    for first in [1, 2, 3, 4], [11, 12, 13, 14, 15]:
        torch.testing.assert_close(logits_of_second(first), alone, rtol=1e-5, atol=1e-6)
