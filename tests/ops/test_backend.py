"""Which implementation runs is the environment's choice, and a choice that cannot be met is an error."""

import os
from typing import get_args

import jax.numpy as jnp
import pytest

from longspan import config
from longspan.errors import InputError
from longspan.ops import backend, recurrence

DEMANDED = os.environ.get("LONGSPAN_KERNELS") == "native"


@pytest.mark.skipif(not DEMANDED, reason="LONGSPAN_KERNELS=native is not set")
def test_native_kernels_run_where_the_environment_demands_them():
    assert backend.active() == "native"
    assert backend.fits(jnp.ones(1))


def test_demanded_kernels_that_were_not_built_are_an_error(monkeypatch):
    monkeypatch.setenv("LONGSPAN_KERNELS", "native")
    monkeypatch.setattr(backend, "find_native", lambda wanted: backend.Library(None, None, None, "not built"))
    with pytest.raises(InputError, match="LONGSPAN_KERNELS=native, but native kernels cannot run here: not built"):
        backend.active()


@pytest.mark.parametrize(
    ("name", "value"), [("LONGSPAN_KERNELS", "cuda"), ("LONGSPAN_INSTRUCTION_SET", "sse9"), ("LONGSPAN_THREADS", "0")]
)
def test_a_choice_that_does_not_exist_is_an_error(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=f"{name} must be .* got '{value}'"):
        backend.describe()


@pytest.mark.usefixtures("unchecked")
def test_arrays_that_kernels_do_not_serve_go_to_the_twin(monkeypatch):
    monkeypatch.setenv("LONGSPAN_KERNELS", "native")
    monkeypatch.setattr(backend, "find_native", lambda wanted: backend.Library(object(), None, None, None))
    assert backend.fits(jnp.ones(3), jnp.ones(3, jnp.int32))
    assert not backend.fits(jnp.ones(3), jnp.ones(3, jnp.bfloat16))
    assert not backend.fits(jnp.ones(3), jnp.ones((0, 3)))


def test_the_configuration_offers_the_activations_that_there_are():
    assert set(get_args(config.Activation)) == set(recurrence.ACTIVATIONS)
