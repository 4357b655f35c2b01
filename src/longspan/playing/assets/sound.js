// Voices made of oscillators and noise. A tone begins at a time and sounds until it is told when to end.

const VOICES = {
  piano: { name: "Piano", program: 0, wave: struck(16, 1.55), detune: [-1.5, 1.5], attack: 0.003, ring: 2.6, release: 0.16, bright: [9, 3], knock: 0.05, level: 0.2 },
  harpsichord: { name: "Harpsichord", program: 6, wave: struck(28, 0.85), detune: [0], attack: 0.002, ring: 1.5, release: 0.07, bright: [14, 6], knock: 0.03, level: 0.11 },
  musicbox: { name: "Music box", program: 10, wave: [0, 1, 0, 0.22, 0, 0, 0.1], detune: [0], attack: 0.002, ring: 1.3, release: 0.6, knock: 0.015, level: 0.24 },
  organ: { name: "Organ", program: 19, wave: [0, 0.9, 0.75, 0.35, 0.55, 0, 0.28, 0, 0.4], detune: [-2, 2], attack: 0.025, release: 0.09, level: 0.085 },
  strings: { name: "Strings", program: 48, wave: struck(24, 1.0), detune: [-9, -2, 8], attack: 0.13, release: 0.28, bright: [5, 5], vibrato: 5, level: 0.075 },
  choir: { name: "Choir", program: 52, wave: struck(20, 0.9), detune: [-7, 6], attack: 0.16, release: 0.3, formants: [[730, 6, 1], [1090, 8, 0.5], [2440, 10, 0.18]], vibrato: 7, level: 0.34 },
};

function struck(partials, fall) { return Array.from({ length: partials + 1 }, (_, number) => (number ? number ** -fall : 0)); }

class Orchestra {
  constructor() {
    const context = (this.context = new (window.AudioContext || window.webkitAudioContext)({ latencyHint: "interactive" }));
    this.out = context.createGain();
    this.meter = context.createAnalyser(); // lets anyone see that there is sound
    const limiter = context.createDynamicsCompressor(), hall = context.createConvolver(), echo = context.createGain();
    hall.buffer = this.noise(1.9, (left) => left ** 2.6);
    echo.gain.value = 0.22;
    this.out.connect(limiter);
    this.out.connect(hall).connect(echo).connect(limiter);
    limiter.connect(this.meter).connect(context.destination);
    this.knock = this.noise(0.03, (left) => left ** 3);
    this.waves = new Map();
    this.tones = new Set();
    this.voice = "piano";
    this.sway = context.createOscillator();
    this.sway.frequency.value = 5.2;
    this.sway.start();
  }

  noise(seconds, envelope) {
    const { context } = this, length = Math.ceil(seconds * context.sampleRate), buffer = context.createBuffer(2, length, context.sampleRate);
    for (const channel of [0, 1]) {
      const random = new Random(1, channel), data = buffer.getChannelData(channel);
      for (let i = 0; i < length; i++) data[i] = (2 * random.next() - 1) * envelope(1 - i / length);
    }
    return buffer;
  }

  wave(name) {
    const amplitudes = Float32Array.from(VOICES[name].wave);
    if (!this.waves.has(name)) this.waves.set(name, this.context.createPeriodicWave(new Float32Array(amplitudes.length), amplitudes));
    return this.waves.get(name);
  }

  // A tone of a pitch from `start` on; `end(when)` lets it go.
  begin(pitch, start) {
    const { context } = this, voice = VOICES[this.voice], frequency = 440 * 2 ** ((pitch - 69) / 12);
    const gain = context.createGain(), pan = context.createStereoPanner(), sources = [];
    const loud = voice.level * (440 / frequency) ** 0.22, into = this.color(voice, frequency, start, gain);
    pan.pan.value = Math.max(-1, Math.min(1, (pitch - 64) / 40)) * 0.45;
    for (const cents of voice.detune) {
      const source = context.createOscillator();
      source.setPeriodicWave(this.wave(this.voice));
      source.frequency.value = frequency;
      source.detune.value = cents;
      if (voice.vibrato) this.swing(source, voice.vibrato, start);
      into.forEach((node) => source.connect(node));
      sources.push(source);
    }
    if (voice.knock) {
      const hammer = context.createBufferSource(), soft = context.createGain();
      hammer.buffer = this.knock;
      soft.gain.value = voice.knock;
      hammer.connect(soft).connect(pan);
      sources.push(hammer);
    }
    const level = gain.gain, share = loud / voice.detune.length;
    level.setValueAtTime(0, start);
    level.linearRampToValueAtTime(share, start + voice.attack);
    if (voice.ring) level.setTargetAtTime(0.0001, start + voice.attack, voice.ring * (440 / frequency) ** 0.4 * 0.42);
    gain.connect(pan).connect(this.out);
    sources.forEach((source) => source.start(start));
    const tone = { pitch, end: (when) => this.end(tone, level, sources, Math.max(when, start + voice.attack), voice.release) };
    this.tones.add(tone);
    sources[0].onended = () => { this.tones.delete(tone); pan.disconnect(); };
    return tone;
  }

  // What stands between the oscillators and their gain: a filter that closes as a string fades, or the vowels of a voice.
  color(voice, frequency, start, gain) {
    const { context } = this;
    if (voice.formants) {
      return voice.formants.map(([center, sharpness, loud]) => {
        const filter = context.createBiquadFilter(), level = context.createGain();
        filter.type = "bandpass";
        filter.frequency.value = Math.max(center, frequency);
        filter.Q.value = sharpness;
        level.gain.value = loud;
        filter.connect(level).connect(gain);
        return filter;
      });
    }
    if (!voice.bright) return [gain];
    const filter = context.createBiquadFilter(), [first, later] = voice.bright, top = context.sampleRate * 0.45;
    filter.frequency.setValueAtTime(Math.min(top, first * frequency + 700), start);
    filter.frequency.setTargetAtTime(Math.min(top, later * frequency + 300), start, 0.35);
    filter.connect(gain);
    return [filter];
  }

  swing(source, cents, start) {
    const depth = this.context.createGain();
    depth.gain.setValueAtTime(0, start);
    depth.gain.linearRampToValueAtTime(cents, start + 0.6);
    this.sway.connect(depth).connect(source.detune);
    source.addEventListener("ended", () => depth.disconnect());
  }

  end(tone, level, sources, when, release) {
    if (tone.ended) return;
    tone.ended = true;
    level.cancelScheduledValues(when);
    level.setTargetAtTime(0, when, release / 3);
    sources.forEach((source) => source.stop(when + release * 2));
  }

  silence() {
    const now = this.context.currentTime;
    for (const tone of this.tones) { tone.ended = false; tone.end(now); }
  }
}
