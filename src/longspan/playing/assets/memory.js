// The memory of the song or text: steps of the past that followed a situation like this one may come again.
// The definitions are those of longspan's `memory`; a trained gate says how far to trust each of them.

const REMEMBERED = 1024; // steps; an improvisation has no end, but a memory of the songs it learned from had one

class Recall {
  constructor({ candidates, weights, orders, bars }) {
    Object.assign(this, { most: candidates, weights, orders, bars });
    this.steps = [];
    this.names = [];
    this.matched = new Uint16Array(REMEMBERED + 1); // for every place, how many steps before it are as those before the next
  }

  clone() {
    const copy = Object.create(Recall.prototype);
    return Object.assign(copy, this, { steps: this.steps.slice(), names: this.names.slice(), matched: this.matched.slice() });
  }

  read(step) {
    const name = typeof step === "number" ? step : String.fromCharCode(...step), { names, matched } = this;
    names.push(name);
    this.steps.push(step);
    if (names.length > REMEMBERED) {
      names.shift();
      this.steps.shift();
      matched.copyWithin(0, 1);
    }
    const longest = this.orders[this.orders.length - 1];
    for (let place = names.length - 1; place > 0; place--) matched[place] = names[place - 1] === name ? Math.min(matched[place - 1] + 1, longest, place) : 0;
    matched[0] = 0;
  }

  // Different steps of the past, those of the longest match first, then the latest: `[{step, level, place, latest, count}]`.
  candidates() {
    const { names, matched, orders } = this, found = new Map(), byLevel = orders.map(() => []).concat([[]]);
    const seen = new Map();
    names.forEach((name, place) => {
      let level = 0;
      while (level < orders.length && orders[level] <= matched[place]) level++;
      byLevel[level].push(place);
      const one = seen.get(name) ?? { count: 0 };
      seen.set(name, { count: one.count + 1, latest: place });
    });
    for (let level = orders.length; level >= 0; level--) {
      for (const place of byLevel[level].reverse()) {
        if (found.size === this.most) break;
        if (!found.has(names[place])) found.set(names[place], { step: this.steps[place], level, place, ...seen.get(names[place]) });
      }
    }
    return [...found.values()];
  }

  // The share of the network and of each candidate, as logarithms; `logProb` is the network's of a step.
  mix(logProb) {
    const now = this.names.length, found = this.candidates(), levels = this.orders.length + 1;
    const scores = found.map((one, number) => {
      one.network = logProb(one.step);
      const network = Math.max(-50, Math.min(0, one.network)), best = number === 0 ? 1 : 0;
      const atLevel = Array.from({ length: levels }, (_, level) => Number(level === one.level));
      const features = [
        1, Number(one.latest === now - 1), ...atLevel, best, ...atLevel.map((is) => is * best),
        Math.log1p(found[0].level - one.level), Math.log1p(one.count), Math.log1p(now - one.latest), Math.log1p(now),
        network / 10, Math.max(network, -5) / 5, (network / 10) * best,
        ...this.bars.map((bar) => Number((now - one.place) % bar === 0)),
      ];
      return features.reduce((sum, value, i) => sum + value * this.weights[i], 0);
    });
    const total = logAddExp(0, logSumExp(scores));
    return { network: -total, candidates: found.map((one, number) => ({ ...one, logWeight: scores[number] - total })) };
  }
}

const sameStep = (a, b) => a === b || (typeof a !== "number" && a.every((value, key) => value === b[key]));
