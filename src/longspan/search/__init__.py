"""Random search over numbered slots: spaces, studies in a shared storage, and workers that may die at any moment."""
