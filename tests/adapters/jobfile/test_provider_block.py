"""The `provider:` block of a job file, and of the user's settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.adapters.jobfile.overrides import Overrides
from orchestrator.adapters.jobfile.read import read_job, read_user_settings
from orchestrator.core.errors import BadRequestError
from orchestrator.core.values.site import Site
from tests.support.flags import given

SUBNET = "subnet-0a1b2c3d4e5f60718"
OTHER = "subnet-0a1b2c3d4e5f60719"
NO_FLAGS = Overrides()
COMMAND = "nc %h %p"


def read(
    tmp_path: Path, job: str, settings: str = "", mode: str | None = None, overrides: Overrides = NO_FLAGS
) -> Site:
    """Return a job's settings for AWS, merged over the user's settings."""
    config, path = tmp_path / "config.yaml", tmp_path / "kedge.yaml"
    if settings:
        config.write_text(settings)
    path.write_text(job)
    read_settings = read_user_settings(config)
    found = read_job(path, mode=mode, overrides=overrides, environ={}, providers=("aws", "local"), sites=read_settings)
    return found.resources_at("aws").site


def test_a_job_names_a_network_a_jump_host_and_tags(tmp_path: Path) -> None:
    """Machines that are reached through a jump host need no public address."""
    site = read(
        tmp_path,
        f"""
run: python train.py
provider:
  aws:
    vpc: vpc-0a1b2c3d
    subnet: {SUBNET}
    security_group: sg-0a1b2c3d
    jump_host: ada@bastion.example.org:2222
    tags: {{team: vision, cost-center: 42}}
""",
    )
    assert (site.vpc, site.subnets, site.security_group) == ("vpc-0a1b2c3d", (SUBNET,), "sg-0a1b2c3d")
    assert (site.jump_host, site.is_private) == ("ada@bastion.example.org:2222", True)
    assert dict(site.tags) == {"team": "vision", "cost-center": "42"}
    assert site.where("subnet") == f"{tmp_path}/kedge.yaml:6: "


def test_a_job_wins_over_the_settings_key_by_key_and_a_mode_over_the_job(tmp_path: Path) -> None:
    """Tags are merged one by one. A value that isn't overridden keeps the file and the line that it came from."""
    settings = f"""
provider:
  aws: {{subnet: {SUBNET}, jump_host: bastion, tags: {{team: vision, stage: all}}}}
"""
    job = f"""
provider:
  aws: {{subnet: [{SUBNET}, {OTHER}], tags: {{stage: job}}}}
modes:
  vpn:
    provider: {{aws: {{proxy_command: nc %h %p, private_ip: false, tags: {{stage: mode}}}}}}
"""
    plain = read(tmp_path, job, settings)
    assert (plain.subnets, plain.jump_host, plain.is_private) == ((SUBNET, OTHER), "bastion", True)
    assert dict(plain.tags) == {"team": "vision", "stage": "job"}
    assert plain.where("jump_host") == f"{tmp_path}/config.yaml:3: "
    mode = read(tmp_path, job, settings, mode="vpn", overrides=given(allow_proxy_command=True))
    assert (mode.jump_host, mode.proxy_command, mode.is_private) == ("", "nc %h %p", False)
    assert dict(mode.tags)["stage"] == "mode"


@pytest.mark.parametrize(
    ("job", "mode", "line"),
    [
        (f"provider: {{aws: {{proxy_command: {COMMAND}}}}}\n", None, 1),
        (f"run: x\nmodes:\n  vpn:\n    provider: {{aws: {{proxy_command: {COMMAND}}}}}\n", "vpn", 4),
    ],
)
def test_a_job_file_alone_cannot_set_a_proxy_command(tmp_path: Path, job: str, mode: str | None, line: int) -> None:
    """It runs as the user, and the job file may be a stranger's: the user has to allow it with a flag."""
    for settings in ("", "provider: {aws: {proxy_command: my-own-way}}\n"):
        with pytest.raises(BadRequestError) as refused:
            read(tmp_path, job, settings, mode)
        assert f"{tmp_path}/kedge.yaml:{line}: " in refused.value.what
        assert COMMAND in refused.value.what
        assert "--allow-proxy-command" in refused.value.fix
        assert "config.yaml" in refused.value.fix
    allowed = read(tmp_path, job, mode=mode, overrides=given(allow_proxy_command=True))
    assert allowed.proxy_command == COMMAND


def test_a_proxy_command_of_the_users_own_settings_needs_no_flag(tmp_path: Path) -> None:
    """Nor does a job file that sets the same command, or a jump host instead."""
    settings = f"provider: {{aws: {{proxy_command: {COMMAND}}}}}\n"
    assert read(tmp_path, "run: x\n", settings).proxy_command == COMMAND
    assert read(tmp_path, f"run: x\n{settings}", settings).proxy_command == COMMAND
    assert read(tmp_path, "provider: {aws: {jump_host: bastion}}\n", settings).jump_host == "bastion"


def test_another_provider_ignores_the_block(tmp_path: Path) -> None:
    """`--provider local` rehearses the same job."""
    path = tmp_path / "kedge.yaml"
    path.write_text(f"provider: {{aws: {{subnet: {SUBNET}}}}}\n")
    job = read_job(path, mode=None, overrides=Overrides(), environ={}, providers=("aws", "local"))
    assert job.resources_at("local").site == Site()


@pytest.mark.parametrize(
    ("setting", "refusal"),
    [
        ("subnet: vpc-0a1b2c3d", "is not the id of one"),
        ("vpc: my-network", "is not the id of one"),
        ("jump_host: a b", "is not an SSH host"),
        ("jump_host: -oProxyCommand=evil", "is not an SSH host"),
        ("tags: {kedge-run: mine}", "is taken"),
        ("tags: {Name: mine}", "is taken"),
        ("tags: {name: mine}", "is taken"),
        ("tags: {Team: a, team: b}", "differ only in case"),
        ("tags: {" + ", ".join(f"t{number}: x" for number in range(41)) + "}", "more than 40 tags"),
        ("tags: {'aws:x': y}", "is taken"),
        ("tags: {team: 'a;b'}", "can't be a tag"),
        ("tags: {" + 128 * "k" + ": x}", "can't be a tag"),
        ("tags: [team]", "is not a mapping of tags"),
        ("subnets: [x]", "did you mean `subnet`"),
    ],
)
def test_a_value_that_aws_or_kedge_cannot_use_is_refused_with_its_line(
    tmp_path: Path, setting: str, refusal: str
) -> None:
    """Kedge's own tags can't be overridden: it finds its resources by them.

    fact: aws-tag-rules
    """
    with pytest.raises(BadRequestError) as refused:
        read(tmp_path, f"\nprovider:\n  aws:\n    {setting}\n")
    assert f"{tmp_path}/kedge.yaml:4: " in refused.value.what
    assert refusal in f"{refused.value.what} {refused.value.fix}"


@pytest.mark.parametrize(
    ("settings", "job", "refusal"),
    [
        ("Team: a", "team: b", "differ only in case"),
        (", ".join(f"s{number}: x" for number in range(30)), ", ".join(f"j{n}: x" for n in range(11)), "more than 40"),
    ],
)
def test_the_tags_of_the_settings_and_of_the_job_are_checked_together(
    tmp_path: Path, settings: str, job: str, refusal: str
) -> None:
    """Each by itself may be valid.

    fact: aws-tag-rules
    """
    with pytest.raises(BadRequestError, match=refusal) as refused:
        read(tmp_path, f"provider: {{aws: {{tags: {{{job}}}}}}}\n", f"provider: {{aws: {{tags: {{{settings}}}}}}}\n")
    assert f"{tmp_path}/kedge.yaml:1: " in refused.value.what


def test_mistakes_in_the_settings_name_that_file(tmp_path: Path) -> None:
    """The settings concern every job."""
    with pytest.raises(BadRequestError, match=r"config\.yaml:1: .* is not a key of kedge's settings"):
        read(tmp_path, "run: 'true'\n", "providers: {}\n")
