"""Training: the objective of a chunk, the loop over epochs, and run folders that survive being killed at any moment."""
