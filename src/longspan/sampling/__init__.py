"""Samples of a trained model: generate them, continue a prime, and write them as MIDI, sound, pictures or text.

Only `generate` needs JAX; reading a prime and rendering work on NumPy arrays.
"""
