// The network: cells (leaky, lstm, gru and layers of them) and what they predict (bernoulli, nade, softmax, factored, tree).
// The equations are those of longspan's `models`; a step is a frame (bytes, one a key) or the number of a symbol.

const ACTIVATIONS = { tanh: Math.tanh, sigmoid, rectifier: (x) => (x > 0 ? x : 0) };

class LeakyCell {
  constructor(part) {
    Object.assign(this, part);
    this.f = ACTIVATIONS[part.activation];
  }

  start() { return { hidden: new Float64Array(this.size) }; }

  step({ hidden }, input) {
    const sums = addProduct(driveOf(this, input), hidden, this.recurrent, this.size), next = new Float64Array(this.size);
    for (let i = 0; i < this.size; i++) next[i] = this.leak[i] * hidden[i] + (1 - this.leak[i]) * this.f(sums[i]);
    return { hidden: next };
  }
}

class LstmCell {
  constructor(part) {
    Object.assign(this, part);
    this.f = ACTIVATIONS[part.activation];
    this.peepholes ??= new Float32Array(3 * this.size);
  }

  start() { return { hidden: new Float64Array(this.size), cell: new Float64Array(this.size) }; }

  step({ hidden, cell }, input) {
    const { size, f, peepholes } = this, sums = addProduct(driveOf(this, input), hidden, this.recurrent, 4 * size);
    const next = { hidden: new Float64Array(size), cell: new Float64Array(size) };
    for (let i = 0; i < size; i++) {
      const into = sigmoid(sums[i] + peepholes[i] * cell[i]);
      const kept = sigmoid(sums[size + i] + peepholes[size + i] * cell[i]);
      next.cell[i] = kept * cell[i] + into * f(sums[2 * size + i]);
      next.hidden[i] = sigmoid(sums[3 * size + i] + peepholes[2 * size + i] * next.cell[i]) * f(next.cell[i]);
    }
    return next;
  }
}

class GruCell {
  constructor(part) {
    Object.assign(this, part);
    this.f = ACTIVATIONS[part.activation];
  }

  start() { return { hidden: new Float64Array(this.size) }; }

  step({ hidden }, input) {
    const { size, f } = this, drive = driveOf(this, input), gates = drive.slice(0, 2 * size);
    addProduct(gates, hidden, this.recurrent, 3 * size);
    const reset = gates.subarray(0, size).map(sigmoid), after = this.reset === "after";
    const into = addProduct(Float64Array.from(this.candidate_bias), after ? hidden : hidden.map((value, i) => value * reset[i]), this.recurrent, 3 * size, 2 * size);
    const next = new Float64Array(size);
    for (let i = 0; i < size; i++) {
      const candidate = f(drive[2 * size + i] + (after ? reset[i] * into[i] : into[i]));
      next[i] = candidate + sigmoid(gates[size + i]) * (hidden[i] - candidate);
    }
    return { hidden: next };
  }
}

// What the input adds to the pre-activations, bias included: a symbol is a row of the weights, a vector a sum of rows.
function driveOf({ input_weights: weights, bias }, input) {
  const drive = Float64Array.from(bias), width = drive.length;
  if (typeof input !== "number") return addProduct(drive, input, weights, width);
  for (let i = 0; i < width; i++) drive[i] += weights[input * width + i];
  return drive;
}

// Keys on or off. `conditions(hidden)` is what is computed once; frames are then scored or drawn given it.
class BernoulliOutput {
  constructor(part) { Object.assign(this, part); }

  conditions(hidden) { return { logits: addProduct(Float64Array.from(this.bias), hidden, this.weights, this.bias.length) }; }

  walk({ logits }, choose) {
    for (let key = 0; key < logits.length; key++) choose(key, logits[key]);
  }
}

class NadeOutput {
  constructor(part) {
    Object.assign(this, part);
    this.units = this.hidden_bias.length;
    this.keys = this.visible_bias.length;
    this.columns = transposed(this.readout, this.units, this.keys);
  }

  conditions(hidden) {
    const visible = addProduct(Float64Array.from(this.visible_bias), hidden, this.visible_weights, this.keys);
    const inner = addProduct(Float64Array.from(this.hidden_bias), hidden, this.hidden_weights, this.units);
    const units = inner.map(sigmoid), logits = visible.map((bias, key) => bias + this.readOut(units, key));
    return { visible, inner, logits };
  }

  // Two sums side by side, because each addition would otherwise wait for the last one.
  readOut(units, key) {
    const { columns } = this, count = this.units, even = count & ~1;
    let i = key * count, first = 0, second = 0;
    for (let unit = 0; unit < even; unit += 2, i += 2) {
      first += units[unit] * columns[i];
      second += units[unit + 1] * columns[i + 1];
    }
    return even < count ? first + second + units[even] * columns[i] : first + second;
  }

  // Keys from the lowest to the highest, each given those below: only a key that is on changes the hidden units.
  walk({ visible, inner, logits }, choose) {
    let units = null, sums = null;
    for (let key = 0; key < this.keys; key++) {
      const logit = units === null ? logits[key] : visible[key] + this.readOut(units, key);
      if (!choose(key, logit)) continue;
      sums ??= Float64Array.from(inner);
      units ??= new Float64Array(this.units);
      for (let unit = 0, i = key * this.units; unit < this.units; unit++, i++) units[unit] = sigmoid((sums[unit] += this.weights[i]));
    }
  }
}

// What frames have in common, whatever the output: `walk` names the keys in order with their logits.
class KeyOutput {
  constructor(output) { this.output = output; }

  conditions(hidden) { return this.output.conditions(hidden); }

  logProb(conditions, frame) {
    let sum = 0;
    this.output.walk(conditions, (key, logit) => {
      sum += logSigmoid(frame[key] ? logit : -logit);
      return frame[key];
    });
    return sum;
  }

  // A frame, its log-probability, the part of it that held keys have, and the probability of each key given those below.
  draw(conditions, size, random, held) {
    const frame = new Uint8Array(size), chances = new Float64Array(size);
    let logProb = 0, logWeight = 0;
    this.output.walk(conditions, (key, logit) => {
      const chance = sigmoid(logit), free = held === null || held[key] === FREE;
      frame[key] = free ? Number(random.next() < chance) : held[key];
      const part = logSigmoid(frame[key] ? logit : -logit);
      logProb += part;
      if (!free) logWeight += part;
      chances[key] = free ? chance : frame[key];
      return frame[key];
    });
    return { frame, logProb, logWeight, chances };
  }
}

const FREE = -1, OFF = 0, ON = 1;

class SoftmaxOutput {
  constructor(part) { Object.assign(this, part); }

  logProbs(hidden) {
    const logits = addProduct(Float64Array.from(this.bias), hidden, this.weights, this.bias.length), total = logSumExp(logits);
    return logits.map((logit) => logit - total);
  }
}

class FactoredOutput {
  constructor(part) {
    Object.assign(this, part);
    this.classes = this.class_bias.length;
  }

  logProbs(hidden) {
    const { starts, bias, weights, classes } = this, size = hidden.length, found = Float64Array.from(bias);
    const ofClass = addProduct(Float64Array.from(this.class_bias), hidden, this.class_weights, classes);
    for (let which = 0; which < classes; which++) if (starts[which] === starts[which + 1]) ofClass[which] = -Infinity;
    const total = logSumExp(ofClass);
    for (let word = 0; word < found.length; word++) for (let unit = 0, i = word * size; unit < size; unit++, i++) found[word] += hidden[unit] * weights[i];
    for (let which = 0; which < classes; which++) {
      const members = found.subarray(starts[which], starts[which + 1]), shift = ofClass[which] - total - logSumExp(members);
      for (let i = 0; i < members.length; i++) members[i] += shift;
    }
    return found;
  }
}

class TreeOutput {
  constructor(part) {
    Object.assign(this, part);
    this.nodes = this.bias.length;
    this.words = this.nodes + 1;
    this.depth = this.paths.length / this.words;
  }

  logProbs(hidden) {
    const { bias, weights, paths, depth } = this, size = hidden.length, found = new Float64Array(this.words);
    const branches = new Float64Array(2 * this.nodes);
    for (let node = 0; node < this.nodes; node++) {
      let logit = bias[node];
      for (let unit = 0, i = node * size; unit < size; unit++, i++) logit += hidden[unit] * weights[i];
      const softened = Math.log1p(Math.exp(-Math.abs(logit)));
      branches[2 * node] = -softened - Math.max(logit, 0);
      branches[2 * node + 1] = -softened - Math.max(-logit, 0);
    }
    for (let word = 0; word < found.length; word++) {
      for (let i = word * depth; i < (word + 1) * depth && paths[i] >= 0; i++) found[word] += branches[paths[i]];
    }
    return found;
  }
}

const CELLS = { leaky: LeakyCell, lstm: LstmCell, gru: GruCell };
const SYMBOL_OUTPUTS = { softmax: SoftmaxOutput, factored: FactoredOutput, tree: TreeOutput };
const KEY_OUTPUTS = { bernoulli: BernoulliOutput, nade: NadeOutput };

class Model {
  constructor(packed) {
    const bytes = bytesOf(packed.content);
    const read = (part) => Object.fromEntries(Object.entries(part).map(([name, value]) => [name, value?.shape ? unpacked(bytes, value) : value]));
    this.cells = packed.cells.map((cell) => new CELLS[cell.kind](read(cell)));
    this.ofKeys = packed.output.kind in KEY_OUTPUTS;
    this.output = this.ofKeys ? new KeyOutput(new KEY_OUTPUTS[packed.output.kind](read(packed.output))) : new SYMBOL_OUTPUTS[packed.output.kind](read(packed.output));
    this.memory = packed.memory;
    this.record = packed.record;
    this.size = packed.record.size;
    this.first = this.ofKeys ? new Uint8Array(this.size) : packed.record.end_token;
  }

  start() { return this.cells.map((cell) => cell.start()); }

  step(states, input) {
    return this.cells.map((cell, layer) => {
      const next = cell.step(states[layer], input);
      input = next.hidden;
      return next;
    });
  }

  hidden(states) { return states[states.length - 1].hidden; }
}
