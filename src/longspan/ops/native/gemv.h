// Products of a single row with a matrix, bound by how fast the matrix arrives from the second-level cache. The
// matrix is read where it lies, row after row, and every other call walks it from the far end, so that what the
// previous call read last is still in a near cache when the next one starts.
#pragma once

#include "scratch.h"
#include "simd.h"

namespace longspan {

constexpr long kRowsAtOnce = 8;

// A square matrix whose rows are whole vectors: the original if they already are, else a copy padded with zeros.
struct PaddedSquare {
  const float* data;
  long size, padded;

  PaddedSquare(Scratch& scratch, const float* matrix, long size)
      : data(matrix), size(size), padded(round_up(size, kWidth)) {
    if (size == padded) return;
    float* copy = scratch.take(padded * padded);
    std::memset(copy, 0, padded * padded * sizeof(float));
    for (long i = 0; i < size; ++i) std::memcpy(copy + i * padded, matrix + i * size, size * sizeof(float));
    data = copy;
  }
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
inline void add_product(const PaddedSquare& u, const float* x, float* y, long from, long to, bool backwards) {
  const long blocks = u.size / kRowsAtOnce, columns = to - from;
  const float* first = u.data + from;
  y += from;
  for (long i = blocks * kRowsAtOnce; i < u.size; ++i) add_rows<1>(first + i * u.padded, u.padded, x + i, y, columns);
  for (long b = 0; b < blocks; ++b) {
    const long i = (backwards ? blocks - 1 - b : b) * kRowsAtOnce;
    add_rows<kRowsAtOnce>(first + i * u.padded, u.padded, x + i, y, columns);
  }
}

// y += x u^T in the columns [from, to), whole vectors of them; x and y are padded, x with zeros.
inline void add_transposed_product(const PaddedSquare& u, const float* x, float* y, long from, long to,
                                   bool backwards) {
  for (long b = 0; b < to - from; b += kWidth) {
    const long i = backwards ? to - kWidth - b : from + b;
    const float* rows = u.data + i * u.padded;
    Vector dots[kWidth];
#pragma GCC unroll 16
    for (int r = 0; r < kWidth; ++r) dots[r] = Vector{};
    for (long j = 0; j < u.padded; j += kWidth) {
      const Vector value = load(x + j);
#pragma GCC unroll 16
      for (int r = 0; r < kWidth; ++r) dots[r] += value * load(rows + r * u.padded + j);
    }
    store(y + i, load(y + i) + sums(dots));
  }
}

}  // namespace longspan
