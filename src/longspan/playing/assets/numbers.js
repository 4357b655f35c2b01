// Numbers: packed arrays, products with vectors, stable sums of exponentials, random numbers from a seed.

function bytesOf(base64) {
  const text = atob(base64), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

// An array as `packing.py` wrote it; the rows of int8 have a scale each, written before the numbers.
function unpacked(bytes, { at, shape, type }) {
  const view = new DataView(bytes.buffer, bytes.byteOffset + at), size = shape.reduce((a, b) => a * b, 1);
  const values = type === "int32" ? new Int32Array(size) : new Float32Array(size);
  if (type === "int32") for (let i = 0; i < size; i++) values[i] = view.getInt32(4 * i, true);
  if (type === "f32") for (let i = 0; i < size; i++) values[i] = view.getFloat32(4 * i, true);
  if (type === "f16") for (let i = 0; i < size; i++) values[i] = halfFloat(view.getUint16(2 * i, true));
  if (type === "int8") {
    const [rows, columns] = shape;
    for (let row = 0, i = 0; row < rows; row++) {
      const scale = view.getFloat32(4 * row, true);
      for (let column = 0; column < columns; column++, i++) values[i] = scale * view.getInt8(4 * rows + i);
    }
  }
  return values;
}

function halfFloat(bits) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

// out += vector x matrix, of which only columns from `first` on are used; zeros of the vector cost nothing.
function addProduct(out, vector, matrix, columns, first = 0) {
  const width = out.length;
  for (let row = 0; row < vector.length; row++) {
    const value = vector[row];
    if (value === 0) continue;
    for (let column = 0, i = row * columns + first; column < width; column++, i++) out[column] += value * matrix[i];
  }
  return out;
}

function transposed(matrix, rows, columns) {
  const turned = new Float32Array(matrix.length);
  for (let row = 0; row < rows; row++) for (let column = 0; column < columns; column++) turned[column * rows + row] = matrix[row * columns + column];
  return turned;
}

const sigmoid = (x) => 1 / (1 + Math.exp(-x));
const logSigmoid = (x) => (x > 0 ? -Math.log1p(Math.exp(-x)) : x - Math.log1p(Math.exp(x)));

function logSumExp(values) {
  let largest = -Infinity;
  for (const value of values) if (value > largest) largest = value;
  if (largest === -Infinity) return -Infinity;
  let sum = 0;
  for (const value of values) sum += Math.exp(value - largest);
  return largest + Math.log(sum);
}

const logAddExp = (a, b) => (a === -Infinity ? b : b === -Infinity ? a : Math.max(a, b) + Math.log1p(Math.exp(-Math.abs(a - b))));

// Random numbers of one step: they follow from the seed and the number of the step alone, so a step can be drawn
// again, and what was drawn before does not matter. Chris Doty-Humphrey's sfc32, after a mixing of its seed.
class Random {
  constructor(seed, step, purpose = 0) {
    let state = (seed ^ Math.imul(step + 1, 0x9e3779b1) ^ Math.imul(purpose + 1, 0x85ebca6b)) >>> 0;
    const mix = () => {
      state = (state + 0x9e3779b9) >>> 0;
      let z = state;
      z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
      z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
      return (z ^ (z >>> 15)) >>> 0;
    };
    [this.a, this.b, this.c, this.d] = [mix(), mix(), mix(), 1];
    for (let i = 0; i < 12; i++) this.next();
  }

  next() {
    const sum = (((this.a + this.b) | 0) + this.d) | 0;
    this.d = (this.d + 1) | 0;
    this.a = this.b ^ (this.b >>> 9);
    this.b = (this.c + (this.c << 3)) | 0;
    this.c = (((this.c << 21) | (this.c >>> 11)) + sum) | 0;
    return (sum >>> 0) / 4294967296;
  }

  // An index with probability proportional to the exponential of its weight.
  choose(logWeights) {
    const total = logSumExp(logWeights);
    let left = this.next(), last = 0;
    for (let i = 0; i < logWeights.length; i++) {
      if (logWeights[i] === -Infinity) continue;
      last = i;
      left -= Math.exp(logWeights[i] - total);
      if (left < 0) break;
    }
    return last;
  }
}
