"""Sampling from a trained model: generate samples, continue a prime, and write MIDI, sound, pictures or text.

Only `generate` needs JAX; reading a prime and rendering work on NumPy arrays.
"""
