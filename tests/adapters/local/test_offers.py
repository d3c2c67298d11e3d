"""Offers of this computer: free or at a rehearsal price, if the computer meets the requirements."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from orchestrator.adapters.providers.local.hardware import (
    Computer,
    GpuFound,
    gpu_name,
    parse_amd_smi,
    parse_nvidia_smi,
    parse_rocm_smi,
)
from orchestrator.adapters.providers.local.offers import gpu_count, plan_offers, refuse_unknown
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import Resources
from orchestrator.core.offer import Accelerators
from tests.adapters.local.box import Box

LAPTOP = Computer(cpus=8, memory_gib=31.2, disk_gib=200)
SERVER = Computer(cpus=96, memory_gib=500, disk_gib=900, gpus=(GpuFound(name="mi300x", memory_gib=192.0),) * 8)


def test_this_computer_costs_nothing(box: Box) -> None:
    """The offer is read from the computer itself."""
    (offer,) = box.provider().offers(Resources())
    assert offer.usd_per_hour == 0
    assert offer.cpus >= 1
    assert offer.memory_gib > 0


def test_a_rehearsal_has_the_price_that_was_given(box: Box) -> None:
    """So that budgets and costs can be tried; the machine is billed at that price."""
    (offer,) = box.provider().offers(Resources(usd_per_hour=Decimal("1.99")))
    assert offer.usd_per_hour == Decimal("1.99")
    machine = box.provider().create(box.order(usd_per_hour=offer.usd_per_hour))
    assert machine.usd_per_hour == Decimal("1.99")


def test_a_computer_without_gpu_is_an_offer_without_one() -> None:
    """Many users without a cloud account have such a computer."""
    (offer,) = plan_offers(LAPTOP, Resources())
    assert (offer.accelerators, offer.gpu_memory_gib, offer.instance_type) == (None, 0.0, "local")


def test_all_gpus_are_offered_or_as_many_as_required() -> None:
    """Without a requirement all of them; otherwise the required number, if there are enough."""
    (all_of_them,) = plan_offers(SERVER, Resources())
    (two,) = plan_offers(SERVER, Resources(accelerators=Accelerators(name="mi300x", count=2)))
    assert (str(all_of_them.accelerators), all_of_them.gpu_memory_gib) == ("mi300x:8", 192.0)
    assert (str(two.accelerators), two.instance_type, gpu_count(two.instance_type)) == (
        "mi300x:2",
        "local-mi300xx2",
        2,
    )


@pytest.mark.parametrize(
    "requirements",
    [
        {"accelerators": Accelerators(name="mi300x", count=16)},
        {"accelerators": Accelerators(name="h100", count=1)},
        {"disk_gib": 5000},
        {"instance_type": "g5.xlarge"},
    ],
)
def test_requirements_that_this_computer_does_not_meet_get_no_offer(requirements: dict[str, Any]) -> None:
    """The planner reports that nothing fits."""
    assert plan_offers(SERVER, Resources(**requirements)) == ()


@pytest.mark.parametrize(
    "requirements", [{"use_spot": True}, {"image_id": "ami-1"}, {"regions": ("us-east-1",)}, {"zone": "us-east-1a"}]
)
def test_a_requirement_that_only_clouds_know_is_refused_by_name(requirements: dict[str, Any]) -> None:
    """The error names it, so that the user can remove it."""
    with pytest.raises(BadRequestError, match=next(iter(requirements))):
        refuse_unknown(Resources(**requirements))


def test_local_is_accepted_as_region_zone_and_type() -> None:
    """The user may spell them out."""
    refuse_unknown(Resources(regions=("local",), zone="local"))
    assert plan_offers(LAPTOP, Resources(regions=("local",), instance_type="local"))


@pytest.mark.parametrize(
    ("printed", "name"),
    [
        ("AMD Instinct MI300X", "mi300x"),
        ("AMD Instinct MI300X VF", "mi300x"),
        ("AMD Instinct MI250X / MI250", "mi250x"),
        ("NVIDIA A10G", "a10g"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA A100-SXM4-40GB", "a100"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("NVIDIA L40S", "l40s"),
        ("Tesla T4", "t4"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", "rtx4070tisuper"),
        ("NVIDIA RTX A6000", "rtxa6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx6000-ada"),
        ("Some New Thing 9", "some-new-thing-9"),
    ],
)
def test_gpus_are_named_as_in_job_files(printed: str, name: str) -> None:
    """What drivers print around the model's name is left out."""
    assert gpu_name(printed) == name


def test_nvidia_smi_is_understood() -> None:
    """One line for each GPU; a computer that shares its memory prints no size."""
    text = "NVIDIA H100 80GB HBM3, 81559\nNVIDIA GH200 480GB, [N/A]\n"
    assert parse_nvidia_smi(text) == (
        GpuFound(name="h100", memory_gib=79.6),
        GpuFound(name="gh200", memory_gib=0.0),
    )


@pytest.mark.parametrize("wrap", ['[{"gpu": 0, %s}]', '{"gpu_data": [{"gpu": 0, %s}]}'])
def test_amd_smi_is_understood(wrap: str) -> None:
    """Older and newer versions differ in what is around the list."""
    row = '"asic": {"market_name": "AMD Instinct MI300X"}, "vram": {"size": {"value": 196608, "unit": "MB"}}'
    assert parse_amd_smi(wrap % row) == (GpuFound(name="mi300x", memory_gib=192.0),)


def test_rocm_smi_is_understood() -> None:
    """Cards come in the order of their numbers; other entries are skipped."""
    card = '{"Card Series": "%s", "VRAM Total Memory (B)": "206158430208"}'
    cards = {"card10": card % "AMD Instinct MI250X", "card2": card % "AMD Instinct MI300X", "system": "{}"}
    text = "{" + ", ".join(f'"{name}": {row}' for name, row in cards.items()) + "}"
    assert [gpu.name for gpu in parse_rocm_smi(text)] == ["mi300x", "mi250x"]
    assert parse_rocm_smi(text)[0].memory_gib == 192.0
