"""LoRA: the adapters by themselves, and the recipe that fine-tunes a causal language model with them."""

import json
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
import torch
from torch import nn

from tests.trainer import harness
from trainer.base.errors import BadRequestError
from trainer.base.signals import StopFlag
from trainer.checkpoints.document import read_document
from trainer.cli import main
from trainer.data.packing import IGNORED
from trainer.recipes.lora import CountedText, mean_token_loss, read_documents
from trainer.step.lora import add_adapters, list_adapters, merge_adapters, merged_weights, unmerge_adapters

# Shape legend: B batch, I features in, L tokens, V vocabulary.
MODEL = dedent("""
    import torch
    from torch import nn

    WIDTH, WORDS = 32, 256

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.q_proj, self.v_proj, self.o_proj = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
            self.norm = nn.LayerNorm(WIDTH)

        def forward(self, x_BLI):
            normed_BLI = self.norm(x_BLI)
            queries_BLI, values_BLI = self.q_proj(normed_BLI), self.v_proj(normed_BLI)
            mixed_BLI = nn.functional.scaled_dot_product_attention(queries_BLI, normed_BLI, values_BLI, is_causal=True)
            return x_BLI + self.o_proj(mixed_BLI)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(WORDS, WIDTH)
            self.layers = nn.ModuleList([Layer(), Layer()])
            self.lm_head = nn.Linear(WIDTH, WORDS, bias=False)

        def forward(self, tokens_BL):
            x_BLI = self.embed(tokens_BL)
            for layer in self.layers:
                x_BLI = layer(x_BLI)
            return self.lm_head(x_BLI)

    def load():
        torch.manual_seed(3)
        return Model()

    def tokenize(text):
        return list(text.encode())
""")
WORDS, WIDTH = 256, 32
FROZEN = WORDS * WIDTH * 2 + 2 * (3 * (WIDTH * WIDTH + WIDTH) + 2 * WIDTH)
ADAPTERS = 2 * 3 * 2 * 4 * WIDTH
"""Two layers with three adapters each, of two matrices of rank 4."""
SETTINGS = (
    "epochs=6",
    "batch_size=8",
    "micro_batch=4",
    "optimizer.learning_rate=0.03",
    "schedule.warmup_steps=2",
    "log_every_steps=1",
    "lora.rank=4",
    "lora.dropout=0.1",
    "lora.targets=q_proj,v_proj,o_proj",
    "data.length=16",
    "data.validation_share=0.2",
    "curves=false",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's file and texts that it can learn."""
    (tmp_path / "model.py").write_text(MODEL)
    lines = [{"text": "abcdefgh" * 6}, {"tokens": [97, 98, 99, 100] * 8}, {"prompt": "hgfe", "completion": "abcd" * 9}]
    (tmp_path / "texts.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines * 6))
    return tmp_path


def fine_tune(folder: Path, name: str, *settings: str, stop: StopFlag | None = None) -> int:
    places = (f"model.path={folder / 'model.py'}", f"data.path={folder / 'texts.jsonl'}")
    argv = ["lora", *harness.settings_args([*SETTINGS, *places, *settings]), "--output-dir", str(folder / name)]
    return main(argv, environ={}, stop=stop or StopFlag())


def load_base(folder: Path) -> nn.Module:
    space: dict[str, object] = {}
    exec((folder / "model.py").read_text(), space)
    model = space["load"]()  # type: ignore[operator]
    assert isinstance(model, nn.Module)
    return model


def make_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4, bias=False))


def train_adapters(model: nn.Module) -> None:
    for _, layer in list_adapters(model):
        nn.init.normal_(layer.lora_B)


# The layers


def test_new_adapters_change_nothing() -> None:
    """B is zero: the model computes the same bits, and only the adapters are trained."""
    inputs_BI = torch.randn(5, 6)
    plain, adapted = make_net(), make_net()
    names = list(adapted.state_dict())
    assert add_adapters(adapted, ["*"], rank=2, alpha=4) == ["0", "2"]
    assert torch.equal(adapted(inputs_BI), plain(inputs_BI))
    trained = {name for name, parameter in adapted.named_parameters() if parameter.requires_grad}
    assert trained == {"0.lora_A", "0.lora_B", "2.lora_A", "2.lora_B"}
    assert trained | set(names) == set(adapted.state_dict())


def test_adapter_adds_the_scaled_product() -> None:
    """W + (alpha / rank) B A."""
    model = make_net()
    add_adapters(model, ["2"], rank=2, alpha=6)
    train_adapters(model)
    ((_, layer),) = list_adapters(model)
    expected = layer.weight + 3 * layer.lora_B @ layer.lora_A
    inputs_BI = torch.randn(5, 8)
    torch.testing.assert_close(layer(inputs_BI), inputs_BI @ expected.T)
    torch.testing.assert_close(merged_weights(model)["2.weight"], expected)


def test_merged_model_computes_the_same_and_can_be_taken_apart() -> None:
    """Both ways exact except for rounding; the merged weights have the plain model's names."""
    inputs_BI = torch.randn(5, 6)
    model = make_net()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    add_adapters(model, ["*"], rank=2, alpha=4)
    train_adapters(model)
    outputs = model(inputs_BI).detach()
    plain = make_net()
    plain.load_state_dict(merged_weights(model))
    merge_adapters(model)
    merge_adapters(model)
    torch.testing.assert_close(model(inputs_BI), outputs)
    torch.testing.assert_close(plain(inputs_BI), outputs)
    assert torch.equal(merged_weights(model)["0.weight"], model.state_dict()["0.weight"])
    unmerge_adapters(model)
    torch.testing.assert_close(model(inputs_BI), outputs)
    for name, value in before.items():
        torch.testing.assert_close(model.state_dict()[name], value)


def test_adapters_of_bfloat16_weights_are_float32() -> None:
    """The outputs have the weights' type, and the adapters get gradients."""
    model = make_net().to(torch.bfloat16)
    add_adapters(model, ["*"], rank=2, alpha=4)
    train_adapters(model)
    outputs = model(torch.randn(5, 6, dtype=torch.bfloat16))
    outputs.sum().backward()
    assert outputs.dtype == torch.bfloat16
    assert all(layer.lora_A.dtype == torch.float32 for _, layer in list_adapters(model))
    assert all(layer.lora_A.grad is not None for _, layer in list_adapters(model))


def test_dropout_is_the_adapters_own_and_only_in_training() -> None:
    """At a rate of nearly 1 nothing of the adapter is left."""
    model = make_net()
    inputs_BI = torch.randn(5, 6)
    plain = model(inputs_BI)
    add_adapters(model, ["*"], rank=2, alpha=4, dropout=1 - 1e-9)
    train_adapters(model)
    assert torch.equal(model.train()(inputs_BI), plain)
    assert not torch.allclose(model.eval()(inputs_BI), plain)


def test_unknown_target_is_refused_with_the_names_that_there_are() -> None:
    """A pattern, or a name's last part."""
    with pytest.raises(BadRequestError, match="it has 0, 2"):
        add_adapters(make_net(), ["q_proj"], rank=2, alpha=4)


# The texts


def test_texts_are_packed_and_prompts_do_not_count(tmp_path: Path) -> None:
    """Nor does the first token of a text, which no other predicts, nor what fills a row; each text has an end."""
    (tmp_path / "a.jsonl").write_text('{"tokens": [1, 2, 3]}\n\n{"prompt": "ab", "completion": "c"}\n')
    documents = list(read_documents(str(tmp_path / "a.jsonl"), lambda text: [ord(letter) for letter in text], 9))
    rows = CountedText(documents, length=10)
    row = rows.sample(0, np.random.default_rng(0))
    assert len(rows) == 1
    places = [(int(token), int(label)) for token, label in zip(row["input_ids"], row["labels"], strict=True)]
    first = [(1, IGNORED), (2, 2), (3, 3), (9, 9)]
    second = [(97, IGNORED), (98, IGNORED), (99, 99), (9, 9)]
    assert places[8:] == [(0, IGNORED)] * 2
    assert places[:8] in ([*first, *second], [*second, *first])


def test_text_without_a_tokenizer_names_the_line(tmp_path: Path) -> None:
    """And what would do instead."""
    (tmp_path / "a.jsonl").write_text('{"tokens": [1]}\n{"text": "b"}\n')
    with pytest.raises(BadRequestError, match=r"line 2 of .*a\.jsonl is no text"):
        list(read_documents(str(tmp_path / "a.jsonl"), None))


def test_loss_of_a_batch_without_tokens_is_zero() -> None:
    """Not NaN: a micro-batch may have nothing but prompts."""
    labels_BL = torch.full((2, 3), IGNORED)
    batch = {"input_ids": torch.zeros(2, 3, dtype=torch.long), "labels": labels_BL}
    assert mean_token_loss(nn.Embedding(7, 7), batch).item() == 0


# The recipe


def test_fine_tuning_lowers_the_loss_and_saves_adapters_alone(folder: Path) -> None:
    """Checkpoints, best weights and the export leave the frozen weights out; their optimizer has no state for them."""
    assert fine_tune(folder, "output") == 0
    losses = [row["val_loss"] for row in harness.read_rows(folder / "output") if "val_loss" in row]
    assert losses[-1] < 0.7 * losses[0]
    exported = read_document(folder / "output" / "model.safetensors")
    assert sum(value.numel() for value in exported["model"].values()) == ADAPTERS
    size = harness.best_checkpoint(folder / "output").stat().st_size
    assert 4 * ADAPTERS < size < 4 * ADAPTERS + 16_000
    size = harness.newest_checkpoint(folder / "output").stat().st_size
    assert 4 * 3 * ADAPTERS < size < 4 * 3 * ADAPTERS + 40_000 < 4 * FROZEN


def test_merged_export_is_the_plain_model_with_unchanged_other_weights(folder: Path) -> None:
    """It loads into the user's model; what has no adapter is the same to the bit."""
    assert fine_tune(folder, "output", "lora.export=merged") == 0
    exported = read_document(folder / "output" / "model.safetensors")["model"]
    base = load_base(folder)
    for name, value in base.state_dict().items():
        is_adapted = name.endswith(("q_proj.weight", "v_proj.weight", "o_proj.weight"))
        assert torch.equal(exported[name], value) is not is_adapted
    base.load_state_dict(exported)


def test_stopped_fine_tuning_resumes_to_the_bit(folder: Path) -> None:
    """With dropout and accumulation; the frozen weights come from the model's file."""
    assert fine_tune(folder, "whole", "epochs=2") == 0
    assert fine_tune(folder, "stopped", "epochs=2", stop=harness.StopAtLook(5)) == 0
    assert harness.read_status(folder / "stopped")["state"] == "stopped"
    assert fine_tune(folder, "stopped", "epochs=2") == 0
    harness.assert_same_run(folder / "stopped", folder / "whole")


def test_average_of_adapters_is_saved_alone_too(folder: Path) -> None:
    """EMA copies the whole model, and saves of it what is trained."""
    assert fine_tune(folder, "output", "epochs=1", "ema_decay=0.9") == 0
    assert harness.newest_checkpoint(folder / "output").stat().st_size < 4 * 4 * ADAPTERS + 40_000


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("model.path=nowhere", "there is no model at nowhere"),
        ("data.path=nowhere.jsonl", "the texts in nowhere.jsonl can't be read"),
        ("data.length=5000", "too few tokens to train"),
        ("lora.targets=query", "no linear layer of the model is called query"),
    ],
)
def test_what_cannot_be_fine_tuned_is_refused(
    folder: Path, setting: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2, before the output folder is made."""
    assert fine_tune(folder, "output", setting) == 2
    assert why in capsys.readouterr().err
    assert not (folder / "output").exists()
