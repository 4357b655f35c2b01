// Reading and drawing step by step, as `longspan evaluate` and `longspan sample` do.
//
// A frame is chosen among candidates drawn from the model. A first choice at temperature 1 decides how many notes sound,
// how many of them are new and whether the past is recalled; among the candidates that are alike in this, the temperature
// favors the likely ones. All symbols of a text are candidates, so there it sharpens their distribution exactly.

// Frames to choose among; held keys that fit badly make most of them count little. Some more say what is possible.
const CANDIDATES = 8, CANDIDATES_IF_HELD = 64, LOOKED_AT = 16;

// A model somewhere in a song or text: `read` goes a step further, `expect` says what may come next.
class Listener {
  constructor(model, { memory = true } = {}) {
    this.model = model;
    this.recall = model.memory ? new Recall(model.memory) : null; // reads along even while nobody asks it
    this.remembers = memory;
    this.states = model.step(model.start(), model.first);
    this.last = model.first;
    this.count = 0;
  }

  // The same place, to return to; steps never change, so copies may share them.
  clone() {
    return Object.assign(Object.create(Listener.prototype), this, { recall: this.recall?.clone() ?? null });
  }

  get hidden() { return this.model.hidden(this.states); }

  read(step) {
    this.recall?.read(step);
    this.states = this.model.step(this.states, step);
    this.last = step;
    this.count++;
  }

  // What the network and the memory expect, computed once for all that is asked about the next step.
  expect() {
    const { model, hidden } = this, recall = this.remembers ? this.recall : null;
    if (!model.ofKeys) {
      const network = model.output.logProbs(hidden), mixed = recall?.mix((symbol) => network[symbol]);
      if (mixed) for (let symbol = 0; symbol < network.length; symbol++) network[symbol] += mixed.network;
      mixed?.candidates.forEach(({ step, logWeight }) => (network[step] = logAddExp(network[step], logWeight)));
      return { logProbs: network, logProb: (symbol) => network[symbol] };
    }
    const conditions = model.output.conditions(hidden), alone = (frame) => model.output.logProb(conditions, frame);
    const mixed = recall?.mix(alone) ?? { network: 0, candidates: [] };
    const copied = (frame) => logSumExp(mixed.candidates.filter(({ step }) => sameStep(step, frame)).map((one) => one.logWeight));
    const mixedWith = (network, frame) => logAddExp(mixed.network + network, copied(frame));
    return { conditions, mixed, mixedWith, logProb: (frame) => mixedWith(alone(frame), frame) };
  }

  // Draw the next frame. `held` says for each key whether it is FREE, OFF or ON, or is null.
  drawFrame(random, { temperature = 1, held = null, avoidSilence = false } = {}) {
    const { conditions, mixed, mixedWith } = this.expect(), { model } = this, count = held ? CANDIDATES_IF_HELD : LOOKED_AT;
    const drawn = Array.from({ length: count }, () => model.output.draw(conditions, model.size, random, held));
    const fresh = drawn.map(({ frame, logProb, logWeight }) => ({ frame, recalled: false, amongAlike: logProb, logProb: mixedWith(logProb, frame), logWeight: mixed.network + logWeight - Math.log(count) }));
    const copies = mixed.candidates.map(({ step, network, logWeight }) => {
      const allowed = held === null || step.every((on, key) => held[key] === FREE || held[key] === on);
      return { frame: step, recalled: true, amongAlike: logWeight, logProb: mixedWith(network, step), logWeight: allowed ? logWeight : -Infinity };
    });
    const chances = chancesOf(drawn, [...fresh, ...copies], model.size), chosenFrom = held ? count : CANDIDATES;
    const candidates = [...fresh.slice(0, chosenFrom).map((one) => ({ ...one, logWeight: one.logWeight + Math.log(count / chosenFrom) })), ...copies];
    if (avoidSilence) this.forbidSilence(candidates);
    const chosen = this.choose(candidates, temperature, random);
    return { frame: chosen.frame, logProb: chosen.logProb, chances };
  }

  forbidSilence(candidates) {
    const sounds = candidates.map(({ frame }) => frame.includes(1));
    const possible = candidates.some(({ logWeight }, i) => sounds[i] && logWeight > -Infinity);
    candidates.forEach((one, i) => {
      if (!possible) one.frame = this.last;
      else if (!sounds[i]) one.logWeight = -Infinity;
    });
  }

  choose(candidates, temperature, random) {
    const weights = candidates.map(({ logWeight }) => logWeight), pilot = candidates[random.choose(weights)];
    const numbers = ({ frame }) => frame.reduce((code, on, key) => code + on * (this.last[key] ? 1 : 129), 0); // notes + 128 x new notes
    const like = numbers(pilot), alike = candidates.filter((one) => one.logWeight > -Infinity && one.recalled === pilot.recalled && numbers(one) === like);
    if (temperature <= 0) return alike.reduce((best, one) => (one.amongAlike > best.amongAlike ? one : best));
    return alike[random.choose(alike.map(({ logWeight, amongAlike }) => logWeight + (1 / temperature - 1) * amongAlike))];
  }

  // Draw the next symbol; `forbidden` is one that is never drawn.
  drawSymbol(random, { temperature = 1, forbidden = null } = {}) {
    const { logProbs } = this.expect(), weights = logProbs.map((value, symbol) => (symbol === forbidden ? -Infinity : value));
    const symbol = temperature <= 0 ? weights.indexOf(weights.reduce((a, b) => Math.max(a, b))) : random.choose(weights.map((weight) => weight / temperature));
    return { symbol, logProb: logProbs[symbol], logProbs };
  }
}

// The probability of every key in the next frame: what the draws expected of it, given the keys below, and the copies.
function chancesOf(drawn, candidates, size) {
  const total = logSumExp(candidates.map(({ logWeight }) => logWeight)), chances = new Float64Array(size);
  if (total === -Infinity) return chances;
  candidates.forEach(({ frame, logWeight }, number) => {
    const weight = Math.exp(logWeight - total), source = number < drawn.length ? drawn[number].chances : frame;
    if (weight > 0) for (let key = 0; key < size; key++) chances[key] += weight * source[key];
  });
  return chances;
}

// Log-likelihood of every step of a song or text.
function scoreSteps(model, steps, options) {
  const listener = new Listener(model, options);
  return steps.map((step) => {
    const logProb = listener.expect().logProb(step);
    listener.read(step);
    return logProb;
  });
}
