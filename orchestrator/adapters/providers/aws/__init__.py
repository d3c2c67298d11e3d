"""The provider `aws`: EC2 machines, spot or on demand, with S3 as their object store.

provider         the composition root: adapters/cloud decides, and calls EC2 through cloud_api
access           credentials, sessions, regions and zones
account          what a bootstrap creates once for an account; account_removal removes it
market           types, prices, quotas and images; offer_source lists them as offers
run_resources    what a run has besides machines
instances        EC2 instances; volumes has their data volumes
record, tags     what this computer, and what AWS itself, stores about a run
refusals         what AWS's error codes mean, and how kedge reacts to each
"""
