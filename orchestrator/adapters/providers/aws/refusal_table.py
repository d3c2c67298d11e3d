"""AWS's refusals of a launch, as data: what each means, what kedge does, and what a person can do.

Codes: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html (November 2026).

In a remedy, `{quota}` and `{url}` are filled in by `refusals.read_refusal`.
"""

from __future__ import annotations

from orchestrator.adapters.aws_sdk import SCP, SIGN_IN
from orchestrator.adapters.cloud.refusals import Reaction, Refusal

_ASK_FOR_MORE = "ask for a higher quota {quota} at {url}, or try another --region or market"

# The first that matches counts.
REFUSALS = (
    Refusal(
        codes=("InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientCapacity"),
        meaning="no machine of this type is free in this zone now",
        reaction=Reaction.NEXT_POOL,
        remedy="allow more zones, regions or types, or try again later",
    ),
    Refusal(
        codes=("SpotMaxPriceTooLow",),
        meaning="the spot price is above the maximum price of the request",
        reaction=Reaction.NEXT_POOL,
        remedy="raise --max-price or leave it out, or launch without --spot",
    ),
    Refusal(
        codes=("UnfulfillableCapacity",),
        meaning="there is not enough spot capacity for this type in this zone",
        reaction=Reaction.NEXT_POOL,
        remedy="allow more zones, regions or types, or launch without --spot",
    ),
    Refusal(
        codes=("Unsupported",),
        meaning="this zone doesn't have this type",
        reaction=Reaction.NEXT_POOL,
        remedy="choose another --zone or --instance-type",
    ),
    Refusal(
        codes=("InsufficientFreeAddressesInSubnet",),
        meaning="the subnet of this zone has no address left",
        reaction=Reaction.NEXT_ZONE,
        remedy="end machines that hold addresses, or choose another --zone",
    ),
    Refusal(
        codes=("MissingInput", "InvalidInput"),
        meaning="this zone has no default subnet",
        reaction=Reaction.NEXT_ZONE,
        remedy="make one with `aws ec2 create-default-subnet --availability-zone ZONE`, or choose another --zone",
    ),
    Refusal(
        codes=("VolumeTypeNotAvailableInZone", "InsufficientVolumeCapacity"),
        meaning="this zone doesn't have gp3 volumes, or none is free in it now",
        reaction=Reaction.NEXT_ZONE,
        remedy="choose another --zone",
    ),
    Refusal(
        codes=("InvalidSubnetID.NotFound",),
        meaning="the subnet of this zone is gone",
        reaction=Reaction.NEXT_ZONE,
        remedy="name a subnet that is there, or choose another --zone",
    ),
    Refusal(
        codes=("UnsupportedOperation",),
        meaning="this type isn't available on this market (spot or on demand), or with this image",
        reaction=Reaction.NEXT_POOL,
        remedy="choose another --instance-type, another image_id, or the other market",
    ),
    Refusal(
        codes=("VolumeLimitExceeded", "MaxIOPSLimitExceeded"),
        meaning="the account's limit of volumes, or of their storage or speed, in this region is reached",
        reaction=Reaction.NEXT_REGION,
        remedy="delete volumes that nobody needs, allow more regions, or ask for a higher EBS quota",
    ),
    Refusal(
        codes=("VcpuLimitExceeded",),
        meaning="the account's quota of on-demand vCPUs of this family is too low",
        reaction=Reaction.NEXT_QUOTA,
        remedy=_ASK_FOR_MORE,
    ),
    Refusal(
        codes=("MaxSpotInstanceCountExceeded",),
        meaning="the account's quota of spot vCPUs of this family is too low",
        reaction=Reaction.NEXT_QUOTA,
        remedy=_ASK_FOR_MORE,
    ),
    Refusal(
        codes=("InstanceLimitExceeded",),
        meaning="the account's quota of machines of this family is too low",
        reaction=Reaction.NEXT_QUOTA,
        remedy=_ASK_FOR_MORE,
    ),
    Refusal(
        codes=("RequestLimitExceeded", "Throttling", "ThrottlingException", "SlowDown"),
        meaning="too many calls in a short time",
        reaction=Reaction.RETRY,
        remedy="try again in a minute",
    ),
    Refusal(
        codes=("InternalError", "InternalFailure", "ServerInternal", "Unavailable", "ServiceUnavailable"),
        meaning="AWS itself failed, and may or may not have carried out the request",
        reaction=Reaction.UNCLEAR,
        remedy="look with `kedge status`; https://health.aws.amazon.com shows problems of a region",
    ),
    Refusal(
        codes=("InvalidParameterValue",),
        says=("iaminstanceprofile", "iam instance profile"),
        about="about the instance profile",
        meaning="the run's role is so new that EC2 doesn't know it yet, or it is gone",
        reaction=Reaction.NOT_YET,
        remedy="try again in a minute",
    ),
    Refusal(
        codes=("InvalidPlacementGroup.Unknown",),
        meaning="the placement group of the run's machines is so new that it isn't known everywhere yet, or it is gone",
        reaction=Reaction.NOT_YET,
        remedy="try again in a minute",
    ),
    Refusal(
        codes=("InvalidGroup.NotFound", "InvalidSecurityGroupID.NotFound"),
        meaning="the security group is so new that it isn't known everywhere yet, or it is gone",
        reaction=Reaction.NOT_YET,
        remedy="try again in a minute; if the job file names the group, see that it exists in this region",
    ),
    Refusal(
        codes=("UnauthorizedOperation", "AccessDenied", "AccessDeniedException"),
        says="perform: iam:",
        about="of a call of IAM",
        meaning="this user may not pass the run's role to a machine, in any region",
        reaction=Reaction.STOP,
        remedy="have an administrator allow the call, or use another AWS_PROFILE",
    ),
    Refusal(
        codes=("UnauthorizedOperation", "AccessDenied", "AccessDeniedException"),
        says=SCP,
        about="by a service control policy",
        meaning="the account's organization forbids it in this region",
        reaction=Reaction.NEXT_REGION,
        remedy="choose another --region, or have the organization's administrator allow it",
    ),
    Refusal(
        codes=("UnauthorizedOperation", "AccessDenied", "AccessDeniedException"),
        meaning="this user may not do this",
        reaction=Reaction.STOP,
        remedy="have an administrator allow the call, or use another AWS_PROFILE",
    ),
    Refusal(
        codes=("AuthFailure.ServiceLinkedRoleCreationNotPermitted",),
        meaning="the account has never used spot machines, and this user may not create the role that they need",
        reaction=Reaction.STOP,
        remedy="have an administrator run `aws iam create-service-linked-role --aws-service-name spot.amazonaws.com`",
        our_fault=True,
    ),
    Refusal(
        codes=("AuthFailure", "UnrecognizedClientException", "InvalidClientTokenId", "SignatureDoesNotMatch"),
        meaning="AWS doesn't accept the credentials, or doesn't accept them in this region",
        reaction=Reaction.STOP,
        remedy=SIGN_IN,
        our_fault=True,
    ),
    Refusal(
        codes=("ExpiredToken", "ExpiredTokenException", "RequestExpired"),
        meaning="the credentials have expired, or this computer's clock is wrong",
        reaction=Reaction.STOP,
        remedy=SIGN_IN,
        our_fault=True,
    ),
    Refusal(
        codes=("IdempotentParameterMismatch",),
        meaning="an earlier request with this token asked for a different machine",
        reaction=Reaction.LOOK_UP,
        remedy="look with `kedge status`, end the machine with `kedge teardown`, then launch again",
    ),
    Refusal(
        codes=("IdempotentInstanceTerminated",),
        meaning="the machine of an earlier request with this token has ended",
        reaction=Reaction.STOP,
        remedy="look with `kedge status`, then continue with `kedge resume`, which asks for a new machine",
    ),
    Refusal(
        codes=("InvalidAMIID.*",),
        meaning="there is no such image in this region",
        reaction=Reaction.STOP,
        remedy="set `image_id` to an image of this region, or leave it out",
        our_fault=True,
    ),
    Refusal(
        codes=("InvalidParameter*", "InvalidUserData.*", "InvalidBlockDeviceMapping", "MissingParameter"),
        meaning="something in the request isn't valid",
        reaction=Reaction.STOP,
        remedy="change what AWS names; if the job file doesn't set it, report a bug in kedge",
        our_fault=True,
    ),
    Refusal(
        codes=("TagPolicyViolation",),
        meaning="the tags break a rule of the account's organization",
        reaction=Reaction.STOP,
        remedy="change `provider.aws.tags` in the job file as AWS says",
        our_fault=True,
    ),
    Refusal(
        codes=("OptInRequired",),
        meaning="the account hasn't enabled this region or service",
        reaction=Reaction.STOP,
        remedy="enable it in the account's settings, or choose another --region",
        our_fault=True,
    ),
    Refusal(
        codes=("VPCIdNotSpecified", "DefaultVpcDoesNotExist"),
        meaning="the region has no default VPC",
        reaction=Reaction.STOP,
        remedy="set `provider.aws.subnet` in the job file to a subnet of yours",
        our_fault=True,
    ),
    Refusal(
        codes=("PendingVerification", "Blocked"),
        meaning="AWS is checking the account, or has blocked it",
        reaction=Reaction.STOP,
        remedy="wait for AWS's mail (up to a few hours), or ask AWS's support",
    ),
)

UNKNOWN = Refusal(
    codes=("any other",),
    meaning="kedge doesn't know it",
    reaction=Reaction.STOP,
    remedy="look the code up at https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html",
)
LOST = Refusal(
    codes=("no answer",),
    meaning="the connection broke or timed out after the request was sent",
    reaction=Reaction.UNCLEAR,
    remedy="look with `kedge status`, and end the machine with `kedge teardown`",
)
UNSENT = Refusal(
    codes=("no connection",),
    meaning="the request was never sent",
    reaction=Reaction.STOP,
    remedy="check the network, and the region's name",
)

FAILED_STARTS = {
    "Client.InternalError": "its disk can't be created, mostly because the key that encrypts it may not be used",
    "Client.InvalidSnapshot.NotFound": "its image's snapshot is gone",
    "Client.VolumeLimitExceeded": "the account's limit of volumes, or of storage, in this region is reached",
    "Server.InsufficientInstanceCapacity": "there was no free machine of this type after all",
    "Server.InternalError": "AWS itself failed",
}
"""State reasons of an instance that never ran, and what they mean: its launch failed after AWS had accepted it.

https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/troubleshooting-launch.html (November 2026).
"""
