# %% [markdown]
# # A cell of your own
#
# A cell is one step of one sequence, written as an Equinox module. Time, batches, dropout, output distributions,
# checkpoints and scores come from the library. This notebook writes a minimal gated unit (one gate for both
# forgetting and resetting; Zhou et al. 2016) and trains it beside two built-in cells.

# %%
import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt

import longspan
from longspan.models import Cell, register_cell

# %% [markdown]
# ## The cell


# %%
class MinimalGatedCell(Cell):
    gate: eqx.nn.Linear
    new: eqx.nn.Linear

    def initial_state(self):
        return jnp.zeros(self.new.out_features)

    def step(self, state, inputs):
        size, total = self.new.weight.shape
        inputs = jax.nn.one_hot(inputs, total - size)
        gate = jax.nn.sigmoid(self.gate(jnp.concatenate([inputs, state])))
        return (1 - gate) * state + gate * jnp.tanh(self.new(jnp.concatenate([inputs, gate * state])))

    def output(self, state):
        return state


@register_cell("minimal-gated")
def minimal_gated(config, inputs, *, key):
    size, keys = config.hidden_size, jax.random.split(key)
    return MinimalGatedCell(*(eqx.nn.Linear(inputs + size, size, key=each) for each in keys))


# %% [markdown]
# `register_cell` makes the name `minimal-gated` known everywhere a cell is named: in `longspan.train`, in a search,
# and with `--plugin` on the command line. The function below it builds a fresh cell from the settings of a run.
# Inputs arrive as the data have them; the data below are symbols, so each is an index and becomes a row of zeros with
# a single one.
#
# ## Train it beside others
#
# `temporal-order` hides two marked symbols in a sequence of distractors and asks at the end which they were and in
# which order. Three answers out of four are wrong by chance.

# %%
runs = {}
for cell in ("leaky", "minimal-gated", "gru"):
    runs[cell] = longspan.train(
        "adam", "temporal-order", span=30, cell=cell, hidden_size=32, learning_rate=0.003, max_epochs=10
    )
    wrong = runs[cell].evaluate("test").error_rate
    print(f"{cell:14} {wrong:6.1%} wrong on test after {len(runs[cell].run.metrics())} epochs")

# %%
plt.figure(figsize=(7, 3.5))
for cell, trained in runs.items():
    metrics = trained.run.metrics()
    plt.plot([line["epoch"] for line in metrics], [line["valid_log_likelihood"] for line in metrics], "o-", label=cell)
plt.xlabel("epoch")
plt.ylabel("validation log-likelihood,\nnats")
plt.legend()
plt.show()

# %% [markdown]
# ## What a run folder keeps
#
# The folder of a run has the name of the cell and its weights, never its code. To open it, import the module
# that registers the cell first.

# %%
again = longspan.open_run(runs["minimal-gated"].run.path)
assert again.evaluate("test") == runs["minimal-gated"].evaluate("test")
print(again.run.config.cell, sorted(path.name for path in again.run.path.iterdir()))
