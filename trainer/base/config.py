"""The settings that every recipe has. They are frozen: a run has one complete configuration, made once.

A recipe subclasses `Settings` and adds groups of its own (`model`, `data`, ...).
"""

from dataclasses import dataclass, field
from typing import Literal

from trainer.base.errors import BadRequestError
from trainer.base.setting import setting

AUTO = "auto"
OptimizerName = Literal["adamw", "adam", "sgd", "muon"]
ScheduleName = Literal[
    "cosine", "constant", "linear", "exponential", "step", "one_cycle", "warm_restarts", "warmup_stable_decay"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSettings:
    """How weights are updated."""

    name: OptimizerName = setting(
        "adamw", "muon: for hidden weights of two dimensions, adamw for the others", change="announced"
    )
    learning_rate: float | Literal["auto"] = setting(
        1e-3, "the peak rate, for a batch of base_batch; auto: a range test finds it", above=0, change="announced"
    )
    rate_factor: float = setting(
        1.0, "multiplies the rate: 0.1 lowers it in a run that goes on", above=0, change="announced"
    )
    scaling: Literal["none", "linear", "sqrt"] = setting(
        "none", "how the rate grows with the global batch from base_batch on", change="announced"
    )
    base_batch: int = setting(0, "the global batch that learning_rate was tuned for", minimum=0, change="announced")
    weight_decay: float = setting(0.01, "decoupled in adamw and muon", minimum=0, change="announced")
    decay_norms: bool = setting(True, "false: no weight decay on biases and normalisation layers", change="announced")
    momentum: float = setting(0.9, "of sgd (Nesterov's) and muon", minimum=0, below=1, change="announced")
    betas: tuple[float, float] = setting((0.9, 0.999), "of adam and adamw", minimum=0, below=1, change="announced")
    clip_norm: float = setting(1.0, "the largest norm of the gradient; 0: no clipping", minimum=0, change="announced")
    most_skips: int = setting(
        20, "this many steps in a row with a gradient that isn't finite end the run", minimum=1, change="freely"
    )

    @property
    def rate(self) -> float:
        """The learning rate as a number.

        Raises:
            BadRequestError: it has to be found first (`trainer.find.auto_rate`).
        """
        if isinstance(self.learning_rate, str):
            raise BadRequestError(
                "optimizer.learning_rate=auto is no number",
                why="only a training finds the rate, at its start",
                fix="give a number, for example the one that find-lr suggests",
            )
        return self.learning_rate


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSettings:
    """How the learning rate changes over the run."""

    name: ScheduleName = setting("cosine", "the shape after the warm-up", change="announced")
    warmup_steps: int = setting(0, "steps of linear warm-up", minimum=0, change="announced")
    warmup_epochs: float = setting(0.0, "the same in epochs, for any batch", minimum=0, change="announced")
    final: float = setting(0.01, "the last rate as a share of the peak", minimum=0, change="announced")
    start: float = setting(0.04, "one_cycle: the first rate as a share of the peak", above=0, change="announced")
    rise: float = setting(0.3, "one_cycle: warm-up as a share of the run", above=0, below=1, change="announced")
    gamma: float = setting(0.95, "exponential: factor per epoch; step: factor per period", above=0, change="announced")
    period_epochs: int = setting(10, "step and warm_restarts: length of a period", minimum=1, change="announced")
    period_factor: int = setting(2, "warm_restarts: how much longer each period is", minimum=1, change="announced")
    decay: float = setting(
        0.2, "warmup_stable_decay: the decay as a share of the run", above=0, below=1, change="announced"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeSettings:
    """How a step is computed. A resumed run may change the settings that affect results only by rounding."""

    amp: Literal["off", "bf16", "fp16"] = setting("off", "autocast; fp16 with a loss scale", change="announced")
    tf32: bool = setting(False, "TF32 for float32 matrix products and convolutions", change="freely")
    deterministic: bool = setting(
        False, "only deterministic algorithms: on a GPU the same bits at every run", change="freely"
    )
    benchmark: bool = setting(
        False, "try cuDNN's (MIOpen's) algorithms for each shape, use the fastest", change="freely"
    )
    channels_last: bool = setting(False, "images and volumes with their channels last in memory", change="freely")
    compile: bool = setting(False, "torch.compile; goes on without it if the compiler fails", change="freely")
    gradient_checkpointing: bool = setting(
        False, "the recipe's blocks recompute their activations in the backward pass", change="freely"
    )
    sync_batchnorm: bool = setting(False, "batch normalisation over all processes, on GPUs")
    fully_shard: bool = setting(
        False, "FSDP2: weights, gradients and optimizer state sharded over the processes", change="freely"
    )
    cpu_offload: bool = setting(False, "fully_shard: keep shards in main memory between their uses", change="freely")
    static_graph: bool = setting(False, "DDP: every step uses the same parameters, in the same order", change="freely")
    find_unused_parameters: bool = setting(
        False, "DDP: some steps leave parameters without a gradient", change="freely"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateSettings:
    """When the model is validated, and which result is the best. The last weights are always validated."""

    every_epochs: int = setting(1, "validate after every so many epochs; 0: off", minimum=0, change="freely")
    every_steps: int = setting(0, "validate after every so many steps; 0: off", minimum=0, change="freely")
    best: str = setting("", "the metric that selects the best weights; empty: the recipe's", change="announced")
    best_is: Literal["", "min", "max"] = setting("", "its better direction; empty: the recipe's", change="announced")
    best_gap_epochs: int = setting(
        0, "save a new best at least so many epochs after the last one", minimum=0, change="freely"
    )
    best_gap_steps: int = setting(0, "the same in steps; the longer of both counts", minimum=0, change="freely")
    patience: int = setting(
        0, "stop early after so many validations without a new best; 0: off", minimum=0, change="freely"
    )
    least_gain: float = setting(0.0, "a gain smaller than this is no new best for patience", minimum=0, change="freely")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSettings:
    """When checkpoints are written: at whichever trigger fires first; 0 turns a trigger off. The last step is saved."""

    every_steps: int = setting(0, "save after every so many steps", minimum=0, change="freely")
    every_seconds: float = setting(600.0, "save after this time", minimum=0, change="freely")
    every_epochs: int = setting(
        1,
        "save after every so many epochs; those without a validation at most every 30 s",
        minimum=0,
        change="freely",
    )
    expected_life_hours: float = setting(
        0.0, "the machine's mean time to failure: also saves at Daly's interval", minimum=0, change="freely"
    )
    keep: int = setting(3, "how many of the newest are kept", minimum=1, change="freely")
    keep_every_epochs: int = setting(
        0, "milestones: those of every so many epochs are kept as well", minimum=0, change="freely"
    )
    keep_every_steps: int = setting(
        0, "milestones: those of every so many steps are saved and kept as well", minimum=0, change="freely"
    )
    keep_best: int = setting(1, "how many of the best weights are kept", minimum=1, change="freely")
    replicas: int | None = setting(
        None,
        "fully_shard: copies of each shard on other machines; none: 1 on spot machines",
        minimum=0,
        change="freely",
    )
    deadline_margin_seconds: float = setting(
        20.0, "stop so long before the deadline, besides two saves", minimum=0, change="freely"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSettings:
    """When the recipe's samples (pictures, volumes, point clouds) are written into OUTPUT/samples."""

    every_epochs: int = setting(0, "make samples after every so many epochs; 0: off", minimum=0, change="freely")
    every_steps: int = setting(0, "make samples after every so many steps; 0: off", minimum=0, change="freely")
    keep: int = setting(5, "how many of the newest sets are kept", minimum=1, change="freely")
    keep_every_epochs: int = setting(0, "sets of every so many epochs are kept as well", minimum=0, change="freely")
    keep_every_steps: int = setting(0, "sets of every so many steps are kept as well", minimum=0, change="freely")


@dataclass(frozen=True, slots=True, kw_only=True)
class StallSettings:
    """When a step counts as stalled. In the first epoch, which compiles kernels, only `first_epoch_minutes` count."""

    factor: float = setting(20.0, "after so many times the median step; 0: off", minimum=0, change="freely")
    seconds: float = setting(60.0, "and at least after this time", above=0, change="freely")
    first_epoch_minutes: float = setting(30.0, "in the first epoch after this time", minimum=0, change="freely")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackSettings:
    """Where metrics go besides metrics.jsonl."""

    tensorboard: bool = setting(False, "write OUTPUT/tensorboard", change="freely")
    wandb: bool = setting(False, "log to Weights & Biases", change="freely")
    wandb_project: str = setting("kedge", "its project", change="freely")
    name: str = setting("", "the tracked run's name; empty: the run's id or the recipe", change="freely")
    tags: tuple[str, ...] = setting((), "the tracked run's tags, with commas between them", change="freely")
    peak_tflops: float = setting(0.0, "a device's 16-bit peak, for MFU; 0: by its name", minimum=0, change="freely")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishSettings:
    """Where the best weights are published. An empty setting turns its target off."""

    license: str = setting("", "the Hub's identifier: apache-2.0, mit, cc-by-4.0, ...", change="freely")
    hub_repo: str = setting("", "OWNER/NAME on the Hugging Face Hub", change="freely")
    hub_during: bool = setting(False, "push new best weights during the training as well", change="freely")
    hub_private: bool = setting(True, "a new repository is private", change="freely")
    kaggle_dataset: str = setting("", "OWNER/SLUG: write the folder of a Kaggle data set", change="freely")
    kaggle_upload: bool = setting(
        False, "upload its files instead: a new version, or a new private data set", change="freely"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of every recipe."""

    epochs: int = setting(10, "how often each training sample is seen", minimum=1, change="announced")
    max_steps: int = setting(
        0, "end after so many steps, even within an epoch; 0: after the epochs", minimum=0, change="announced"
    )
    batch_size: int = setting(64, "samples of one step, over all processes", minimum=1)
    micro_batch: int = setting(
        0,
        "samples that a process computes at once, accumulating gradients; 0: its whole share",
        minimum=0,
        change="freely",
    )
    workers: int = setting(0, "loader processes per process", minimum=0, change="freely")
    ema_decay: float = setting(
        0.0, "above 0: a moving average of the weights is validated and exported", minimum=0, below=1
    )
    seed: int = setting(0, "of all randomness", minimum=0)
    log_every_steps: int = setting(10, "a row in metrics.jsonl after every so many steps", minimum=1, change="freely")
    curves: bool = setting(True, "draw curves.png at the end", change="freely")
    onnx: bool = setting(True, "export model.onnx at the end, if the recipe has example inputs", change="freely")
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    compute: ComputeSettings = field(default_factory=ComputeSettings)
    validate: ValidateSettings = field(default_factory=ValidateSettings)
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)
    samples: SampleSettings = field(default_factory=SampleSettings)
    stall: StallSettings = field(default_factory=StallSettings)
    track: TrackSettings = field(default_factory=TrackSettings)
    publish: PublishSettings = field(default_factory=PublishSettings)
