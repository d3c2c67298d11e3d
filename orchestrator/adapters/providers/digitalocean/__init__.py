"""The providers `do` and `amd`: DigitalOcean and the AMD Developer Cloud, which has the same API.

provider       opens them: `adapters/cloud` over `cloud_api`
cloud_api      what `adapters/cloud` needs of an account; each method is one request or one listing
instances      droplets: request, listings, creation, deletion, refusals
market         what is for sale
run_resources  a run's resources besides droplets: SSH key, tag, firewall, project
api            all calls of the SDK: creations are never repeated, every failure is one of four kinds
self_deletion  how a droplet deletes itself, which ends its bill
"""
