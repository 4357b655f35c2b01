// Products of a single row with a matrix, bound by how fast the matrix arrives from the second-level cache. The
// matrix is read where it lies, row after row, and every other call walks it from the far end, so that what the
// previous call read last is still in a near cache when the next one starts.
#pragma once

#include "scratch.h"
#include "simd.h"

namespace longspan {

constexpr long kRowsAtOnce = 8;

// A matrix of `size` rows, and as many columns for each of its gates, laid out so that the columns of every gate are
// whole vectors: the original if they already are, else a copy padded with zeros.
struct PaddedMatrix {
  const float* data;
  long size, padded, width;

  PaddedMatrix(Scratch& scratch, const float* matrix, long size, long gates = 1)
      : data(matrix), size(size), padded(round_up(size, kWidth)), width(gates * padded) {
    if (size == padded) return;
    float* copy = scratch.take(padded * width);
    std::memset(copy, 0, padded * width * sizeof(float));
    for (long i = 0; i < size * gates; ++i)
      std::memcpy(copy + target(i, gates), matrix + i * size, size * sizeof(float));
    data = copy;
  }

 private:
  long target(long i, long gates) const { return i / gates * width + i % gates * padded; }
};

// y += x[0..rows) * (the first rows of u); y stays in the first-level cache while u streams past.
template <int rows>
inline void add_rows(const float* u, long stride, const float* x, float* y, long columns) {
  Vector scale[rows];
  for (int r = 0; r < rows; ++r) scale[r] = broadcast(x[r]);
  for (long j = 0; j < columns; j += kWidth) {
    Vector value = load(y + j);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) value += scale[r] * load(u + r * stride + j);
    store(y + j, value);
  }
}

// y += x u in the columns [from, to), whole vectors of them; y is padded.
inline void add_product(const PaddedMatrix& u, const float* x, float* y, long from, long to, bool backwards) {
  const long blocks = u.size / kRowsAtOnce, columns = to - from;
  const float* first = u.data + from;
  y += from;
  for (long i = blocks * kRowsAtOnce; i < u.size; ++i) add_rows<1>(first + i * u.width, u.width, x + i, y, columns);
  for (long b = 0; b < blocks; ++b) {
    const long i = (backwards ? blocks - 1 - b : b) * kRowsAtOnce;
    add_rows<kRowsAtOnce>(first + i * u.width, u.width, x + i, y, columns);
  }
}

// y += x u^T in the columns [from, to), whole vectors of them; x and y are padded, x with zeros.
inline void add_transposed_product(const PaddedMatrix& u, const float* x, float* y, long from, long to,
                                   bool backwards) {
  for (long b = 0; b < to - from; b += kWidth) {
    const long i = backwards ? to - kWidth - b : from + b;
    const float* rows = u.data + i * u.width;
    Vector dots[kWidth];
#pragma GCC unroll 16
    for (int r = 0; r < kWidth; ++r) dots[r] = Vector{};
    for (long j = 0; j < u.width; j += kWidth) {
      const Vector value = load(x + j);
#pragma GCC unroll 16
      for (int r = 0; r < kWidth; ++r) dots[r] += value * load(rows + r * u.width + j);
    }
    store(y + i, load(y + i) + sums(dots));
  }
}

}  // namespace longspan
