"""Data that the machine fetches by itself: from S3, web servers, git, the Hugging Face Hub and Kaggle."""
