"""The stand-alone example runs, smaller than as shipped, and says what it claims."""

import runpy
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "examples" / "hessian_free_autoencoder.py"


def test_the_autoencoder_learns_better_than_with_momentum(capsys):
    main = runpy.run_path(str(EXAMPLE))["main"]
    errors = main(updates=5, count=60)
    momentum = [error for name, error in errors.items() if name.startswith("momentum")]
    assert errors["Hessian-free"] < min(momentum)
    table = capsys.readouterr().out.splitlines()
    assert len(table) == 3 + len(momentum)
    assert f"{errors['Hessian-free']:.3f}" in table[2]
