"""Data sources that the machine downloads by itself: S3, web servers, git, the Hugging Face Hub and Kaggle."""
