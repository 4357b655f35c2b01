"""What a model does on the steps of a split: its states, its gradients through time, and how far back it remembers.

Probes need a model and sequences, no run. Each returns a frozen structure of plain numbers.
"""
