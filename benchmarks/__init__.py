"""Speed and memory of longspan beside its peers, measured together; `python -m benchmarks` runs them."""
