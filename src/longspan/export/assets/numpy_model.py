"""A recurrent network trained by longspan, in one file that needs nothing but NumPy.

From a shell:

    python THIS_FILE.py --length 64 --seed 1 -o sample.mid       (music; without -o the frames as text)
    python THIS_FILE.py --length 500 --prime "It was"            (text)

From Python:

    model = load()
    model.log_likelihood(steps)          nats of every step, given those before it
    model.sample(64, seed=1)             steps drawn one after the other

Steps are frames of keys, 0 or 1 (time x keys), or symbols (whole numbers; `encode` and `decode` turn text into them).
The weights are at the end of the file: a compressed .npz, written as base 64.
"""

import argparse
import base64
import io
import json
import re
import struct
import sys

import numpy as np


def sigmoid(z):
    return np.exp(-np.logaddexp(0, -z))


def log_softmax(z):
    z = z - z.max(-1, keepdims=True)
    return z - np.log(np.exp(z).sum(-1, keepdims=True))


TOKEN = r"<unk>|\d+(?:[.,]\d+)+|\w+(?:['’-]\w+)*|[^\w\s]"
FUNCTIONS = {"tanh": np.tanh, "sigmoid": sigmoid, "rectifier": lambda z: np.maximum(z, 0)}


class Layer:
    """Recurrent units; the state is a tuple of vectors whose first one is shown."""

    def __init__(self, kind, activation, reset, arrays):
        self.kind, self.function, self.reset, self.arrays = kind, FUNCTIONS[activation], reset, arrays
        self.size = len(arrays["recurrent"])

    def start(self):
        return (np.zeros(self.size),) * (2 if self.kind == "lstm" else 1)

    def step(self, state, value):
        """The state after reading a symbol or a vector."""
        weights, recurrent = self.arrays["input_weights"], self.arrays["recurrent"]
        drive = self.arrays["bias"] + (weights[value] if np.ndim(value) == 0 else value @ weights)
        return getattr(self, self.kind)(state, drive, recurrent)

    def leaky(self, state, drive, recurrent):
        leak = self.arrays["leak"]
        return (leak * state[0] + (1 - leak) * self.function(state[0] @ recurrent + drive),)

    def lstm(self, state, drive, recurrent):
        hidden, cell = state
        peepholes = self.arrays.get("peepholes", np.zeros((3, 1)))
        into, kept, candidate, shown = np.split(hidden @ recurrent + drive, 4)
        into, kept = sigmoid(into + peepholes[0] * cell), sigmoid(kept + peepholes[1] * cell)
        cell = kept * cell + into * self.function(candidate)
        return sigmoid(shown + peepholes[2] * cell) * self.function(cell), cell

    def gru(self, state, drive, recurrent):
        hidden, gated = state[0], 2 * self.size
        reset, update = np.split(sigmoid(hidden @ recurrent[:, :gated] + drive[:gated]), 2)
        if self.reset == "after":
            recurred = reset * (hidden @ recurrent[:, gated:] + self.arrays["candidate_bias"])
        else:
            recurred = (reset * hidden) @ recurrent[:, gated:] + self.arrays["candidate_bias"]
        candidate = self.function(drive[gated:] + recurred)
        return ((1 - update) * candidate + update * hidden,)


class Model:
    """Layers and an output; `facts` says what the data were."""

    def __init__(self, facts, arrays):
        self.facts, self.output = facts, facts["output"]
        self.arrays = {name[5:]: array for name, array in arrays.items() if name.startswith("head.")}
        self.layers = []
        for number, (kind, activation, reset) in enumerate(facts["layers"]):
            prefix = f"layer_{number}."
            own = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
            self.layers.append(Layer(kind, activation, reset, own))
        self.draws_symbols = self.output in ("softmax", "factored", "tree")
        self.vocabulary = facts.get("vocabulary") or [f"{number} " for number in range(facts["size"])]
        unknown = [number for number, symbol in enumerate(self.vocabulary) if symbol in ("<unk>", "\ufffd")]
        self.unknown = unknown[0] if unknown else None

    def start(self):
        """The state before the first step."""
        return [layer.start() for layer in self.layers]

    def step(self, state, value):
        """The state after reading a frame or symbol, and the hidden vector that predicts what follows."""
        after = []
        for layer, before in zip(self.layers, state, strict=True):
            after.append(layer.step(before, value))
            value = after[-1][0]
        return after, value

    def first_input(self):
        """What the model reads before the first step: silence, or the symbol that ends a line."""
        if self.facts["reads_symbols"]:
            return np.intp(self.facts.get("end_token") or 0)
        return np.zeros(self.layers[0].arrays["input_weights"].shape[0])

    def log_likelihood(self, steps, inputs=None):
        """Log-likelihood of every step in nats.

        `inputs` are what the model reads before it predicts each step; by default the step before it.
        """
        steps = np.asarray(steps)
        inputs = [self.first_input(), *steps[:-1]] if inputs is None else inputs
        state, found = self.start(), []
        for value, target in zip(inputs, steps, strict=True):
            state, hidden = self.step(state, value)
            found.append(self.log_prob(hidden, target))
        return np.array(found)

    def log_prob(self, hidden, target):
        """Log-probability of a frame or symbol."""
        if self.draws_symbols:
            return self.log_probs(hidden)[target]
        logits = self.logits_of_frame(hidden, lambda key, logit: target[key])[0]
        return -np.logaddexp(0, np.where(target, -logits, logits)).sum()

    def log_probs(self, hidden):
        """Log-probabilities of all symbols."""
        arrays = self.arrays
        if self.output == "softmax":
            return log_softmax(hidden @ arrays["weights"] + arrays["bias"])
        if self.output == "tree":
            logits, paths = arrays["weights"] @ hidden + arrays["bias"], arrays["paths"].astype(int)
            against = np.where(paths % 2, -logits[paths // 2], logits[paths // 2])
            return -np.where(paths < 0, 0, np.logaddexp(0, against)).sum(axis=1)
        starts = arrays["starts"].astype(int)
        filled = np.flatnonzero(np.diff(starts))
        classes = log_softmax((hidden @ arrays["class_weights"] + arrays["class_bias"])[filled])
        words = arrays["weights"] @ hidden + arrays["bias"]
        return np.concatenate(
            [own + log_softmax(words[starts[c] : starts[c + 1]]) for own, c in zip(classes, filled, strict=True)]
        )

    def logits_of_frame(self, hidden, choose):
        """Logits of all keys, from the lowest, and the frame; `choose(key, logit)` tells whether a key is on."""
        arrays = self.arrays
        if self.output == "bernoulli":
            logits = hidden @ arrays["weights"] + arrays["bias"]
            return logits, np.array([choose(key, logit) for key, logit in enumerate(logits)])
        biases = hidden @ arrays["visible_weights"] + arrays["visible_bias"]
        units = hidden @ arrays["hidden_weights"] + arrays["hidden_bias"]
        logits, frame = np.zeros(len(biases)), np.zeros(len(biases), np.uint8)
        for key, bias in enumerate(biases):
            logits[key] = bias + sigmoid(units) @ arrays["readout"][:, key]
            frame[key] = choose(key, logits[key])
            if frame[key]:
                units = units + arrays["weights"][key]
        return logits, frame

    def sample(self, length, *, seed=0, prime=(), temperature=1.0):
        """Draw steps from the model, after those of `prime`; a temperature other than 1 is for symbols alone."""
        if temperature != 1 and not self.draws_symbols:
            raise ValueError("frames are drawn at temperature 1 only")
        random = np.random.default_rng(seed)
        state, value, drawn = self.start(), self.first_input(), []
        for following in [*prime, *[None] * length]:
            state, hidden = self.step(state, value)
            value = self._draw(hidden, random, temperature) if following is None else np.asarray(following)
            if following is None:
                drawn.append(value)
        return np.array(drawn)

    def _draw(self, hidden, random, temperature):
        if self.draws_symbols:
            log_probs = self.log_probs(hidden)
            if self.unknown is not None:  # it stands for symbols that nobody can write down
                log_probs[self.unknown] = -np.inf
            noise = random.gumbel(size=len(log_probs))
            return np.argmax(log_probs + temperature * noise)
        noise = random.logistic(size=self.facts["size"])
        return self.logits_of_frame(hidden, lambda key, logit: logit > noise[key])[1]

    def encode(self, text):
        """The symbols of a text; those the model does not know become its unknown symbol, or are refused."""
        unit = self.facts["unit"]
        if unit in ("word", "token"):
            split = re.compile(TOKEN if unit == "token" else r"\S+").findall
            symbols = [symbol for line in text.split("\n") for symbol in [*split(line), "\n"]][:-1]
        else:
            symbols = list(text.encode().decode("latin-1") if unit == "byte" else text)
        numbers = {symbol: number for number, symbol in enumerate(self.vocabulary)}
        if self.unknown is None and not set(symbols) <= set(numbers):
            raise ValueError(f"the model does not know {sorted(set(symbols) - set(numbers))[:5]}")
        return np.array([numbers.get(symbol, self.unknown) for symbol in symbols], int)

    def decode(self, numbers):
        """The text of symbols."""
        unit, symbols = self.facts.get("unit"), [self.vocabulary[number] for number in numbers]
        if unit == "byte":
            return "".join(symbols).encode("latin-1").decode("utf-8", "replace")
        if unit == "character":
            return "".join(symbols)
        text = re.sub(" ?\n ?", "\n", " ".join(symbols))
        return re.sub(r"(?<=[(\[{]) | (?=[.,;:!?%)\]}])", "", text) if unit == "token" else text


def to_midi(frames, lowest_pitch, frames_per_beat, tempo=100):
    """A MIDI file of frames; a key that stays on is held, unless a second half of the frames strikes it again."""
    ticks, last, track = 480 // frames_per_beat, 0, bytearray()
    track += b"\x00\xff\x51\x03" + struct.pack(">I", round(60e6 / tempo))[1:]
    keys = 88 if np.shape(frames)[1] == 176 else np.shape(frames)[1]
    padded = np.pad(np.asarray(frames, bool), ((1, 1), (0, 0)))
    on, again = padded[:, :keys], padded[:, keys:] if padded.shape[1] > keys else np.zeros_like(padded)
    for frame in range(len(on) - 1):
        before, now = on[frame], on[frame + 1]
        struck = now & before & again[frame + 1]
        for kind, changed in ((0x80, before & ~now | struck), (0x90, now & ~before | struck)):
            for key in np.flatnonzero(changed):
                track += _delta((frame - last) * ticks) + bytes([kind, key + lowest_pitch, 80])
                last = frame
    track += b"\x00\xff\x2f\x00"
    return b"MThd" + struct.pack(">IHHH", 6, 0, 1, ticks * frames_per_beat) + b"MTrk" + _block(bytes(track))


def _block(content):
    return struct.pack(">I", len(content)) + content


def _delta(ticks):
    """A number as MIDI writes it: seven bits per byte, the last one without the high bit."""
    found = [ticks & 127]
    while ticks := ticks >> 7:
        found.append(ticks & 127 | 128)
    return bytes(reversed(found))


def load():
    """The model of this file."""
    with np.load(io.BytesIO(base64.b64decode(PACKED))) as archive:
        arrays = {name: archive[name].astype(float) for name in archive.files if name != "facts"}
        return Model(json.loads(archive["facts"].tobytes()), arrays)


def shown(text):
    """A text as a terminal may get it: letters that would control it are spelled out, elsewhere it is unchanged."""
    if not sys.stdout.isatty():
        return text
    return "".join(each if each.isprintable() or each in "\n\t" else repr(each)[1:-1] for each in text)


def main():
    parser = argparse.ArgumentParser(description="Draw a sample from the model of this file.")
    parser.add_argument("--length", type=int, default=64, help="steps to draw (default: 64)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--temperature", type=float, default=1.0, help="text: below 1 favors likely symbols")
    parser.add_argument("--prime", default="", help="text to continue")
    parser.add_argument("--tempo", type=float, default=100, help="music: quarter notes per minute")
    parser.add_argument("-o", "--output", help="music: MIDI file to write")
    options = parser.parse_args()
    model = load()
    try:
        prime = model.encode(options.prime) if options.prime else ()
        steps = model.sample(options.length, seed=options.seed, prime=prime, temperature=options.temperature)
    except ValueError as error:
        sys.exit(f"error: {error}")
    if options.output:
        if model.facts["kind"] != "music":
            sys.exit("error: only music can be written to a MIDI file")
        with open(options.output, "wb") as file:
            file.write(to_midi(steps, model.facts["lowest_pitch"], model.facts["frames_per_beat"], options.tempo))
    elif model.draws_symbols:
        print(shown(options.prime + model.decode(steps)))
    else:
        print("\n".join("".join("#" if on else "." for on in frame) for frame in steps))


PACKED = ""
