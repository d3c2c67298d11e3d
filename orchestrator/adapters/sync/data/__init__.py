"""Data sets in the bucket: packs a folder of the laptop's into shards, which machines mirror.

`data/<name>/shards/` has immutable contents, named by their checksums. `data/<name>/index.json.gz` lists the pieces of
each file. It is written last: if a transfer is interrupted, the bucket has the whole old data set or the whole new one.
The machine's side is orchestrator/agent/data/mirror.py.
"""
