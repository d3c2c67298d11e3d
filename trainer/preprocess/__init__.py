"""What a recipe's data need computed before training: `python -m trainer preprocess RECIPE`.

A module here computes for the recipe with its name: `preprocess(folder, weights=, say=, ...)`. It uses weights that the
user gives, and downloads nothing. Recipes don't import it.
"""
