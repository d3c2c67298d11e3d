"""Places fetched results safely on the laptop: in which folders, how much, and under which names."""
