"""`tasks`: several commands of one job."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from orchestrator.adapters.jobfile.read import adding_line
from orchestrator.core.errors import BadRequestError, JobKeyError
from orchestrator.core.job import Job
from orchestrator.core.task import Expect, OnFailure, SupervisorKind, SupervisorSpec, Task

Read = Callable[..., Job]
Refuse = Callable[..., BadRequestError]

JOB = """
workdir: .
outputs: [results]
checkpoints: ckpt
supervisor: {kind: screen, restarts: 5}
expect: {duration: 3h, first_step: 5m}
on_failure: stop-all
setup_inputs: [requirements, build.sh]
envs: {EPOCHS: 10}
tasks:
  fit:
    gpus: 0-6
    cpus: 12
    run: python fit.py
    resume: {args: --resume}
    envs: {EPOCHS: 20, LR: 0.1}
    expect: {duration: 2h}
  score:
    gpus: [7]
    after: fit
    run: python score.py
    outputs: scores
    checkpoints: state
    supervisor: {restarts: 0, grace: 10s}
    expect: {first_step: 1m}
modes:
  fast:
    tasks:
      fit: {run: python fast.py, envs: {EPOCHS: 1}}
      score: {supervisor: {restart_after: 1s}}
      extra: {run: python extra.py}
  sleepy: {supervisor: tmux}
"""


def test_each_key_reaches_its_task(read: Read) -> None:
    """The job's outputs, checkpoints, supervisor and first step are the defaults; its duration is that of the run."""
    job = read(JOB)
    screen = SupervisorSpec(kind=SupervisorKind.SCREEN, restarts=5)
    assert job.tasks == (
        Task(
            name="fit",
            run="python fit.py",
            resume_args="--resume",
            gpus=(0, 1, 2, 3, 4, 5, 6),
            cpus=12,
            envs=(("EPOCHS", "20"), ("LR", "0.1")),
            outputs=("results",),
            checkpoints="ckpt",
            supervisor=screen,
            expect=Expect(duration=timedelta(hours=2), first_step=timedelta(minutes=5)),
        ),
        Task(
            name="score",
            run="python score.py",
            gpus=(7,),
            after="fit",
            outputs=("scores",),
            checkpoints="state",
            supervisor=SupervisorSpec(kind=SupervisorKind.SCREEN, restarts=0, grace=timedelta(seconds=10)),
            expect=Expect(first_step=timedelta(minutes=1)),
        ),
    )
    assert job.envs == (("EPOCHS", "10"),)
    assert (job.on_failure, job.setup_inputs) == (OnFailure.STOP_ALL, ("requirements", "build.sh"))
    assert (job.expect.duration, job.grace) == (timedelta(hours=3), timedelta(seconds=60))


def test_a_mode_overrides_parts_of_tasks(read: Read) -> None:
    """By task and key: what it leaves out stays, and a new task is added. `args` of `resume` stay as in a job."""
    fit, score, extra = read(JOB, mode="fast").tasks
    assert (fit.run, fit.later_run) == ("python fast.py", "python fast.py --resume")
    assert (fit.envs, fit.gpus) == ((("EPOCHS", "1"), ("LR", "0.1")), (0, 1, 2, 3, 4, 5, 6))
    assert (score.run, score.supervisor.restarts) == ("python score.py", 0)
    assert score.supervisor.restart_after == timedelta(seconds=1)
    assert (extra.name, extra.outputs, extra.supervisor.kind) == ("extra", ("results",), SupervisorKind.SCREEN)


def test_the_kind_of_supervisor_is_that_of_all_tasks(read: Read) -> None:
    """From the job, a mode or a flag."""
    for arguments, kind in (({"mode": "sleepy"}, SupervisorKind.TMUX), ({"supervisor": "nohup"}, SupervisorKind.NOHUP)):
        job = read(JOB, **arguments)
        assert {job.supervisor.kind, *(task.supervisor.kind for task in job.tasks)} == {kind}
        assert [task.supervisor.restarts for task in job.tasks] == [5, 0]


def test_a_flag_sets_a_variable_of_all_tasks(read: Read) -> None:
    """`--env` wins over the file, and so over the tasks in it; a value from this computer too."""
    job = read(JOB, env=("EPOCHS=3", "LR"), environ={"LR": "1"})
    assert (job.envs, job.inherited) == ((("EPOCHS", "3"),), ("LR",))
    assert [task.envs for task in job.tasks] == [(), ()]


def test_one_named_task_is_no_different_from_several(read: Read) -> None:
    """It keeps its name, and with that folders of its own."""
    assert read("tasks: {fit: {run: x}}").tasks == (Task(name="fit", run="x"),)


@pytest.mark.parametrize(
    ("written", "gpus"),
    [
        ("7", (7,)),
        ("[7]", (7,)),
        ("0-6", tuple(range(7))),
        ("0,2,4", (0, 2, 4)),
        ("'4, 0 - 1'", (0, 1, 4)),
        ("[0-2, 5]", (0, 1, 2, 5)),
        ("127", (127,)),
    ],
)
def test_gpus_are_indexes_and_ranges(read: Read, written: str, gpus: tuple[int, ...]) -> None:
    """In ascending order, whatever the order in the file."""
    assert read(f"tasks:\n  a:\n    run: x\n    gpus: {written}").tasks[0].gpus == gpus


@pytest.mark.parametrize(
    ("text", "line", "key", "says"),
    [
        ("tasks: {}", 1, "tasks", "names no task"),
        ("tasks:\n" + "".join(f"  t{n}: {{run: x}}\n" for n in range(33)), 1, "tasks", "33 tasks are too many"),
        ("tasks:\n  fit:", 2, "tasks.fit", "has no `run`"),
        ("tasks:\n  fit: {run: ' '}", 2, "tasks.fit", "has no `run`"),
        ("run: x\ntasks: {fit: {run: x}}", 1, "run", "beside `tasks`"),
        ("tasks: {fit: {run: x}}\nresume: y", 2, "resume", "beside `tasks`"),
        ("run: x\nmodes:\n  m: {tasks: {fit: {run: x}}}", 1, "run", "beside `tasks`"),
        ("tasks: {fit: {run: x}}\nmodes:\n  m:\n    run: x", 4, "modes.m.run", "beside `tasks`"),
        ("tasks:\n  Fit: {run: x}", 2, "tasks", "'Fit' can't be a task's name"),
        ("tasks:\n  0fit: {run: x}", 2, "tasks", "'0fit' can't be"),
        ("tasks:\n  output: {run: x}", 2, "tasks", "'output' can't be"),
        (f"tasks:\n  {'a' * 32}: {{run: x}}", 2, "tasks", "can't be a task's name"),
        ("tasks:\n  a: {run: x, after: B}", 2, "tasks.a.after", "can't be a task's name"),
        ("tasks:\n  a: {run: x}\n  b:\n    run: x\n    after: c", 5, "tasks.b.after", "no task c"),
        ("tasks:\n  a:\n    run: x\n    after: a", 4, "tasks.a.after", "wait for itself"),
        ("tasks:\n  a: {run: x, after: c}\n  b: {run: x, after: a}\n  c: {run: x, after: b}", 2, "a.after", "itself"),
        ("tasks:\n  d: {run: x, after: a}\n  a: {run: x, after: b}\n  b: {run: x, after: a}", 3, "a.after", "itself"),
        ("tasks:\n  a: {run: x, gpus: 0-3}\n  b:\n    gpus: 3-4\n    run: x", 4, "tasks.b.gpus", "GPU 3 is given to"),
        ("tasks:\n  a: {run: x, gpus: 0-x}", 2, "tasks.a.gpus", "doesn't name GPUs"),
        ("tasks:\n  a: {run: x, gpus: 3-1}", 2, "tasks.a.gpus", "doesn't name GPUs"),
        ("tasks:\n  a: {run: x, gpus: 0-99999999999}", 2, "tasks.a.gpus", "doesn't name GPUs"),
        ("tasks:\n  a: {run: x, gpus: 128}", 2, "tasks.a.gpus", "doesn't name GPUs"),
        ("tasks:\n  a: {run: x, gpus: [0, [1]]}", 2, "tasks.a.gpus", "doesn't name GPUs"),
        ("tasks:\n  a: {run: x, gpus: []}", 2, "tasks.a.gpus", "names no GPU"),
        ("tasks:\n  a: {run: x, gpus: '0,1,1'}", 2, "tasks.a.gpus", "GPU 1 is named twice"),
        ("resources: {accelerators: A10G:4}\ntasks:\n  a: {run: x, gpus: 2-4}", 3, "tasks.a.gpus", "no GPU 4"),
        ("tasks:\n  a: {run: x, cpus: 0}", 2, "tasks.a.cpus", "larger number"),
        ("tasks:\n  a: {run: x, nodes: head}", 2, "tasks.a.nodes", "one machine only"),
        ("tasks:\n  a: {run: x, nodes: tail}", 2, "tasks.a.nodes", "all, head"),
        ("on_failure: stop", 1, "on_failure", "go-on, stop-all"),
        ("tasks:\n  a: {run: x, supervisor: {kind: tmux}}", 2, "tasks.a.supervisor.kind", "not a key"),
        ("tasks:\n  a: {run: x, gpu: 1}", 2, "tasks.a.gpu", "not a key"),
        ("tasks:\n  a: {run: x, envs: {B: null}}", 2, "tasks.a.envs.B", "needs a value"),
        ("inherits: 1\ntasks: {a: {run: x}}", 1, "inherits", "not a key"),
        ("envs: {A: null}\ntasks:\n  a: {run: x, envs: {A: b}}", 3, "tasks.a.envs.A", "can't set"),
        ("tasks:\n  a: {run: x, envs: {KEDGE_TORCH_WHEEL: cpu}}", 2, "tasks.a.envs.KEDGE_TORCH_WHEEL", "can't set"),
        ("tasks:\n  a: {run: sudo x}\nsudo: false", 2, "tasks.a.run", "sudo"),
        ("data: {d: .}\ntasks:\n  a: {run: x, outputs: d/e}", 3, "tasks.a.outputs", "overlap"),
        ("tasks:\n  a: {run: 'x | y', resume: {args: z}}", 2, "tasks.a.resume", "can't be appended"),
    ],
)
def test_a_mistake_is_refused_with_its_line(refuse: Refuse, text: str, line: int, key: str, says: str) -> None:
    """Before anything is contacted. The job and, if there is one, its mode are read."""
    error = refuse(text, mode="m" if "modes" in text else None, environ={"A": "a"})
    assert f"kedge.yaml:{line}: `" in error.what
    assert key in error.what
    assert says in error.what + error.why + error.fix
    assert error.fix


def test_the_nearest_key_of_a_task_is_suggested(refuse: Refuse) -> None:
    """And that of a block in it."""
    assert refuse("tasks: {a: {run: x, gpus: 0,2}}").fix == "write `gpus: [0, 2, 4]`"
    assert "did you mean `gpus`?" in refuse("tasks: {a: {run: x, gpuss: 1}}").fix
    assert "did you mean `duration`?" in refuse("tasks: {a: {run: x, expect: {duratio: 1h}}}").fix
    assert "restart_after" in refuse("tasks: {a: {run: x, supervisor: {kind: tmux}}}").fix


def test_tasks_of_which_one_waits_for_the_other_may_share_a_gpu(read: Read) -> None:
    """Also if there are tasks between them."""
    text = "tasks: {a: {run: x, gpus: 0}, b: {run: x, after: a}, c: {run: x, after: b, gpus: 0}}"
    assert [task.gpus for task in read(text).tasks] == [(0,), None, (0,)]


def test_the_gpus_of_a_flag_are_what_counts(read: Read, refuse: Refuse) -> None:
    """`--gpu` may bring those that the file's tasks need, or not enough."""
    text = "resources: {accelerators: A10G:4}\ntasks: {a: {run: x, gpus: 4}}"
    assert read(text, gpu="H100:8").tasks[0].gpus == (4,)
    error = refuse(text.replace("A10G:4", "A10G:8"), gpu="H100:2")
    assert "kedge.yaml:2: `tasks.a.gpus`: there is no GPU 4" in error.what
    assert "h100:2" in error.why


def test_a_task_may_run_the_bundled_trainer_and_become_root(read: Read) -> None:
    """One is enough: all tasks have the same code and the same user."""
    job = read("sudo: true\ntasks: {a: {run: x}, b: {run: sudo python -m trainer digits}}")
    assert (job.bundled_trainer, job.sudo) == (True, True)
    assert read("tasks: {a: {run: x}}").bundled_trainer is False


def test_an_error_that_planning_finds_gets_its_line(read: Read, folder: Path) -> None:
    """Of the mode's key if it has one. Without the file, the key alone is named."""
    job = read("tasks: {a: {run: x}}\nmodes:\n  m:\n    tasks:\n      a: {gpus: 7}", mode="m")
    for line, what in ((5, "kedge.yaml:5: `modes.m.tasks.a.gpus`: too many"), (None, "`tasks.a.gpus`: too many")):
        with pytest.raises(BadRequestError) as caught, adding_line(job):
            raise JobKeyError(("tasks", "a", "gpus"), "too many", why="w", fix="f")
        assert caught.value.what.endswith(what)
        assert (caught.value.why, caught.value.fix) == ("w", "f")
        if line is not None:
            (folder / "kedge.yaml").unlink()


def test_outputs_with_wildcards_are_folders_of_which_only_a_part_is_fetched(read: Read, refuse: Refuse) -> None:
    """The machine keeps the folder before the first wildcard; the plan shows what the file says."""
    task = read("run: x\noutputs: [logs, ./results/*.png, results/plots/**/*.svg]").tasks[0]
    assert task.outputs == ("logs", "results")
    assert task.output_patterns == ("results/*.png", "results/plots/**/*.svg")
    assert task.shown_outputs == ("logs", "results/*.png", "results/plots/**/*.svg")
    named = read("outputs: s/*.b\ntasks: {a: {run: x, outputs: r/*.a}}").tasks[0]
    assert (named.outputs, named.output_patterns) == (("r",), ("r/*.a",))
    assert "begins with a wildcard" in refuse("run: x\noutputs: ['*.png']").what
    assert "can't match anything" in refuse("run: x\noutputs: ['results/[abc']").what
    assert "overlap" in refuse("run: x\noutputs: [results, results/*.png]").what
    assert "overlap" in refuse("run: x\noutputs: [results/*.png]\ncheckpoints: results/ckpt").what
