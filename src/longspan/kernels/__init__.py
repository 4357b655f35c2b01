"""The few operations that decide the speed, each a native kernel beside its pure-XLA twin."""


def active() -> str:
    """Which kernels run: `native` or `xla`."""
    return "xla"
