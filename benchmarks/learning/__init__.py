"""Does a recipe learn? A module here for each recipe, with its bar; benchmarks/bench_recipes.py prints the table.

The data are generated (`python -m trainer generate`); the bar can't be reached by a constant or an untrained predictor,
whose value is computed on the same data.
"""
