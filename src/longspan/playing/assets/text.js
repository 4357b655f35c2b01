// The page of a model of text: type, see what surprised it, and let it go on from the cursor.

const TEXT_LIMITS = { seed: [0, 4294967295], temperature: [0, 2], length: [10, 1000] };
const GUESSES = 9, SLICE = 12, MOST_STRIP = 500; // milliseconds of work before the page may breathe; symbols in the strip
const WORDS = /<unk>|\d+(?:[.,]\d+)+|[\p{L}\p{N}_]+(?:['’-][\p{L}\p{N}_]+)*|[^\p{L}\p{N}_\s]/gu;

// A text as the symbols of a model, each with the part of the text it stands for: `[{symbol, start, stop}]`.
class Symbols {
  constructor({ unit, tokens, unknown, end_token: end }) {
    Object.assign(this, { unit, tokens, unknown, end, ids: new Map(tokens.map((token, id) => [token, id])) });
    this.byWords = unit === "word" || unit === "token";
  }

  id(token) { return this.ids.get(token) ?? this.unknown; }

  // A symbol outside of a vocabulary that has none for such cases is null: the network cannot read it.
  encode(text) {
    if (this.byWords) return this.words(text);
    const found = [];
    let at = 0;
    for (const letter of text) {
      const parts = this.unit === "byte" ? [...new TextEncoder().encode(letter)].map((byte) => String.fromCharCode(byte)) : [letter];
      for (const part of parts) found.push({ symbol: this.id(part) ?? null, known: this.ids.has(part), start: at, stop: at + letter.length });
      at += letter.length;
    }
    return found;
  }

  words(text) {
    const found = [], pattern = this.unit === "token" ? WORDS : /\S+/gu;
    let at = 0;
    text.split("\n").forEach((line, number, lines) => {
      for (const match of line.matchAll(pattern)) found.push({ symbol: this.id(match[0]) ?? null, known: this.ids.has(match[0]), start: at + match.index, stop: at + match.index + match[0].length });
      at += line.length;
      if (number < lines.length - 1) found.push({ symbol: this.ids.get("\n"), known: true, start: at, stop: at + 1 });
      at += 1;
    });
    return found;
  }

  // How a drawn symbol is written after a text; bytes of one character wait until it is complete.
  written(symbol, before, pending) {
    const token = this.tokens[symbol];
    if (this.unit === "byte") {
      pending.push(token.charCodeAt(0));
      const text = new TextDecoder().decode(Uint8Array.from(pending), { stream: true });
      const whole = new TextDecoder().decode(Uint8Array.from(pending));
      if (text === "" && pending.length < 4) return "";
      pending.length = 0;
      return whole;
    }
    if (!this.byWords || token === "\n" || before === "" || /[\s]$/u.test(before)) return token;
    const tight = this.unit === "token" && (/^[.,;:!?%)\]}]/u.test(token) || /[([{]$/u.test(before));
    return tight ? token : ` ${token}`;
  }
}

class TextPlayer {
  constructor(packed, root) {
    Object.assign(this, { packed, model: new Model(packed), symbols: new Symbols(packed.record), read: [], places: [], inserted: null });
    this.find = (name) => root.querySelector(`[data-name="${name}"]`);
    const byWords = this.symbols.byWords, defaults = { seed: 1, temperature: 0.8, length: byWords ? 60 : 300, memory: Boolean(packed.memory), text: "" };
    this.settings = fromFragment(location.hash, defaults, TEXT_LIMITS, this.model.size).settings;
    this.editor = this.find("editor");
    this.editor.value = this.settings.text;
    this.wire();
    this.restart();
    this.showControls();
    if (!this.settings.text) this.goOn();
  }

  wire() {
    const { find } = this, on = (name, event, action) => find(name).addEventListener(event, action);
    on("editor", "input", () => { this.stop(); this.inserted = null; this.follow(); });
    document.addEventListener("selectionchange", () => { if (document.activeElement === this.editor) this.showCursor(); });
    on("continue", "click", () => (this.going ? this.stop() : this.goOn()));
    on("undo", "click", () => this.takeBack());
    on("text-temperature", "input", (event) => this.set({ temperature: Number(event.target.value) }));
    on("length", "input", (event) => this.set({ length: Number(event.target.value) }));
    on("text-seed", "change", (event) => this.set({ seed: Math.min(Math.max(Math.floor(Number(event.target.value)) || 0, 0), TEXT_LIMITS.seed[1]) }));
    on("text-memory", "change", (event) => { this.set({ memory: event.target.checked }); this.restart(); });
    on("text-link", "click", () => this.copyLink());
    document.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); this.goOn(); }
      if (event.key === "Escape") this.stop();
    });
    onResize(find("mind"), () => this.drawMind());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.drawMind());
    if (!this.packed.memory) find("text-memory").closest("label").hidden = true;
    if (window !== window.top) find("text-link").hidden = true;
  }

  set(changed) {
    Object.assign(this.settings, changed);
    this.showControls();
  }

  // Read everything again; `places[i]` is the listener before symbol i.
  restart() {
    this.read = [];
    this.places = [new Listener(this.model, { memory: this.settings.memory })];
    this.follow();
  }

  // Read what has changed since the last time, a slice of time after the other, so that typing stays smooth.
  follow() {
    const symbols = this.symbols.encode(this.editor.value), { read } = this;
    let same = 0;
    while (same < read.length && same < symbols.length && read[same].symbol === symbols[same].symbol) same++;
    this.read = symbols.map((one, i) => (i < same ? { ...read[i], ...one } : one));
    this.done = same;
    this.places.length = same + 1;
    clearTimeout(this.reading);
    this.readOn();
  }

  readOn() {
    const until = performance.now() + SLICE;
    while (this.done < this.read.length && performance.now() < until) this.readOne();
    this.paint();
    if (this.done < this.read.length) this.reading = setTimeout(() => this.readOn());
    else this.showCursor();
  }

  readOne() {
    const one = this.read[this.done], place = this.places[this.done];
    if (one.symbol === null) this.places.push(place);
    else {
      one.surprise = -place.expect().logProb(one.symbol) / Math.LN2;
      const next = place.clone();
      next.read(one.symbol);
      this.places.push(next);
    }
    one.hidden = this.places[this.done + 1].hidden;
    this.done++;
  }

  // Shade every symbol by its surprise, fully where it is worse than a guess among all of them.
  paint() {
    const text = this.editor.value, parts = document.createDocumentFragment(), shade = 75 / (Math.log2(this.model.size) + 1);
    let at = 0;
    for (const { start, stop, surprise, symbol, known } of this.read) {
      if (start < at) continue; // further bytes of one character
      parts.append(text.slice(at, start));
      const span = document.createElement("span");
      span.textContent = text.slice(start, stop);
      span.style.setProperty("--bits", String(Math.round(Math.min(75, shade * (surprise ?? 0)))));
      if (symbol === null || !known) span.className = "unknown";
      parts.append(span);
      at = stop;
    }
    parts.append(`${text.slice(at)} `);
    this.find("backdrop").replaceChildren(parts);
    this.drawMind();
  }

  // Number of symbols before the cursor.
  get cursor() {
    const at = this.editor.selectionStart, after = this.read.findIndex(({ stop }) => stop > at);
    return after < 0 ? this.read.length : after;
  }

  showCursor() {
    const { cursor, symbols } = this;
    if (cursor > this.done) return;
    const scored = this.read.filter(({ surprise }) => surprise !== undefined), last = this.read[cursor - 1];
    const mean = scored.reduce((sum, { surprise }) => sum + surprise, 0) / (scored.length || 1);
    const unit = { character: "character", byte: "byte", word: "word", token: "word" }[symbols.unit];
    const shown = (symbol) => (symbols.tokens[symbol] === "\n" ? "⏎ line end" : symbols.byWords ? symbols.tokens[symbol] : `“${symbols.tokens[symbol]}”`);
    let said = scored.length ? `${mean.toFixed(2)} bits a ${unit} over ${scored.length}.` : "Type, or let it write.";
    if (last && last.surprise !== undefined) said += ` Before the cursor: ${shown(last.symbol)}, ${last.surprise.toFixed(1)} bits.`;
    if (last && last.symbol === null) said += ` The network does not know the ${unit} before the cursor and passes over it.`;
    this.find("reading").textContent = said;
    if (!this.going) this.guess(this.places[cursor].expect().logProbs, shown);
  }

  guess(logProbs, shown) {
    const best = [...logProbs.keys()].sort((a, b) => logProbs[b] - logProbs[a]).slice(0, GUESSES);
    this.find("guesses").replaceChildren(...best.map((symbol) => {
      const item = document.createElement("li"), button = document.createElement("button"), chance = Math.exp(logProbs[symbol]);
      button.type = "button";
      button.style.setProperty("--chance", chance.toFixed(3));
      button.innerHTML = "<i></i><span></span><span></span>";
      button.children[1].textContent = shown(symbol);
      button.children[2].textContent = `${(100 * chance).toFixed(chance < 0.1 ? 1 : 0)} %`;
      button.addEventListener("click", () => { this.stop(); this.insert(this.symbols.written(symbol, this.before, [])); this.follow(); });
      item.append(button);
      return item;
    }));
  }

  get before() { return this.editor.value.slice(0, this.editor.selectionStart); }

  insert(text) {
    const at = this.editor.selectionStart;
    this.editor.setRangeText(text, at, at, "end");
  }

  // Write on from the cursor. The numbers drawn follow from the seed and the number of symbols written so far.
  goOn() {
    this.stop();
    clearTimeout(this.reading);
    while (this.done < this.cursor) this.readOne();
    const listener = this.places[this.cursor].clone(), { seed, temperature, length } = this.settings, pending = [];
    const from = this.editor.selectionStart, { unknown } = this.packed.record;
    let drawn = 0;
    this.inserted = { from, text: "" };
    const write = () => {
      const until = performance.now() + SLICE;
      do {
        const { symbol } = listener.drawSymbol(new Random(seed, drawn), { temperature, forbidden: unknown });
        listener.read(symbol);
        const text = this.symbols.written(symbol, this.before, pending);
        this.insert(text);
        this.inserted.text += text;
        drawn++;
      } while (drawn < length && performance.now() < until);
      this.follow();
      if (drawn < length) this.going = setTimeout(write, 16);
      else this.stop();
    };
    this.going = setTimeout(write);
    this.showControls();
  }

  stop() {
    clearTimeout(this.going);
    const went = this.going;
    this.going = null;
    if (went) { this.showControls(); this.follow(); }
  }

  takeBack() {
    this.stop();
    if (!this.inserted) return;
    const { from, text } = this.inserted;
    if (this.editor.value.slice(from, from + text.length) === text) this.editor.setRangeText("", from, from + text.length, "end");
    this.inserted = null;
    this.follow();
  }

  showControls() {
    const { find, settings } = this;
    for (const [name, id] of Object.entries({ temperature: "text-temperature", length: "length", seed: "text-seed" })) find(id).value = settings[name];
    find("text-memory").checked = settings.memory;
    find("text-temperature-shown").textContent = settings.temperature.toFixed(2);
    find("length-shown").textContent = `${settings.length} ${this.symbols.byWords ? "words" : "characters"}`;
    find("continue").textContent = this.going ? "Stop" : "Continue from the cursor";
  }

  async copyLink() {
    const url = new URL(location.href), { from, text } = this.inserted ?? { from: 0, text: "" };
    const prompt = this.inserted && this.editor.value.slice(from, from + text.length) === text ? this.editor.value.slice(0, from) : this.editor.value;
    url.hash = toFragment({ ...this.settings, text: prompt.slice(-LONGEST_LINK / 2) });
    history.replaceState(null, "", url.hash);
    try {
      await navigator.clipboard.writeText(url.href);
      this.find("reading").textContent = "Link copied: with it, Continue writes the same again.";
    } catch {
      this.find("reading").textContent = "The address of this page now writes the same again; copy it from the address bar.";
    }
  }

  // The hidden units along the last symbols, one column each.
  drawMind() {
    const canvas = this.find("mind"), shown = this.read.slice(Math.max(0, this.done - MOST_STRIP), this.done).filter(({ hidden }) => hidden);
    const width = canvas.clientWidth, columns = Math.max(80, Math.min(shown.length, width)), units = this.model.hidden(this.places[0].states).length;
    if (!width) return;
    canvas.width = columns;
    canvas.height = units;
    const pen = canvas.getContext("2d"), image = pen.createImageData(columns, units), { above, below } = colorsOf(matchMedia("(prefers-color-scheme: dark)").matches);
    shown.slice(-columns).forEach(({ hidden }, column) => {
      for (let unit = 0; unit < units; unit++) {
        const value = hidden[unit], color = value >= 0 ? above : below, at = 4 * (unit * columns + column);
        for (let part = 0; part < 3; part++) image.data[at + part] = color[part];
        image.data[at + 3] = 255 * Math.min(1, Math.abs(value)) ** 0.8;
      }
    });
    pen.putImageData(image, 0, 0);
  }
}
