"""Train a network of excitatory and inhibitory units to decide about noisy evidence, and look at its dynamics.

Two streams of evidence fluctuate around their means; after some steps a signal asks which of the means was larger. The
network has to add up what it sees and to keep it. Its units obey Dale's law, have a third of the possible connections,
time constants of their own, which are trained, and noise of their own. The task and the kind of network are those of
Song, Yang and Wang (2016).

    python examples/decision.py [FOLDER]

It prints how often the network decides rightly, by the strength of the evidence, and draws `decision.svg`: the state of
the network, along the direction that decides, while evidence of different strengths comes in.
"""

import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import longspan
from longspan.data import Sequences

STEPS, ASKED, NOISE = 25, 20, 1.0
COHERENCES = (0.05, 0.1, 0.2, 0.4)
CELL = "rate,tau=2:20,learn_tau,noise=0.05,excitatory=0.8,density=0.33,learn_start"

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 360, 56, 96, 44, 44
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #24292f } .dim { fill: #57606a } .grid { stroke: #d0d7de }
  path { fill: none; stroke-width: 2 } .first { stroke: #2f6fb5 } .second { stroke: #d1495b }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .dim { fill: #9198a1 } .grid { stroke: #3d444d }
  }
"""


def draw_trials(count: int, seed: int, coherence: float | None = None, noise: float = NOISE):
    """Inputs (trial x step x both streams and the signal), and which stream was stronger.

    Args:
        count: number of trials.
        seed: determines them.
        coherence: strength of the evidence: the means are +c and -c, or -c and +c. By default drawn for each trial.
        noise: standard deviation of the evidence around its mean.
    """
    random = np.random.default_rng(seed)
    strengths = random.choice(COHERENCES, count) if coherence is None else np.full(count, coherence)
    first = random.random(count) < 0.5
    means = np.where(first, strengths, -strengths)[:, None]
    trials = np.zeros((count, STEPS, 3), np.float32)
    trials[:, :ASKED, 0] = means + noise * random.normal(size=(count, ASKED))
    trials[:, :ASKED, 1] = -means + noise * random.normal(size=(count, ASKED))
    trials[:, ASKED:, 2] = 1
    return trials, np.where(first, 0, 1)


def states_of(model, trials: np.ndarray) -> np.ndarray:
    """Rates of all units at every step of every trial."""
    steps = jnp.asarray(trials).swapaxes(0, 1)
    resets = jnp.zeros(steps.shape[:2], bool).at[0].set(True)
    _, rates = model.run(model.start(len(trials)), steps, resets, jnp.asarray(len(steps)))
    return np.asarray(rates.swapaxes(0, 1))


def choices_of(model, rates: np.ndarray) -> np.ndarray:
    """What the network answers after the last step of every trial."""
    return np.asarray(model.output.likeliest(jnp.asarray(rates[:, -1])))


def draw(model) -> str:
    """The mean state along the direction that tells the answers apart, for each strength of the evidence, as SVG."""
    weights = np.asarray(model.output.weights)
    direction = weights[:, 0] - weights[:, 1]
    lines = []
    for coherence in COHERENCES:
        trials, first = draw_trials(400, 2, coherence)
        along = states_of(model, trials) @ (direction / np.linalg.norm(direction))
        lines += [(coherence, answer, along[first == answer].mean(axis=0)) for answer in (0, 1)]
    low, high = min(line.min() for _, _, line in lines), max(line.max() for _, _, line in lines)

    def place(step: float, value: float) -> str:
        x = LEFT + (WIDTH - LEFT - RIGHT) * step / (STEPS - 1)
        return f"{x:.1f} {TOP + (HEIGHT - TOP - BOTTOM) * (high - value) / (high - low):.1f}"

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">']
    parts += ["<title>State along the direction that decides</title>", f"<style>{STYLE}</style>"]
    parts.append('<text x="10" y="22">Rates along the direction that decides, by the strength of the evidence</text>')
    asked = place(ASKED - 0.5, low).split()[0]
    parts.append(f'<line class="grid" x1="{asked}" x2="{asked}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
    parts.append(f'<text class="dim" x="{asked}" y="{HEIGHT - 14}" text-anchor="middle">asked</text>')
    parts.append(f'<text class="dim" x="{LEFT}" y="{HEIGHT - 14}">evidence for {ASKED} steps</text>')
    for coherence, answer, line in lines:
        path = "M" + "L".join(place(step, value) for step, value in enumerate(line))
        kind, strength = ("first", "second")[answer], 0.3 + 0.7 * coherence / COHERENCES[-1]
        parts.append(f'<path class="{kind}" opacity="{strength:.2f}" d="{path}"/>')
        x, y = place(STEPS - 1, line[-1]).split()
        parts.append(f'<text class="dim" x="{float(x) + 8:.1f}" y="{float(y) + 4:.1f}">{coherence:g}</text>')
    return "\n".join([*parts, "</svg>\n"])


def main(folder: Path, trials: int = 3000, **settings) -> dict[float, float]:
    """Train, print and draw; returns the share of right answers by the strength of the evidence."""
    inputs, answers = draw_trials(trials, 0)
    data = Sequences(inputs, answers, name="decision", normalize=False)
    chosen = {"cell": CELL, "hidden_size": 40, "lanes": 20, "learning_rate": 0.005, "max_epochs": 12, "patience": 12}
    trained = longspan.train("adam", data, run_dir=folder / "decision", **chosen | settings)
    right = {}
    for coherence in COHERENCES:
        trials_here, wanted = draw_trials(2000, 1, coherence)
        right[coherence] = float(np.mean(choices_of(trained.model, states_of(trained.model, trials_here)) == wanted))
        print(f"evidence {coherence:4g}: {right[coherence]:.0%} right, {ideal(coherence):.0%} at best")
    tau = np.exp(np.asarray(trained.model.cell.log_tau))
    print(f"time constants after training: {tau.min():.1f} to {tau.max():.1f} steps")
    (folder / "decision.svg").write_text(draw(trained.model))
    return right


def ideal(coherence: float) -> float:
    """How often the sum of all evidence is right."""
    trials, wanted = draw_trials(20_000, 3, coherence)
    sums = trials[:, :, 0].sum(1) - trials[:, :, 1].sum(1)
    return float(np.mean(np.where(sums > 0, 0, 1) == wanted))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
