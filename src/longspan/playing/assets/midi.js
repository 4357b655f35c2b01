// MIDI: files of what was played, and keyboards that are plugged in.

const TICKS = 480, VELOCITY = 80;

// The bytes of a MIDI file, type 0. Notes are [start, stop, pitch] in frames.
function midiFile(notes, { frames, framesPerBeat, tempo, program, fifths = 0, minor = false }) {
  const perFrame = Math.max(1, Math.round(TICKS / framesPerBeat)), body = [];
  const varying = (value) => { const bytes = [value & 127]; while ((value >>= 7)) bytes.unshift((value & 127) | 128); return bytes; };
  const meta = (kind, ...bytes) => body.push(0, 0xff, kind, bytes.length, ...bytes);
  const micros = Math.round(60e6 / tempo);
  meta(0x03, ...new TextEncoder().encode("longspan"));
  meta(0x51, (micros >> 16) & 255, (micros >> 8) & 255, micros & 255);
  meta(0x58, 4, 2, 24, 8);
  meta(0x59, fifths & 255, Number(minor));
  body.push(0, 0xc0, program);
  const events = notes.flatMap(([start, stop, pitch]) => [[stop, 0, pitch], [start, 1, pitch]]);
  events.sort((a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2]);
  let now = 0;
  for (const [frame, on, pitch] of events) {
    const tick = frame * perFrame;
    body.push(...varying(tick - now), on ? 0x90 : 0x80, pitch, on ? VELOCITY : 0);
    now = tick;
  }
  body.push(...varying(Math.max(0, frames * perFrame - now)), 0xff, 0x2f, 0);
  const word = (value, bytes) => Array.from({ length: bytes }, (_, i) => (value >>> (8 * (bytes - 1 - i))) & 255);
  const head = [..."MThd"].map((letter) => letter.charCodeAt(0)), track = [..."MTrk"].map((letter) => letter.charCodeAt(0));
  return Uint8Array.from([...head, ...word(6, 4), ...word(0, 2), ...word(1, 2), ...word(perFrame * framesPerBeat, 2), ...track, ...word(body.length, 4), ...body]);
}

// The key signature by how long each pitch class sounds, as sharps (or, negative, flats): the profiles of Krumhansl and Kessler.
const PROFILES = { major: [6.35, 2.23, 3.48, 2.33, 4.38, 4.09, 2.52, 5.19, 2.39, 3.66, 2.29, 2.88], minor: [6.33, 2.68, 3.52, 5.38, 2.6, 3.53, 2.54, 4.75, 3.98, 2.69, 3.34, 3.17] };

function keyOf(notes) {
  const sounds = new Float64Array(12);
  notes.forEach(([start, stop, pitch]) => (sounds[pitch % 12] += stop - start));
  const correlation = (profile, tonic) => {
    const mean = (values) => values.reduce((a, b) => a + b) / 12, [a, b] = [mean(profile), mean(sounds)];
    let cross = 0, square = 0;
    for (let i = 0; i < 12; i++) { cross += (profile[i] - a) * (sounds[(tonic + i) % 12] - b); square += (sounds[i] - b) ** 2; }
    return square ? cross / Math.sqrt(square) / Math.sqrt(profile.reduce((sum, value) => sum + (value - a) ** 2, 0)) : 0;
  };
  const found = ["major", "minor"].flatMap((mode) => Array.from({ length: 12 }, (_, tonic) => ({ mode, tonic, fits: correlation(PROFILES[mode], tonic) })));
  const { mode, tonic } = found.reduce((best, one) => (one.fits > best.fits ? one : best));
  const fifths = ((((mode === "minor" ? tonic + 3 : tonic) * 7) % 12) + 12) % 12;
  return { fifths: fifths > 6 ? fifths - 12 : fifths, minor: mode === "minor" };
}

// Calls `on(pitch)` and `off(pitch)` for every keyboard; resolves to what to tell the user.
async function listenToKeyboards(on, off) {
  if (!navigator.requestMIDIAccess) return "This browser has no Web MIDI; Chrome, Edge and Firefox do.";
  let access;
  try {
    access = await navigator.requestMIDIAccess();
  } catch {
    return "The browser did not allow it. Some refuse MIDI to pages from disk: serve the folder, or use the keys below.";
  }
  const hear = ({ data: [status, pitch, velocity] }) => {
    const kind = status & 0xf0;
    if (kind === 0x90 && velocity > 0) on(pitch);
    else if (kind === 0x80 || kind === 0x90) off(pitch);
  };
  const attach = () => access.inputs.forEach((input) => (input.onmidimessage = hear));
  access.onstatechange = attach;
  attach();
  const names = [...access.inputs.values()].map((input) => input.name);
  return names.length ? `Listening to ${names.join(", ")}.` : "Allowed, but no keyboard is plugged in yet; it is heard as soon as it is.";
}
