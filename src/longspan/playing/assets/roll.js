// The scrolling piano roll with what might come next, and below it how surprised the network was and what its units did.

const NAMES = ["C", "C♯", "D", "E♭", "E", "F", "F♯", "G", "A♭", "A", "B♭", "B"], BLACK = new Set([1, 3, 6, 8, 10]);
const noteName = (pitch) => `${NAMES[pitch % 12]}${Math.floor(pitch / 12) - 1}`;
const NOW = 0.64; // where on the stage the present is; what lies to its right can still be changed
const SURPRISE = 34, UNITS = 64, GAP = 8, LEAST_SHOWN = 0.02;

// Calls back when an element has a size, at first too; in a frame of its own, so that the answer may change the layout.
function onResize(element, action) {
  new ResizeObserver(() => requestAnimationFrame(action)).observe(element);
}

class Roll {
  constructor(canvas, { record }) {
    Object.assign(this, { canvas, record, low: Infinity, high: -Infinity, cursor: null, position: 0, loudest: null });
    this.context = canvas.getContext("2d");
    const dark = matchMedia("(prefers-color-scheme: dark)");
    this.readColors = () => { this.colors = colorsOf(dark.matches); };
    dark.addEventListener("change", () => { this.readColors(); this.render(); });
    this.readColors();
    onResize(canvas, () => this.resize());
  }

  // Keys that have to be visible.
  cover(keys, margin = 2) {
    for (const key of keys) {
      this.low = Math.max(0, Math.min(this.low, key - margin));
      this.high = Math.min(this.record.size - 1, Math.max(this.high, key + margin));
    }
  }

  // Learn how loud each hidden unit becomes.
  hear(hidden) {
    this.loudest ??= new Float32Array(hidden.length).fill(1e-3);
    hidden.forEach((value, unit) => { this.loudest[unit] = Math.max(this.loudest[unit], Math.abs(value)); });
  }

  resize() {
    const { clientWidth, clientHeight } = this.canvas, ratio = window.devicePixelRatio || 1;
    if (!clientWidth) return;
    this.canvas.width = clientWidth * ratio;
    this.canvas.height = clientHeight * ratio;
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.width = clientWidth;
    this.bottom = clientHeight - SURPRISE - UNITS - 2 * GAP;
    this.step = Math.max(9, Math.min(46, clientWidth / 22) / this.record.frames_per_beat);
    this.nowX = Math.round(clientWidth * NOW);
    this.render();
  }

  x(frame) { return this.nowX + (frame - this.position) * this.step; }
  y(key) { return ((this.high - key) * this.bottom) / (this.high - this.low + 1); }
  get rowHeight() { return this.bottom / (this.high - this.low + 1); }

  // The frame and key at a point of the canvas; null outside of the roll.
  at(x, y) {
    if (y < 0 || y >= this.bottom) return null;
    return { frame: Math.floor(this.position + (x - this.nowX) / this.step), key: this.high - Math.floor(y / this.rowHeight) };
  }

  render(piece = this.piece, position = this.position) {
    Object.assign(this, { piece, position });
    if (!piece || !this.width) return;
    const { context, canvas } = this;
    context.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
    this.drawGrid();
    this.first = Math.max(0, Math.floor(position - this.nowX / this.step));
    for (let gone = this.first - 4; gone < this.first; gone++) if (gone >= 0) delete piece.frames[gone].column; // a piece has no end
    this.until = Math.min(piece.frames.length, Math.ceil(position));
    this.drawChances();
    this.drawNotes();
    this.drawStrips();
    this.drawFuture();
    this.drawLabels();
  }

  drawGrid() {
    const { context, colors, width, bottom, record, rowHeight } = this;
    for (let key = this.low; key <= this.high; key++) {
      const pitch = (key + record.lowest_pitch) % 12, y = this.y(key);
      context.fillStyle = BLACK.has(pitch) ? colors.shade : colors.card;
      context.fillRect(0, y, width, rowHeight + 0.5);
      if (pitch === 0) { context.fillStyle = colors.line; context.fillRect(0, y + rowHeight - 0.5, width, 1); }
    }
    const bar = 4 * record.frames_per_beat;
    for (let frame = Math.ceil((this.position - this.nowX / this.step) / record.frames_per_beat) * record.frames_per_beat; this.x(frame) < width; frame += record.frames_per_beat) {
      if (frame < 0) continue;
      context.fillStyle = frame % bar ? colors.grid : colors.line;
      context.fillRect(Math.round(this.x(frame)), 0, 1, bottom);
    }
  }

  // Behind the notes, faintly, what else was possible.
  drawChances() {
    const { context, piece, colors } = this;
    context.fillStyle = colors.ghost;
    for (let number = this.first; number < this.until; number++) this.drawGhosts(piece.frames[number].chances, this.x(number), this.step, 0.3);
    context.globalAlpha = 1;
  }

  drawGhosts(chances, x, width, strength) {
    const { context, rowHeight } = this;
    for (let key = this.low; key <= this.high; key++) {
      if (chances[key] < LEAST_SHOWN) continue;
      context.globalAlpha = strength * Math.sqrt(chances[key]);
      context.fillRect(x + 1, this.y(key), width - 2, rowHeight - 1);
    }
  }

  drawNotes() {
    const { context, piece, record } = this;
    context.save();
    context.beginPath();
    context.rect(0, 0, this.nowX, this.bottom);
    context.clip();
    for (let number = this.first; number < this.until; number++) {
      const { frame, yours } = piece.frames[number], before = number > this.first ? piece.frames[number - 1].frame : null;
      for (let key = this.low; key <= this.high; key++) {
        if (!frame[key] || before?.[key]) continue;
        let stop = number + 1;
        while (stop < piece.frames.length && piece.frames[stop].frame[key]) stop++;
        this.drawNote(key, number, stop, this.colors.notes[(key + record.lowest_pitch) % 12], yours.has(key), stop >= this.position);
      }
    }
    context.restore();
  }

  drawNote(key, start, stop, color, yours, sounding) {
    const { context, rowHeight, colors } = this, x = this.x(start) + 1, y = this.y(key) + 0.5, height = Math.max(2, rowHeight - 1.5);
    context.beginPath();
    context.roundRect(x, y, (stop - start) * this.step - 2, height, Math.min(4, height / 2));
    context.fillStyle = color;
    if (sounding) { context.shadowColor = color; context.shadowBlur = 12; }
    context.fill();
    context.shadowBlur = 0;
    if (!yours) return;
    context.strokeStyle = colors.ink;
    context.lineWidth = 1.5;
    context.stroke();
  }

  drawStrips() {
    const { context, piece, colors, step } = this, top = this.bottom + GAP, strip = top + SURPRISE + GAP;
    for (let number = this.first; number < this.until; number++) {
      const { surprise, hidden } = piece.frames[number], x = this.x(number), high = Math.min(1, surprise / 16) * SURPRISE;
      const width = Math.min(step, this.nowX - x);
      context.fillStyle = surprise > 12 ? colors.second : colors.first;
      context.fillRect(x + 0.5, top + SURPRISE - high, Math.max(0, width - 1), high);
      context.imageSmoothingEnabled = false;
      context.drawImage(this.column(piece.frames[number], hidden), x, strip, width, UNITS);
    }
    context.fillStyle = colors.line;
    context.fillRect(0, top + SURPRISE, this.nowX, 1);
  }

  // The units of a step as a picture one pixel wide: one color above zero, another below. Each is measured by its own
  // loudest moment, since some are always louder than others; of many units, a pixel shows the most excited one.
  column(frame, hidden) {
    if (frame.column?.theme === this.colors) return frame.column.picture;
    const rows = Math.min(UNITS, hidden.length), picture = document.createElement("canvas"), pen = picture.getContext("2d");
    picture.width = 1;
    picture.height = rows;
    const shown = new Float32Array(rows), image = pen.createImageData(1, rows);
    this.hear(hidden);
    hidden.forEach((value, unit) => {
      const row = Math.floor((unit * rows) / hidden.length), share = value / this.loudest[unit];
      if (Math.abs(share) > Math.abs(shown[row])) shown[row] = share;
    });
    shown.forEach((share, row) => image.data.set([...(share >= 0 ? this.colors.above : this.colors.below), 255 * Math.abs(share) ** 0.7], 4 * row));
    pen.putImageData(image, 0, 0);
    frame.column = { picture, theme: this.colors };
    return picture;
  }

  // Right of the present: the chances of the next frame, notes put in by hand, and where the keyboard's cursor is.
  drawFuture() {
    const { context, piece, colors, record, rowHeight } = this, next = Math.ceil(this.position);
    const expected = piece.frames[next]?.chances ?? (piece.frames.length === next ? piece.peek().chances : null);
    if (expected) {
      for (let key = this.low; key <= this.high; key++) {
        if (expected[key] < LEAST_SHOWN) continue;
        context.globalAlpha = 0.15 + 0.85 * expected[key];
        context.fillStyle = colors.notes[(key + record.lowest_pitch) % 12];
        context.beginPath();
        context.roundRect(this.nowX + 3, this.y(key) + 1, Math.max(3, expected[key] * 2.2 * Math.max(this.step, 26)), Math.max(2, rowHeight - 2), 3);
        context.fill();
      }
    }
    context.globalAlpha = 1;
    for (const [frame, letter, keys] of piece.changes) {
      if (letter !== "n" || frame < this.position) continue;
      for (const key of keys) this.drawNote(key, frame, frame + 1, colors.notes[(key + record.lowest_pitch) % 12], true, false);
    }
    if (this.cursor) {
      context.strokeStyle = colors.focus;
      context.lineWidth = 2;
      context.strokeRect(this.x(this.cursor.frame), this.y(this.cursor.key) - 1, this.step, rowHeight + 1);
    }
    context.fillStyle = colors.second;
    context.fillRect(this.nowX - 1, 0, 2, this.bottom);
  }

  drawLabels() {
    const { context, colors, record, bottom } = this;
    context.fillStyle = colors.soft;
    context.font = "10.5px system-ui, sans-serif";
    for (let key = this.low; key <= this.high; key++) if ((key + record.lowest_pitch) % 12 === 0) context.fillText(noteName(key + record.lowest_pitch), this.width - 24, this.y(key) + this.rowHeight - 1);
    context.fillText("surprise, nats", this.nowX + 8, bottom + GAP + SURPRISE - 4);
    context.fillText("hidden units", this.nowX + 8, bottom + 2 * GAP + SURPRISE + UNITS / 2 + 4);
  }
}

// The colors of the style sheet for the canvas. Pitch classes a fifth apart have neighboring hues.
function colorsOf(dark) {
  const style = getComputedStyle(document.documentElement), read = (name) => style.getPropertyValue(`--${name}`).trim();
  const names = ["card", "line", "grid", "ink", "soft", "first", "second", "focus"];
  return {
    ...Object.fromEntries(names.map((name) => [name, read(name)])),
    shade: dark ? "#181b20" : "#f9f7f3",
    ghost: dark ? "#aab6c6" : "#5a6f8a",
    above: dark ? [116, 174, 232] : [47, 111, 179],
    below: dark ? [240, 151, 90] : [194, 80, 15],
    notes: Array.from({ length: 12 }, (_, pitch) => `hsl(${(212 + 30 * ((pitch * 7) % 12)) % 360} ${dark ? "62% 64%" : "58% 47%"})`),
  };
}
