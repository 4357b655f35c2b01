"""Train recurrent networks well, and see why training them is hard."""

__version__ = "0.1.0"
