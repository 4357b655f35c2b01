// An improvisation: frames that follow from a seed, the settings at its beginning and what was changed at which frame.
// So a link can hold all of it, and whoever opens the link hears the same notes.

const ROLES = { top: "the top voice", any: "any voice", bass: "the bass" };
const LONGEST_LINK = 8000; // characters; a longer history of changes is left out of the link

class Piece {
  // `settings`: seed, temperature, memory, avoidSilence, role. `changes`: [frame, letter, value], see `change`.
  constructor(model, settings, changes = []) {
    Object.assign(this, { model, settings, changes: [] });
    this.begin = { ...settings };
    this.now = { ...settings, keys: [] };
    this.frames = [];
    this.listener = new Listener(model, { memory: settings.memory });
    changes.forEach((change) => this.change(...change));
  }

  // t: temperature, m: memory, s: avoid silence, r: role of held keys, k: keys held from here on,
  // n: keys of this frame alone, g: a whole frame played by somebody.
  change(at, letter, value) {
    this.changes = this.changes.filter(([frame, other]) => frame !== at || other !== letter);
    this.changes.push([at, letter, value]);
    this.upcoming = null;
  }

  settingsAt(frame) {
    const now = { ...this.now };
    for (const [at, letter, value] of this.changes) {
      if (at !== frame) continue;
      if (letter === "t") now.temperature = value;
      if (letter === "m") now.memory = value;
      if (letter === "s") now.avoidSilence = value;
      if (letter === "r") now.role = value;
      if (letter === "k") now.keys = value;
    }
    return now;
  }

  find(frame, letter) { return this.changes.find(([at, other]) => at === frame && other === letter)?.[2] ?? []; }

  // Put a note into a frame to come, or take it away again.
  plant(frame, key) {
    const keys = this.find(frame, "n");
    this.change(frame, "n", keys.includes(key) ? keys.filter((other) => other !== key) : [...keys, key].sort((a, b) => a - b));
  }

  held(frame, { keys, role }) {
    const wanted = [...new Set([...keys, ...this.find(frame, "n")])];
    if (!wanted.length) return null;
    const held = new Int8Array(this.model.size).fill(FREE), high = Math.max(...wanted), low = Math.min(...wanted);
    for (let key = 0; key < held.length; key++) if ((role === "top" && key > high) || (role === "bass" && key < low)) held[key] = OFF;
    wanted.forEach((key) => (held[key] = ON));
    return held;
  }

  // The next frame as it will be if nothing is changed; `chances` says what else might come.
  peek() {
    if (this.upcoming) return this.upcoming;
    const began = performance.now(), number = this.frames.length, now = this.settingsAt(number), given = this.changes.some(([at, letter]) => at === number && letter === "g");
    this.listener.remembers = now.memory;
    const held = this.held(number, now), random = new Random(this.begin.seed, number);
    const drawn = this.listener.drawFrame(random, { ...now, held });
    if (given) {
      drawn.frame = new Uint8Array(this.model.size);
      this.find(number, "g").forEach((key) => (drawn.frame[key] = 1));
      drawn.logProb = this.listener.expect().logProb(drawn.frame);
    }
    const yours = new Set(given ? this.find(number, "g") : held ? [...now.keys, ...this.find(number, "n")] : []);
    this.milliseconds = 0.9 * (this.milliseconds ?? performance.now() - began) + 0.1 * (performance.now() - began);
    return (this.upcoming = { ...drawn, now, yours });
  }

  next() {
    const { frame, logProb, chances, now, yours } = this.peek();
    const hidden = Float32Array.from(this.listener.states.flatMap((state) => [...state.hidden]));
    const made = { number: this.frames.length, frame, chances, hidden, yours, surprise: -logProb };
    this.frames.push(made);
    this.now = now;
    this.listener.read(frame);
    this.upcoming = null;
    return made;
  }

  // Notes as [start, stop, key], in frames; a key that stays on is one note.
  notes() {
    const found = [], since = new Map();
    [...this.frames, { frame: new Uint8Array(this.model.size), number: this.frames.length }].forEach(({ frame, number }) => {
      frame.forEach((on, key) => {
        if (on && !since.has(key)) since.set(key, number);
        if (!on && since.has(key)) { found.push([since.get(key), number, key]); since.delete(key); }
      });
    });
    return found.sort((a, b) => a[0] - b[0] || a[2] - b[2]);
  }
}

// The fragment of a link: plain words, so that people can read and change them.
function toFragment(settings, changes = []) {
  const written = changes.map(([at, letter, value]) => `${at}${letter}${Array.isArray(value) ? value.join(".") : Number.isFinite(value) ? value : typeof value === "boolean" ? Number(value) : value}`);
  const words = { ...settings, ...(written.length ? { changes: written.join("~") } : {}) };
  const text = new URLSearchParams(Object.entries(words).map(([name, value]) => [name, typeof value === "boolean" ? Number(value) : value])).toString();
  return text.length > LONGEST_LINK && written.length ? toFragment(settings) : text;
}

// Settings and changes of a fragment; whatever is not understood is ignored, and numbers stay within their limits.
function fromFragment(fragment, defaults, limits, size) {
  const words = new URLSearchParams(fragment.replace(/^#/, "")), settings = { ...defaults };
  for (const [name, value] of words) {
    if (!(name in defaults)) continue;
    const kind = typeof defaults[name], number = Number(value);
    if (kind === "boolean") settings[name] = value === "1" || value === "true";
    else if (kind === "number" && value !== "" && Number.isFinite(number)) settings[name] = Math.min(Math.max(number, limits[name][0]), limits[name][1]);
    else if (kind === "string" && (!limits[name] || limits[name].includes(value))) settings[name] = value;
  }
  const changes = (words.get("changes") ?? "").split("~").map((word) => word.match(/^(\d{1,7})([tmsrkng])(.*)$/)).filter(Boolean);
  return { settings, changes: changes.map(([, at, letter, value]) => [Number(at), letter, valueOf(letter, value, size)]) };
}

function valueOf(letter, text, size) {
  if (letter === "t") return Math.min(Math.max(Number(text) || 0, 0), 2);
  if (letter === "m" || letter === "s") return text === "1";
  if (letter === "r") return Object.hasOwn(ROLES, text) ? text : "top";
  return text.split(".").filter((word) => /^\d+$/.test(word)).map(Number).filter((key) => key < size);
}
