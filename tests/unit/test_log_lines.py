"""Lines of several logs: in the order of their time, and with the task's name in front."""

from __future__ import annotations

from orchestrator.cli.drawing.log_lines import Labels, merge_logs


def test_logs_are_merged_by_time_and_keep_their_own_order() -> None:
    """Lines without a timestamp stay behind the one before them; a clock that is set back moves no line."""
    first = [b"2026-11-23T10:00:01Z one", b"  more of one", b"2026-11-23T10:00:05Z five", b"2026-11-23T10:00:03Z back"]
    second = [b"2026-11-23T10:00:02Z two", b"2026-11-23T10:00:05Z also five", b"2026-11-23T10:00:06Z six"]
    merged = merge_logs({"a": first, "b": second, "": []})
    assert [(name, line.split(b"Z ")[-1].strip()) for name, line in merged] == [
        ("a", b"one"),
        ("a", b"more of one"),
        ("b", b"two"),
        ("a", b"five"),
        ("a", b"back"),
        ("b", b"also five"),
        ("b", b"six"),
    ]


def test_labels_are_aligned_and_have_a_colour_for_each_task() -> None:
    """The machine's own lines have none."""
    labels = Labels(["fit", "diffusion"])
    assert labels.label("fit") == "fit       | "
    assert labels.label("diffusion") == "diffusion | "
    assert labels.label("") == "machine   | "
    assert labels.coded("") == labels.label("")
    assert labels.coded("fit") != labels.coded("diffusion")
    assert labels.coded("fit").endswith("fit       | \x1b[m")


def test_labels_of_several_machines_begin_with_the_node() -> None:
    """Coloured by task, or by node if there is one task; numbers are aligned."""
    labels = Labels([""], range(11))
    assert (labels.label("", 2), labels.label("", 10)) == ("node 2  | ", "node 10 | ")
    assert labels.coded("", 0) != labels.coded("", 1)
    both = Labels(["fit", "tune"], [0, 1])
    assert [both.label("fit", 1), both.label("", 0)] == ["node 1 fit     | ", "node 0 machine | "]
    assert both.colour("fit", 0) == both.colour("fit", 1) != both.colour("tune", 0)


def test_one_task_has_no_label() -> None:
    """Whether it has a name or not."""
    for labels in (Labels([""]), Labels(["fit"]), Labels([])):
        assert labels.label("fit") == labels.coded("fit") == labels.label("") == ""
