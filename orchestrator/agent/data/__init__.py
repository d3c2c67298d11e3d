"""The job's data on the machine: data sets mirrored from the store; `sources` downloads data from elsewhere."""
