"""What an account still has of kedge's when it should have nothing."""

from __future__ import annotations

from tests.cloudbox.aws.box import REGION, Box


def leftovers(box: Box, region: str = REGION) -> list[str]:
    """List what runs make: roles and profiles, groups, schedules, secrets. The account level isn't a run's."""
    iam = box.client("iam")
    roles = [role["RoleName"] for role in iam.list_roles(PathPrefix="/kedge/")["Roles"]]
    profiles = [profile["InstanceProfileName"] for profile in iam.list_instance_profiles()["InstanceProfiles"]]
    groups = box.client("ec2", region).describe_security_groups()["SecurityGroups"]
    placed = box.client("ec2", region).describe_placement_groups()["PlacementGroups"]
    schedules = box.client("scheduler", region).list_schedules()["Schedules"]
    return [
        *(f"role {name}" for name in roles if name != "kedge-scheduler"),
        *(f"profile {name}" for name in profiles),
        *(f"group {group['GroupName']}" for group in groups if group["GroupName"] != "default"),
        *(f"placement group {group['GroupName']}" for group in placed),
        *(f"schedule {schedule['Name']}" for schedule in schedules),
        *(f"secret {name}" for name in secrets_of(box, region)),
    ]


def secrets_of(box: Box, region: str = REGION) -> list[str]:
    """List the parameters that kedge has stored, by their full names; the newest may be missing for a second."""
    filters = [{"Key": "Path", "Option": "Recursive", "Values": ["/kedge"]}]
    pages = box.client("ssm", region).get_paginator("describe_parameters").paginate(ParameterFilters=filters)
    return [parameter["Name"] for page in pages for parameter in page["Parameters"]]
