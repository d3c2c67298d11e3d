"""Publishes a run's weights: to the Hugging Face Hub, during a training too, and as a data set of Kaggle."""
