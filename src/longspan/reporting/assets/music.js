// Draws every figure.roll as a piano roll and plays it: struck strings made of partials, scheduled a little ahead.

const PARTIALS = 12, ATTACK = 0.004, RELEASE = 0.18, RING = 3, AHEAD = 0.35, LOUDNESS = 0.16;

class Instrument {
  constructor() {
    this.context = new (window.AudioContext || window.webkitAudioContext)();
    const amplitudes = Float32Array.from({ length: PARTIALS + 1 }, (_, number) => (number ? number ** -1.6 : 0));
    this.wave = this.context.createPeriodicWave(new Float32Array(PARTIALS + 1), amplitudes);
    this.meter = this.context.createAnalyser(); // lets anyone see that there is sound
    this.out = this.context.createDynamicsCompressor();
    this.out.connect(this.meter).connect(this.context.destination);
    this.voices = new Set();
  }

  strike(pitch, start, seconds) {
    const { context } = this, frequency = 440 * 2 ** ((pitch - 69) / 12), ring = RING * (440 / frequency) ** 0.35;
    const string = context.createOscillator(), gain = context.createGain(), pan = context.createStereoPanner();
    const loud = LOUDNESS * (440 / frequency) ** 0.3;
    string.setPeriodicWave(this.wave);
    string.frequency.value = frequency;
    pan.pan.value = Math.max(-1, Math.min(1, (pitch - 64) / 44)) * 0.5;
    gain.gain.setValueAtTime(0, start);
    gain.gain.linearRampToValueAtTime(loud, start + ATTACK);
    gain.gain.setTargetAtTime(loud * 0.45, start + ATTACK, ring / 7); // fast at first, then slowly, as strings do
    gain.gain.setTargetAtTime(0, start + Math.min(0.5, seconds), ring);
    gain.gain.setTargetAtTime(0, start + seconds, RELEASE / 4);
    string.connect(gain).connect(pan).connect(this.out);
    string.start(start);
    string.stop(start + seconds + RELEASE);
    const voice = { string, gain };
    this.voices.add(voice);
    string.onended = () => { this.voices.delete(voice); pan.disconnect(); };
  }

  silence() {
    const now = this.context.currentTime;
    for (const { string, gain } of this.voices) {
      gain.gain.cancelScheduledValues(now);
      gain.gain.setTargetAtTime(0, now, 0.015);
      string.stop(now + 0.1);
    }
    this.voices.clear();
  }
}

let instrument = null, playing = null;

class Roll {
  constructor(figure) {
    this.sample = JSON.parse(figure.querySelector("script").textContent);
    this.keys = figure.querySelector(".keys");
    this.button = figure.querySelector("button");
    this.slider = figure.querySelector("input");
    this.clock = figure.querySelector("output");
    this.frameSeconds = 60 / this.sample.tempo / this.sample.frames_per_beat;
    this.seconds = this.sample.frames * this.frameSeconds;
    this.position = 0;
    this.slider.max = this.seconds;
    this.button.addEventListener("click", () => (playing === this ? this.pause() : this.play()));
    this.slider.addEventListener("input", () => this.seek(Number(this.slider.value)));
    drawOnResize(this.keys, (width) => this.draw(width));
    this.show();
  }

  draw(width) {
    const { notes, frames, frames_per_beat } = this.sample, labels = 26;
    this.step = Math.max((width - labels) / frames, 3.2);
    const pitches = notes.map((note) => note[2]);
    const low = Math.min(60, ...pitches) - 2, high = Math.max(72, ...pitches) + 2, key = 5;
    const y = (pitch) => (high - pitch) * key, x = (frame) => labels + frame * this.step;
    this.x = x;
    const height = (high - low + 1) * key, all = x(frames);
    this.keys.replaceChildren();
    const svg = make(this.keys, "svg", { width: all, height, viewBox: `0 0 ${all} ${height}`, role: "img", "aria-label": `piano roll of ${notes.length} notes over ${Math.round(this.seconds)} seconds` });
    for (let beat = 0; beat * frames_per_beat <= frames; beat += 4) make(svg, "line", { class: "beat", x1: x(beat * frames_per_beat), x2: x(beat * frames_per_beat), y1: 0, y2: height });
    for (let pitch = Math.ceil(low / 12) * 12; pitch <= high; pitch += 12) {
      make(svg, "line", { class: "octave", x1: labels, x2: all, y1: y(pitch) + key, y2: y(pitch) + key });
      make(svg, "text", { x: 3, y: y(pitch) + key }, `C${pitch / 12 - 1}`);
    }
    this.bars = notes.map(([start, stop, pitch]) => make(svg, "rect", { class: "note-bar", x: x(start) + 0.4, y: y(pitch), width: Math.max((stop - start) * this.step - 0.8, 1), height: key - 0.6, rx: 1.6 }));
    this.head = make(svg, "line", { class: "head", x1: 0, x2: 0, y1: 0, y2: height });
    svg.addEventListener("click", (event) => this.seek(((event.clientX - svg.getBoundingClientRect().left - labels) / this.step) * this.frameSeconds));
    this.show();
  }

  play() {
    instrument ??= new Instrument();
    instrument.context.resume();
    playing?.pause();
    playing = this;
    if (this.position >= this.seconds - 0.05) this.position = 0;
    this.begin();
    this.label("Pause", "M0 0h4v12h-4zM8 0h4v12h-4z");
    this.timer = setInterval(() => this.schedule(), 60);
    const tick = () => { if (playing === this) { this.show(); requestAnimationFrame(tick); } };
    tick();
  }

  begin() {
    this.origin = instrument.context.currentTime + 0.06 - this.position;
    this.next = this.sample.notes.findIndex((note) => note[0] * this.frameSeconds >= this.position - 1e-6);
    if (this.next < 0) this.next = this.sample.notes.length;
    this.schedule();
  }

  schedule() {
    const now = instrument.context.currentTime, { notes } = this.sample;
    for (; this.next < notes.length; this.next++) {
      const [start, stop, pitch] = notes[this.next], when = this.origin + start * this.frameSeconds;
      if (when > now + AHEAD) break;
      instrument.strike(pitch, Math.max(when, now), (stop - start) * this.frameSeconds);
    }
    this.position = Math.min(Math.max(now - this.origin, 0), this.seconds);
    if (this.position >= this.seconds) this.pause();
  }

  pause() {
    clearInterval(this.timer);
    if (playing === this) playing = null;
    instrument.silence();
    this.label("Play", "M1 0l11 6l-11 6z");
    this.show();
  }

  seek(seconds) {
    this.position = Math.max(0, Math.min(seconds, this.seconds));
    if (playing === this) { instrument.silence(); this.begin(); }
    this.show();
  }

  label(text, path) {
    this.button.querySelector("span").textContent = text;
    this.button.querySelector("path").setAttribute("d", path);
  }

  show() {
    if (playing === this) this.position = Math.min(Math.max(instrument.context.currentTime - this.origin, 0), this.seconds);
    const clock = (seconds) => `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")}`;
    this.slider.value = this.position;
    this.slider.setAttribute("aria-valuetext", clock(this.position));
    this.clock.textContent = `${clock(this.position)} / ${clock(this.seconds)}`;
    if (!this.head) return;
    const frame = this.position / this.frameSeconds, at = this.x(frame);
    this.head.setAttribute("transform", `translate(${at} 0)`);
    this.bars.forEach((bar, index) => bar.classList.toggle("sounding", playing === this && this.sample.notes[index][0] <= frame && frame < this.sample.notes[index][1]));
    const { keys } = this;
    if (playing === this && (at < keys.scrollLeft || at > keys.scrollLeft + keys.clientWidth - 30)) keys.scrollLeft = at - 40;
  }
}

document.querySelectorAll("figure.roll").forEach((figure) => new Roll(figure));
