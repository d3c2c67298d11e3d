"""Lambda's offers, and the refusal of what Lambda doesn't sell."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.providers import Context, look_at_sign_in, open_backing, open_probes, refuse_unsupported
from orchestrator.core.checkup import Verdict, run_probes
from orchestrator.core.errors import BadRequestError, NoCapacityError
from orchestrator.core.job import Resources, VolumeSpec
from orchestrator.core.offer import Accelerators
from tests.adapters.lambdacloud.world import LambdaWorld
from tests.cloudbox.lambdacloud.box import LambdaBox

H100 = Accelerators(name="H100")


def test_offers_are_the_regions_with_capacity_cheapest_first(lam: LambdaWorld) -> None:
    """Prices are the API's, for the whole instance. fact: lambda-prices; fact: lambda-types-are-a-map."""
    found = lam.provider().offers(Resources(accelerators=H100))
    assert [(one.instance_type, one.region, one.usd_per_hour) for one in found] == [
        ("gpu_1x_h100_pcie", "us-west-1", Decimal("3.29")),
        ("gpu_1x_h100_sxm5", "us-east-1", Decimal("4.29")),
        ("gpu_1x_h100_sxm5", "us-south-1", Decimal("4.29")),
    ]
    assert {one.gpu_memory_gib for one in found} == {80}
    ordered = lam.provider().offers(Resources(accelerators=H100, regions=("us-south-1", "us-east-1")))
    assert [one.region for one in ordered] == ["us-south-1", "us-east-1"]


def test_the_two_a100_are_told_apart(lam: LambdaWorld) -> None:
    """By their memory, as at AWS."""
    for name, memory in {"a100": 40, "a100-80gb": 80}.items():
        found = lam.provider().offers(Resources(accelerators=Accelerators(name=name, count=8)))
        assert {one.gpu_memory_gib for one in found} == {memory}


@pytest.mark.parametrize(
    ("requirements", "error", "message"),
    [
        (Resources(accelerators=Accelerators(name="mi300x")), BadRequestError, "no mi300x"),
        (Resources(accelerators=Accelerators(name="gh200")), BadRequestError, "no gh200"),
        (Resources(accelerators=Accelerators(name="rtx6000")), NoCapacityError, "no region now"),
        (Resources(accelerators=H100, max_usd_per_hour=Decimal(1)), NoCapacityError, "costs $3.29"),
        (Resources(accelerators=H100, disk_gib=9000), NoCapacityError, "a disk of 1024 GiB"),
        (Resources(instance_type="gpu_1x_h200"), BadRequestError, "no gpu_1x_h200"),
    ],
)
def test_what_is_not_sold_is_refused_with_what_is_for_sale(
    lam: LambdaWorld, requirements: Resources, error: type[Exception], message: str
) -> None:
    """Also an arm64 machine: a job can't rely on images and wheels for it."""
    with pytest.raises(error) as caught:
        lam.provider().offers(requirements)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("requirements", "message"),
    [
        (Resources(use_spot=True), "no spot machines"),
        (Resources(volumes=(VolumeSpec(name="scans", target="data/scans", size_gib=1),)), "no data volumes"),
        (Resources(zone="us-east-1a"), "no zones"),
        (Resources(disk_iops=9000), "no IOPS"),
        (Resources(num_nodes=2), "no network between the machines of a run"),
    ],
)
def test_an_unsupported_feature_is_refused_before_anything_is_contacted(
    lambda_api: LambdaBox, requirements: Resources, message: str
) -> None:
    """The error names the feature."""
    with pytest.raises(BadRequestError, match=message):
        refuse_unsupported("lambda", requirements)
    assert list(lambda_api.calls) == []


def context(folder: Path, environ: dict[str, str]) -> Context:
    return Context(state_dir=folder, runtime_dir=folder, clock=SystemClock(), key_file=folder / "key", environ=environ)


def test_doctor_looks_at_the_key_the_reaper_and_what_is_for_sale(lambda_api: LambdaBox, tmp_path: Path) -> None:
    """It stops at a key that isn't accepted."""
    good = context(tmp_path, {**lambda_api.environ, "XDG_CONFIG_HOME": str(tmp_path)})
    checks = {check.name: check for check in run_probes(open_probes("lambda", good, Resources(accelerators=H100)))}
    assert {name: check.verdict for name, check in checks.items() if check.verdict is not Verdict.OK} == {
        "guards": Verdict.WARNING,
        "bucket": Verdict.WARNING,
    }
    assert "kedge reap --install" in checks["guards"].fix
    assert "gpu_1x_h100_pcie" in checks["offers"].found
    bad = context(tmp_path, {**lambda_api.environ, "LAMBDA_API_KEY": "secret_nobodys"})
    checks = {check.name: check for check in run_probes(open_probes("lambda", bad, Resources()))}
    assert checks["credentials"].verdict is Verdict.FAILED
    assert "LAMBDA_API_KEY" in checks["credentials"].fix


def test_without_a_key_nobody_is_contacted(lambda_api: LambdaBox, tmp_path: Path) -> None:
    """With a key, one request tries it."""
    nobody = context(tmp_path, {**lambda_api.environ, "LAMBDA_API_KEY": ""})
    assert look_at_sign_in("lambda", nobody)[0] is Verdict.UNUSED
    with pytest.raises(BadRequestError, match="can't be used"):
        open_backing("lambda", nobody).provider.machines()
    assert list(lambda_api.calls) == []
    assert look_at_sign_in("lambda", context(tmp_path, lambda_api.environ))[0] is Verdict.OK
    assert len(list(lambda_api.calls)) == 1
