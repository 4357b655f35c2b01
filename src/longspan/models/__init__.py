"""Recurrent models: a cell, time around it, and an output distribution on top."""
