"""Optimizers over functions and pytrees; nothing here knows what a model is."""
