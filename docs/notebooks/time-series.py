# %% [markdown]
# # A time series
#
# Any sequence of numbers can be trained on. This one is the Mackey-Glass equation, a classic of chaotic series: its
# change depends on its own value 17 time units ago, so a model has to remember.

# %%
import matplotlib.pyplot as plt
import numpy as np

import longspan
from longspan.data import Sequences

DELAY, STEPS = 17, 3000
series = np.full(STEPS + DELAY, 1.2)
for t in range(DELAY, STEPS + DELAY - 1):
    delayed = series[t - DELAY]
    series[t + 1] = series[t] + 0.2 * delayed / (1 + delayed**10) - 0.1 * series[t]
series = series[DELAY:]

plt.figure(figsize=(7, 2.5))
plt.plot(series[:500])
plt.show()

# %% [markdown]
# ## Train
#
# One array is one sequence, whose next step is predicted. Its beginning trains, the following fifth validates and the
# last fifth tests. Numbers are normalized by what the training part shows; scores and samples are in the units you
# gave.

# %%
data = Sequences(series, name="mackey-glass")
trained = longspan.train(data=data, cell="gru", hidden_size=40, learning_rate=0.01, max_epochs=30)

scores = trained.evaluate("test")
rows = {"this model": (scores.squared_error, scores.r2)}
rows |= {name: (row["squared_error"], row["r2"]) for name, row in trained.baselines("test").items()}
for name, (error, r2) in rows.items():
    print(f"{name:24} squared error {error:.6f}   R² {r2:.4f}")

# %% [markdown]
# The last lines are simple predictors. A linear model of the last values is a strong one for a smooth series: without
# it, an R² near 1 would look like more than it is.
#
# ## Look ahead
#
# `sample` continues a beginning. Each line is one possible future, drawn step by step from the predicted
# distribution. The series is chaotic, so they part company after a while.

# %%
seen, ahead = 500, 150
start = len(series) - seen - ahead
futures = trained.sample(ahead, num=5, prime=series[start : start + seen, None])

plt.figure(figsize=(7, 3))
plt.plot(np.arange(-100, 0), series[start + seen - 100 : start + seen], color="black")
plt.plot(series[start + seen :], color="black", linestyle=":", label="what came")
plt.plot(futures[:, :, 0].T, alpha=0.6, linewidth=1)
plt.legend()
plt.show()
