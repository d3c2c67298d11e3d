"""The command line: invoke tasks by topic, and how their answers are drawn. Nothing else prints."""
