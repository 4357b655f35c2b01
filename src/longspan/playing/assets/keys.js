// A keyboard to play: buttons as wide as a finger, as many octaves as fit, each showing how likely its key is next.

const LETTERS = "awsedftgyhujkolp;", WIDEST = 50;

class Keyboard {
  // `press` and `release` are called with keys of the model; `kept` says which ones are held down.
  constructor(root, { record, press, release }) {
    Object.assign(this, { root, record, press, release, down: new Map(), buttons: new Map() });
    this.octave = root.clientWidth > 14 * WIDEST ? 48 : 60;
    onResize(root, () => this.build());
    window.addEventListener("blur", () => this.releaseAll());
  }

  // The white keys that fit, from a C on.
  build() {
    const count = Math.max(7, Math.floor(this.root.clientWidth / WIDEST)), { record } = this;
    if (!this.root.clientWidth || (this.built === `${count} ${this.octave}`)) return;
    this.built = `${count} ${this.octave}`;
    this.buttons.clear();
    const keys = [];
    for (let pitch = this.octave, white = 0; white < count || BLACK.has(pitch % 12); pitch++) {
      const key = pitch - record.lowest_pitch, black = BLACK.has(pitch % 12);
      if (black && white === count) break;
      keys.push(this.button(key, pitch, black, white, count));
      if (!black) white++;
    }
    this.root.replaceChildren(...keys);
    this.root.setAttribute("aria-label", `Piano keys from ${noteName(this.octave)}`);
    if (this.shown) this.show(this.shown);
  }

  button(key, pitch, black, white, count) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = `key ${black ? "black" : "white"}`;
    button.style.setProperty("--at", String(white / count));
    button.style.setProperty("--wide", String(1 / count));
    button.setAttribute("aria-label", noteName(pitch));
    button.disabled = key < 0 || key >= this.record.size;
    const letter = LETTERS[pitch - this.octave];
    button.innerHTML = "<i></i><span></span>";
    button.lastChild.textContent = pitch % 12 === 0 ? noteName(pitch) : (letter ?? "").toUpperCase();
    button.addEventListener("pointerdown", (event) => { if (event.button === 0) { event.preventDefault(); button.focus(); this.strike(`pointer ${event.pointerId}`, key); } });
    for (const kind of ["pointerup", "pointercancel", "pointerleave"]) button.addEventListener(kind, (event) => this.lift(`pointer ${event.pointerId}`));
    button.addEventListener("keydown", (event) => { if ((event.key === "Enter" || event.key === " ") && !event.repeat) { event.preventDefault(); event.stopPropagation(); this.strike("focus", key); } });
    button.addEventListener("keyup", (event) => { if (event.key === "Enter" || event.key === " ") { event.stopPropagation(); this.lift("focus"); } });
    button.addEventListener("blur", () => this.lift("focus"));
    this.buttons.set(key, button);
    return button;
  }

  // `how` names the finger, so that what went down also comes up.
  strike(how, key) {
    if (this.down.has(how) || key < 0 || key >= this.record.size) return;
    this.down.set(how, key);
    this.press(key);
  }

  lift(how) {
    if (!this.down.has(how)) return;
    const key = this.down.get(how);
    this.down.delete(how);
    this.release(key);
  }

  releaseAll() { [...this.down.keys()].forEach((how) => this.lift(how)); }

  // Letters of the computer's keyboard: the row of A are the white keys from the lowest shown one on.
  letter(event, isDown) {
    const index = event.key.length === 1 ? LETTERS.indexOf(event.key.toLowerCase()) : -1;
    if (index < 0 || event.ctrlKey || event.metaKey || event.altKey) return false;
    if (isDown && !event.repeat) this.strike(`letter ${index}`, this.octave + index - this.record.lowest_pitch);
    if (!isDown) this.lift(`letter ${index}`);
    return true;
  }

  move(octaves) {
    const next = this.octave + 12 * octaves;
    if (next < 12 || next > 96) return;
    this.releaseAll();
    this.octave = next;
    this.build();
  }

  // How likely each key is, which ones sound, and which ones are held.
  show(shown) {
    this.shown = shown;
    for (const [key, button] of this.buttons) {
      button.style.setProperty("--chance", String(Math.round(100 * (shown.chances?.[key] ?? 0)) / 100));
      button.classList.toggle("sounding", shown.sounding.has(key));
      button.setAttribute("aria-pressed", String(shown.kept.has(key)));
    }
  }
}
