"""Random search over numbered slots: spaces, studies on a shared storage, workers that may die, the paper's tables."""
