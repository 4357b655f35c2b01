"""Trained models for other programs: ONNX, PyTorch, and one Python file that needs nothing but NumPy."""
