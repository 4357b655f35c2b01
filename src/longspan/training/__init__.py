"""Training: the objective of a chunk, the loop over epochs, and the run folder that survives any kill."""
