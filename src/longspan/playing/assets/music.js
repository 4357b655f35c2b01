// The page of a model of music: it plays on and on, and people play with it.

const AHEAD = 0.14, AHEAD_HIDDEN = 2.5, TICK = 25; // seconds scheduled ahead, also where a hidden page is rarely called; milliseconds
const ANSWER_AFTER = 2; // beats of silence after which it is the model's turn
const MUSIC_LIMITS = { seed: [0, 4294967295], temperature: [0, 2], tempo: [30, 240], voice: Object.keys(VOICES), role: Object.keys(ROLES), mode: ["together", "turns"] };
const TUNES = { // pitch and beats
  "Ode to Joy": "64 64 65 67 67 65 64 62 60 60 62 64 64 62 62:2 64 64 65 67 67 65 64 62 60 60 62 64 62 60 60:2",
  "Twinkle, twinkle": "60 60 67 67 69 69 67:2 65 65 64 64 62 62 60:2 67 67 65 65 64 64 62:2 60 60 67 67 69 69 67:2 65 65 64 64 62 62 60:2",
  "Au clair de la lune": "72 72 72 74 76:2 74:2 72 76 74 74 72:4",
  "Lo, how a rose": "67:2 67 67 69 67 67:2 64:2 65:2 64 62:2 60:2 59 60:4",
};

class MusicPlayer {
  constructor(packed, root) {
    this.packed = packed;
    this.model = new Model(packed);
    this.root = root;
    this.find = (name) => root.querySelector(`[data-name="${name}"]`);
    const defaults = { seed: 1, temperature: 1, tempo: 100, voice: packed.record.frames_per_beat === 1 ? "organ" : "piano", memory: Boolean(packed.memory), avoidSilence: false, role: "top", mode: "together" };
    const { settings, changes } = fromFragment(location.hash, defaults, MUSIC_LIMITS, this.model.size);
    this.settings = settings;
    this.pressed = new Map(); // key -> its tone
    this.tapped = new Set();
    this.kept = new Set();
    this.tones = new Map();
    this.timeline = [];
    this.volume = 0.8;
    this.roll = new Roll(this.find("roll"), this.model);
    this.compose(changes);
    this.surveyRange();
    this.keyboard = new Keyboard(this.find("keys"), { record: this.model.record, press: (key) => this.press(key), release: (key) => this.release(key) });
    this.wire();
    this.show();
  }

  get pitchOf() { return (key) => key + this.model.record.lowest_pitch; }
  get frameSeconds() { return 60 / this.settings.tempo / this.model.record.frames_per_beat; }
  get playing() { return Boolean(this.timer); }

  // Begin a piece; `changes` are those of a link.
  compose(changes = []) {
    const { seed, temperature, memory, avoidSilence, role } = this.settings;
    this.piece = new Piece(this.model, { seed, temperature, memory, avoidSilence, role }, changes);
    this.timeline = [];
    this.waiting = null;
  }

  // Which keys the model uses and how loud its units are, so that the stage shows these and no more.
  surveyRange() {
    const piece = new Piece(this.model, this.piece.begin);
    for (let i = 0; i < 24; i++) {
      const { chances, hidden } = piece.next();
      this.roll.cover([...chances.keys()].filter((key) => chances[key] > 0.05));
      this.roll.hear(hidden);
    }
    if (this.roll.high < 0) this.roll.cover([39, 63]);
    for (const [, letter, keys] of this.piece.changes) if ("kng".includes(letter)) this.roll.cover(keys);
  }

  wire() {
    const { find } = this, on = (name, event, action) => find(name).addEventListener(event, action);
    on("play", "click", () => (this.playing ? this.pause() : this.play()));
    on("again", "click", () => this.restart(this.piece.changes));
    on("new", "click", () => { this.settings.seed = crypto.getRandomValues(new Uint32Array(1))[0] % 1000000; this.restart([]); });
    on("seed", "change", (event) => { this.settings.seed = Math.min(Math.max(Math.floor(Number(event.target.value)) || 0, 0), MUSIC_LIMITS.seed[1]); this.restart([]); });
    on("tempo", "input", (event) => this.set({ tempo: Number(event.target.value) }));
    on("temperature", "input", (event) => this.set({ temperature: Number(event.target.value) }, "t"));
    on("voice", "change", (event) => this.set({ voice: event.target.value }));
    on("volume", "input", (event) => { this.volume = Number(event.target.value); if (this.orchestra) this.orchestra.out.gain.value = this.volume; });
    on("memory", "change", (event) => this.set({ memory: event.target.checked }, "m"));
    on("avoidSilence", "change", (event) => this.set({ avoidSilence: event.target.checked }, "s"));
    on("role", "change", (event) => this.set({ role: event.target.value }, "r"));
    on("mode", "change", (event) => { this.set({ mode: event.target.value }); this.waiting = null; this.keep([]); });
    on("hold", "change", (event) => { if (!event.target.checked) this.keep([]); });
    on("tune", "change", (event) => { if (event.target.value) this.plantTune(event.target.value); event.target.value = ""; });
    on("lower", "click", () => this.keyboard.move(-1));
    on("higher", "click", () => this.keyboard.move(1));
    on("midi", "click", async () => this.say(await listenToKeyboards((pitch) => this.keyboard.strike(`midi ${pitch}`, pitch - this.model.record.lowest_pitch), (pitch) => this.keyboard.lift(`midi ${pitch}`))));
    on("save", "click", () => this.save());
    on("link", "click", () => this.copyLink());
    this.wireRoll();
    document.addEventListener("keydown", (event) => this.onKey(event, true));
    document.addEventListener("keyup", (event) => this.onKey(event, false));
    for (const [name, voice] of Object.entries(VOICES)) find("voice").append(new Option(voice.name, name));
    for (const name of Object.keys(TUNES)) find("tune").append(new Option(name, name));
    if (!this.packed.memory) find("memory").closest("label").hidden = true;
    if (window !== window.top) find("link").hidden = true;
  }

  // Notes are put in by a click, or by arrow keys and Enter.
  wireRoll() {
    const { roll } = this, { canvas } = roll;
    canvas.addEventListener("pointerdown", (event) => {
      const box = canvas.getBoundingClientRect(), at = roll.at(event.clientX - box.left, event.clientY - box.top);
      if (at) this.touch(at);
    });
    canvas.addEventListener("keydown", (event) => {
      const steps = { ArrowUp: [0, 1], ArrowDown: [0, -1], ArrowRight: [1, 0], ArrowLeft: [-1, 0] }[event.key];
      const first = this.piece.frames.length + 1;
      roll.cursor ??= { frame: first, key: Math.round((roll.low + roll.high) / 2) };
      if (steps) roll.cursor = { frame: Math.max(first, roll.cursor.frame + steps[0]), key: Math.min(roll.high, Math.max(roll.low, roll.cursor.key + steps[1])) };
      else if (event.key === "Enter") this.touch(roll.cursor);
      else if (event.key === "Escape") roll.cursor = null;
      else return;
      event.preventDefault();
      if (roll.cursor && steps) this.say(`${noteName(this.pitchOf(roll.cursor.key))}, ${roll.cursor.frame - this.piece.frames.length} ahead`);
      this.show();
    });
    canvas.addEventListener("blur", () => { roll.cursor = null; this.show(); });
  }

  touch({ frame, key }) {
    this.audition(key);
    if (frame < this.piece.frames.length) return this.say("That has been played. Click to the right of the line to put a note in.");
    this.piece.plant(frame, key);
    this.piece.change(this.piece.frames.length, "r", this.settings.role);
    const there = this.piece.find(frame, "n").includes(key);
    this.say(`${noteName(this.pitchOf(key))} ${there ? "will sound; the others are filled in" : "taken away"}.`);
    this.show();
  }

  onKey(event, isDown) {
    const target = event.target, typing = target.matches?.("input:not([type=range]):not([type=checkbox]), textarea, select");
    if (typing) return;
    if (isDown && event.key === " " && !target.matches?.("button, input, summary, a")) { event.preventDefault(); this.find("play").click(); }
    else if (isDown && (event.key === "z" || event.key === "x") && !event.ctrlKey && !event.metaKey) this.keyboard.move(event.key === "z" ? -1 : 1);
    else if (this.keyboard.letter(event, isDown)) event.preventDefault();
  }

  // Change settings; those that decide notes are remembered with the frame from which they hold.
  set(changed, letter = null) {
    Object.assign(this.settings, changed);
    if (letter && this.piece.frames.length) this.piece.change(this.piece.frames.length, letter, Object.values(changed)[0]);
    else if (letter) this.compose(this.piece.changes);
    this.show();
  }

  sound() {
    this.orchestra ??= new Orchestra();
    this.orchestra.context.resume();
    this.orchestra.voice = this.settings.voice;
    this.orchestra.out.gain.value = this.volume;
    return this.orchestra;
  }

  audition(key) {
    const sound = this.sound(), now = sound.context.currentTime;
    sound.begin(this.pitchOf(key), now).end(now + 0.35);
  }

  press(key) {
    this.roll.cover([key]);
    const holding = this.find("hold").checked;
    if (holding && this.settings.mode === "together") {
      this.audition(key);
      return this.keep(this.kept.has(key) ? [...this.kept].filter((other) => other !== key) : [...this.kept, key]);
    }
    const sound = this.sound();
    this.pressed.set(key, sound.begin(this.pitchOf(key), sound.context.currentTime));
    this.tapped.add(key);
    if (this.settings.mode === "turns") {
      this.waiting ??= [];
      if (!this.playing) this.play();
    }
    this.preview();
  }

  release(key) {
    this.pressed.get(key)?.end(this.orchestra.context.currentTime);
    this.pressed.delete(key);
    this.preview();
  }

  keep(keys) {
    this.kept = new Set(keys);
    this.preview();
  }

  get wanted() { return [...new Set([...this.pressed.keys(), ...this.tapped, ...this.kept])].sort((a, b) => a - b); }

  // What the keys that are down now do to the chances of the next frame.
  preview() {
    if (!this.playing) this.tapped.clear();
    if (this.settings.mode === "together") this.holdKeys();
    this.show();
  }

  holdKeys() {
    const { piece, wanted } = this, number = piece.frames.length;
    if (String(piece.settingsAt(number).keys) !== String(wanted)) piece.change(number, "k", wanted);
  }

  play() {
    const sound = this.sound();
    this.due = sound.context.currentTime + 0.1;
    this.timer = setInterval(() => this.schedule(), TICK);
    this.schedule();
    const draw = () => { if (this.playing) { this.show(); requestAnimationFrame(draw); } };
    draw();
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    this.tones.clear();
    this.orchestra?.silence();
    this.show();
  }

  restart(changes) {
    const played = this.playing;
    if (played) this.pause();
    this.kept.clear();
    if (!changes.length) this.compose();
    else {
      Object.assign(this.settings, this.piece.begin);
      this.compose(changes);
    }
    if (played) this.play();
    this.show();
  }

  schedule() {
    const ahead = document.hidden ? AHEAD_HIDDEN : AHEAD, { context } = this.orchestra;
    if (this.due < context.currentTime) this.due = context.currentTime + 0.05;
    while (this.playing && this.due < context.currentTime + ahead) {
      if (this.waiting) this.listen();
      else this.advance();
      this.due += this.frameSeconds;
    }
  }

  // A frame of the model, with the keys that are down.
  advance() {
    if (this.settings.mode === "together") this.holdKeys();
    this.tapped = new Set(this.pressed.keys());
    const made = this.piece.next();
    this.timeline.push([this.due, made.number]);
    this.roll.cover([...made.frame.keys()].filter((key) => made.frame[key]));
    this.perform(made);
  }

  // A frame of the people's turn; pauses count once they go on, and a longer one hands over.
  listen() {
    const keys = this.wanted, { piece } = this;
    this.tapped = new Set(this.pressed.keys());
    if (!keys.length) {
      this.waiting.push([]);
      if (this.waiting.length >= ANSWER_AFTER * this.model.record.frames_per_beat) { this.waiting = null; this.say("Its turn."); }
      return;
    }
    const pauses = piece.frames.length && piece.changes.some(([at, letter]) => letter === "g" && at === piece.frames.length - 1) ? this.waiting : [];
    for (const part of [...pauses, keys]) {
      piece.change(piece.frames.length, "g", part);
      this.timeline.push([this.due, piece.next().number]);
    }
    this.waiting = [];
  }

  perform({ frame }) {
    const { orchestra, due } = this;
    orchestra.voice = this.settings.voice;
    for (const [key, tone] of this.tones) if (!frame[key]) { tone?.end(due); this.tones.delete(key); }
    frame.forEach((on, key) => { if (on && !this.tones.has(key)) this.tones.set(key, this.pressed.has(key) ? null : orchestra.begin(this.pitchOf(key), due)); });
  }

  // Where the present is, in frames.
  get position() {
    if (!this.playing) return this.piece.frames.length;
    const now = this.orchestra.context.currentTime;
    while (this.timeline.length > 1 && this.timeline[1][0] <= now) this.timeline.shift();
    if (!this.timeline.length) return this.piece.frames.length;
    const [time, number] = this.timeline[0], part = (now - time) / this.frameSeconds;
    return number + (matchMedia("(prefers-reduced-motion: reduce)").matches ? Math.min(1, Math.ceil(part)) : Math.min(1, part));
  }

  plantTune(name) {
    const { frames_per_beat: beat, lowest_pitch } = this.model.record, bar = 4 * beat, { piece } = this;
    let frame = Math.ceil((piece.frames.length + 1) / bar) * bar;
    if (!piece.frames.length) frame = 0;
    piece.changes = piece.changes.filter(([at, letter]) => letter !== "n" || at < piece.frames.length);
    piece.change(piece.frames.length, "r", "top");
    this.settings.role = "top";
    for (const [pitch, beats = 1] of TUNES[name].split(" ").map((word) => word.split(":").map(Number))) {
      const key = pitch - lowest_pitch;
      this.roll.cover([key]);
      for (let i = 0; i < beats * beat; i++, frame++) piece.change(frame, "n", [key]);
    }
    this.say(`${name}: the melody is given, the model adds the voices below.`);
    if (!this.playing) this.play();
  }

  say(text) { this.find("said").textContent = text; }

  get fragment() {
    const { tempo, voice, mode } = this.settings;
    return toFragment({ ...this.piece.begin, tempo, voice, mode }, this.piece.changes);
  }

  async copyLink() {
    const url = new URL(location.href);
    url.hash = this.fragment;
    history.replaceState(null, "", url.hash);
    try {
      await navigator.clipboard.writeText(url.href);
      this.say("Link copied: it plays these notes again.");
    } catch {
      this.say("The address of this page now plays these notes again; copy it from the address bar.");
    }
  }

  midiBytes() {
    const notes = this.piece.notes().map(([start, stop, key]) => [start, stop, this.pitchOf(key)]), { tempo, voice } = this.settings;
    return midiFile(notes, { frames: this.piece.frames.length, framesPerBeat: this.model.record.frames_per_beat, tempo, program: VOICES[voice].program, ...keyOf(notes) });
  }

  save() {
    if (!this.piece.frames.length) return this.say("Nothing has been played yet.");
    const file = document.createElement("a");
    file.href = URL.createObjectURL(new Blob([this.midiBytes()], { type: "audio/midi" }));
    file.download = `${this.packed.title.replace(/[^\w-]+/g, "-")}-${this.piece.begin.seed}.mid`;
    file.click();
    setTimeout(() => URL.revokeObjectURL(file.href), 10000);
    this.say(`Saved ${this.piece.frames.length} frames as ${file.download}.`);
  }

  // Bring all that is visible up to date.
  show() {
    const { find, settings, piece } = this, { position } = this, current = piece.frames[Math.floor(position - 1e-9)] ?? null;
    const sounding = new Set(this.pressed.keys());
    if (this.playing && current) current.frame.forEach((on, key) => { if (on) sounding.add(key); });
    this.roll.render(piece, position);
    const next = piece.frames[Math.ceil(position)] ?? piece.peek();
    this.keyboard?.show({ chances: next.chances, sounding, kept: this.kept });
    this.showControls(settings);
    const pitches = current ? [...current.frame.keys()].filter((key) => current.frame[key]).map(this.pitchOf) : [];
    const text = !current ? "Press play." : pitches.length ? pitches.map(noteName).join(" ") : "silence";
    if (this.shownNow !== text) find("now").textContent = this.shownNow = text;
    find("chord").textContent = pitches.length ? chordName(pitches) : "";
    find("surprise").textContent = current ? `${current.surprise.toFixed(1)} nats of surprise` : "";
    find("speed").textContent = `${piece.milliseconds.toFixed(1)} ms a frame`;
  }

  showControls(settings) {
    const state = JSON.stringify([settings, this.playing]);
    if (state === this.shownState) return;
    this.shownState = state;
    const { find } = this;
    for (const name of ["tempo", "temperature", "voice", "role", "mode", "seed"]) if (document.activeElement !== find(name) || name !== "seed") find(name).value = settings[name];
    for (const name of ["memory", "avoidSilence"]) find(name).checked = settings[name];
    find("tempo-shown").textContent = `${settings.tempo} a minute`;
    find("temperature-shown").textContent = settings.temperature.toFixed(2);
    find("play").setAttribute("aria-label", this.playing ? "Pause" : "Play");
    find("play").classList.toggle("playing", this.playing);
    find("hold").disabled = find("role").disabled = settings.mode !== "together";
  }
}

const CHORDS = { "0,4,7": "", "0,3,7": "m", "0,3,6": "dim", "0,4,8": "aug", "0,4,7,10": "7", "0,3,7,10": "m7", "0,4,7,11": "maj7", "0,3,6,10": "m7♭5", "0,3,6,9": "dim7", "0,5,7": "sus4", "0,7": "5" };

// The name of a chord by its pitch classes, with the bass where it is not the root; empty if it has none.
function chordName(pitches) {
  const classes = [...new Set(pitches.map((pitch) => pitch % 12))], bass = pitches[0] % 12;
  for (const root of [bass, ...classes]) {
    const shape = classes.map((each) => (each - root + 12) % 12).sort((a, b) => a - b).join(",");
    if (shape in CHORDS) return `${NAMES[root]}${CHORDS[shape]}${root === bass ? "" : `/${NAMES[bass]}`}`;
  }
  return "";
}
