# %% [markdown]
# # Why gradients vanish
#
# A recurrent network learns a dependency over $k$ steps only if the loss of a step still has a gradient $k$ steps
# back. This notebook measures how long that gradient is, on a task that nothing but memory solves, and what clipping
# has to do with it. Each network is a single run; other seeds give other numbers.

# %%
import matplotlib.pyplot as plt
import numpy as np

import longspan

SPAN = 30

# %% [markdown]
# ## A task that needs a memory
#
# `temporal-order` hides two marked symbols in a sequence of distractors and asks, at the end, which they were and in
# which order. Nearby steps say nothing about the answer; three answers out of four are wrong by chance. `span` is the
# length of a sequence.
#
# Three networks of 50 units get the same data, learning rate and momentum. The first has tanh units and small initial
# weights. The others are rectifiers that start from the identity matrix, so that in the beginning a gradient keeps
# its length; one of them clips the norm of its gradient.

# %%
common = {"span": SPAN, "hidden_size": 50, "max_epochs": 12, "learning_rate": 0.003, "momentum": 0.9}
identity = {"recurrent_init": "identity", "recurrent_scale": 1, "input_scale": 0.1, "l1": 0}

networks = {
    "tanh, small start": longspan.train("sgd+cm", "temporal-order", clip=1, recurrent_scale=0.5, **common),
    "identity start, not clipped": longspan.train("sgd+rm", "temporal-order", **identity, **common),
    "identity start, clipped": longspan.train("sgd+crm", "temporal-order", clip=1, **identity, **common),
}
for name, trained in networks.items():
    wrong, epochs = trained.evaluate("test").error_rate, len(trained.run.metrics())
    print(f"{name:28} {wrong:6.1%} wrong on test after {epochs} epochs")

# %% [markdown]
# ## Gradient by lag
#
# `diagnose` leads a model along the validation split and follows the gradient of each answer backwards through time.

# %%
plt.figure(figsize=(7, 3.5))
for name, trained in networks.items():
    norms = np.array(trained.diagnose(lags=SPAN - 1).measures.gradient.norms)
    plt.semilogy(norms / norms[0], label=name)
plt.xlabel("steps back")
plt.ylabel("length of the gradient,\nrelative to lag 0")
plt.legend()
plt.show()

# %% [markdown]
# In the first network nothing of the answer's gradient reaches the beginning of the sequence, where the marked
# symbols may stand: training cannot connect the two. Rectifiers that start from the identity keep the gradient alive;
# but then it can also grow, and without clipping single large steps undo what was learned.
#
# ## What clipping saw
#
# The gradient norm of every epoch, before clipping, is in the metrics of a run.

# %%
plt.figure(figsize=(7, 3))
for name, trained in networks.items():
    metrics = trained.run.metrics()
    plt.semilogy([line["epoch"] for line in metrics], [line["gradient_norm"] for line in metrics], "o-", label=name)
plt.axhline(1, color="gray", linestyle=":", label="clip = 1")
plt.xlabel("epoch")
plt.ylabel("mean gradient norm")
plt.legend()
plt.show()
