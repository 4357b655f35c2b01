"""Paired comparison of training methods, with the same draws, budget and rules for each."""
