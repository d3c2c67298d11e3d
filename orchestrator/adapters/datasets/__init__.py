"""Data sets in the bucket: a folder of the laptop's, packed into shards that machines mirror.

`data/<name>/shards/` holds contents, named by their checksums, that never change; `data/<name>/index.json.gz` says
what each file is made of, and goes last: cut at any instant, the bucket has the old data set or the new one, whole.
The machine's half is orchestrator/agent/datasets.py.
"""
