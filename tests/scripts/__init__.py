"""Five scripts as users have them, which know nothing of kedge, with job files that docs/your-script.md has taught."""
