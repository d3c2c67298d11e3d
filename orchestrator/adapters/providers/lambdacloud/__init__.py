"""The provider `lambda`: Lambda Cloud's on-demand instances.

provider       the composition root: adapters/cloud over cloud_api; the probes of `kedge doctor`
cloud_api      launches, lists and terminates instances; what each refusal means
run_resources  the laptop's SSH key in the account, and the network that a run's machines admit
offers         what is for sale
api            all requests to the HTTP API: their pace, failures and answers
"""
