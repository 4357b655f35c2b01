// Products of matrices, then of a single row with a matrix.
//
// Matrix products are built around one micro-kernel. A tile of kTileRows x (up to three vectors) of sums stays in
// registers while it walks the depth of a packed panel of the right-hand matrix; everything else here packs panels and
// chooses blocks so that a panel lives in the first-level cache and its left-hand rows in the second.
#pragma once

#include <algorithm>
#include <cstring>

#include "simd.h"
#include "threads.h"

namespace longspan {

constexpr int kTileRows = kWidth == 16 ? 8 : 4;
constexpr int kTileVectors = 3;
constexpr long kDepthBlock = 256, kRowBlock = 96, kColumnBlock = 264;

// Element (i, j) is data[i * row + j * column]; a transposed matrix is the same data with the strides exchanged.
struct View {
  const float* data;
  long row, column;

  View from(long i, long j) const { return {data + i * row + j * column, row, column}; }
};

// What a product is added to: nothing, one row for all (a bias, row = 0), or a whole matrix (row = its stride).
struct Addend {
  const float* data = nullptr;
  long row = 0;

  Addend from(long i, long j) const { return {data ? data + i * row + j : nullptr, row}; }
};

// Left-hand rows as the micro-kernel reads them: row i of the tile that starts at row t is data + t * tile + i * row.
struct Left {
  const float* data;
  long tile, row, column;
};

inline Left in_place(View a) { return {a.data, a.row, a.row, a.column}; }

// A left-hand matrix that is stored transposed has the rows of a tile laid side by side, tile after tile.
inline Left pack_left(View a, long rows, long depth, float* room) {
  float* target = room;
  for (long i = 0; i < rows; i += kTileRows) {
    const long count = std::min<long>(kTileRows, rows - i);
    for (long k = 0; k < depth; ++k, target += kTileRows) {
      const float* source = a.data + i * a.row + k * a.column;
      if (count == kTileRows && a.row == 1) {
        std::memcpy(target, source, kTileRows * sizeof(float));
      } else {
        for (long r = 0; r < count; ++r) target[r] = source[r * a.row];
      }
    }
  }
  return {room, depth, 1, kTileRows};
}

// The micro-kernel: sums[r] += left(k, r) * right(k) for all k, left being a number and right whole vectors.
template <int rows, int vectors, class LeftAt, class RightAt>
inline __attribute__((always_inline)) void accumulate(long depth, LeftAt left, RightAt right,
                                                      Vector (&sums)[rows][vectors]) {
  for (long k = 0; k < depth; ++k) {
    const float* source = right(k);
    Vector values[vectors];
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) values[v] = load(source + v * kWidth);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const Vector scale = broadcast(left(k, r));
#pragma GCC unroll 16
      for (int v = 0; v < vectors; ++v) sums[r][v] += scale * values[v];
    }
  }
}

// c = a * panel + base for `rows` x (`vectors` vectors, of whose columns the first `columns` exist).
template <int rows, int vectors>
inline __attribute__((always_inline)) void tile(long depth, Left a, const float* panel, Addend base, float* c,
                                                long c_row, long columns) {
  Vector sums[rows][vectors] = {};
  const float* left[rows];
  for (int r = 0; r < rows; ++r) left[r] = a.data + r * a.row;
  accumulate(
      depth, [&](long k, int r) { return left[r][k * a.column]; }, [&](long k) { return panel + k * vectors * kWidth; },
      sums);
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 3
    for (int v = 0; v < vectors; ++v) {
      const long rest = columns - v * kWidth;
      float* target = c + r * c_row + v * kWidth;
      const float* addend = base.data + r * base.row + v * kWidth;
      if (rest >= kWidth) {
        store(target, base.data ? sums[r][v] + load(addend) : sums[r][v]);
      } else {
        store_first(target, base.data ? sums[r][v] + load_first(addend, rest) : sums[r][v], rest);
      }
    }
  }
}

// All rows against one panel: whole tiles, then one tile of what is left.
template <int vectors, int rest = kTileRows - 1>
void multiply_panel(long rows, long depth, Left a, const float* panel, Addend base, float* c, long c_row,
                    long columns) {
  if constexpr (rest == kTileRows - 1) {
    for (; rows >= kTileRows; rows -= kTileRows) {
      tile<kTileRows, vectors>(depth, a, panel, base, c, c_row, columns);
      a.data += kTileRows * a.tile;
      base = base.from(kTileRows, 0);
      c += kTileRows * c_row;
    }
  }
  if (rows == rest) return tile<rest, vectors>(depth, a, panel, base, c, c_row, columns);
  if constexpr (rest > 1) multiply_panel<vectors, rest - 1>(rows, depth, a, panel, base, c, c_row, columns);
}

// A right-hand matrix cut into panels of three vectors of columns (the last ones of two, because a single vector
// leaves too few sums to hide the latency of an addition), each panel contiguous and padded with zeros.
class PackedMatrix {
 public:
  PackedMatrix(Scratch& scratch, View b, long depth, long columns)
      : depth_(depth), columns_(columns), vectors_(round_up(columns, kWidth) / kWidth),
        data_(scratch.take(depth * vectors_ * kWidth)) {
    for (long p = 0; p < panels(); ++p) {
      if (b.column == 1) {
        pack_rows(b, p);
      } else {
        pack_columns(b, p);
      }
    }
  }

  // c = a * this + base, for `rows` rows of a.
  void multiply(long rows, Left a, Addend base, float* c, long c_row) const {
    for (long p = 0; p < panels(); ++p) {
      const long first = start(p) * kWidth, vectors = start(p + 1) - start(p);
      const auto multiply = vectors == 3 ? multiply_panel<3> : vectors == 2 ? multiply_panel<2> : multiply_panel<1>;
      multiply(rows, depth_, a, data_ + first * depth_, base.from(0, first), c + first, c_row, columns_ - first);
    }
  }

 private:
  long panels() const { return (vectors_ + kTileVectors - 1) / kTileVectors; }
  long start(long p) const {
    const bool last = p == panels() - 1 && vectors_ > 1;
    return std::min(p * kTileVectors, last ? vectors_ - 2 : vectors_);
  }

  void pack_rows(View b, long p) {
    const long first = start(p) * kWidth, width = start(p + 1) * kWidth - first;
    const long columns = std::min(width, columns_ - first);
    float* target = data_ + first * depth_;
    const float* source = b.data + first;
    for (long k = 0; k < depth_; ++k, target += width, source += b.row) {
      for_each_vector(columns, [&](long j, auto load, auto) { store(target + j, load(source + j)); });
    }
  }

  void pack_columns(View b, long p) {
    const long width = (start(p + 1) - start(p)) * kWidth;
    for (long j = start(p) * kWidth; j < start(p + 1) * kWidth; j += kWidth) {
      float* target = data_ + start(p) * kWidth * depth_ + (j - start(p) * kWidth);
      const long columns = std::min<long>(kWidth, columns_ - j);
      for (long k = 0; k < depth_; k += kWidth) {
        const long steps = std::min<long>(kWidth, depth_ - k);
        const float* source = b.data + j * b.column + k;
        Vector square[kWidth];
#pragma GCC unroll 16
        for (long i = 0; i < kWidth; ++i, source += b.column) {
          square[i] = i >= columns ? Vector{} : steps == kWidth ? load(source) : load_first(source, steps);
        }
        transpose(square);
#pragma GCC unroll 16
        for (long i = 0; i < kWidth; ++i) {
          if (i < steps) store(target + (k + i) * width, square[i]);
        }
      }
    }
  }

  long depth_, columns_, vectors_;
  float* data_;
};

// c = a * b + base, a being rows x depth and b depth x columns; one stride of each is 1.
inline void multiply(long rows, long columns, long depth, View a, View b, Addend base, float* c, long c_row) {
  if (depth == 0) {
    for (long i = 0; i < rows; ++i) {
      for (long j = 0; j < columns; ++j) c[i * c_row + j] = base.data ? base.data[i * base.row + j] : 0.0f;
    }
  }
  if (rows == 0 || columns == 0) return;
  const long blocks = (columns + kColumnBlock - 1) / kColumnBlock;
  const long block_width = round_up((columns + blocks - 1) / blocks, kTileVectors * kWidth);
  for (long j = 0; j < columns; j += block_width) {
    const long width = std::min(block_width, columns - j);
    for (long k = 0; k < depth; k += kDepthBlock) {
      Scratch scratch;
      const long steps = std::min(kDepthBlock, depth - k);
      const PackedMatrix right(scratch, b.from(k, j), steps, width);
      const Addend sum = k == 0 ? base.from(0, j) : Addend{c + j, c_row};
      float* room = a.column == 1 ? nullptr : scratch.take(round_up(kRowBlock, kTileRows) * steps);
      for (long i = 0; i < rows; i += kRowBlock) {
        const long count = std::min(kRowBlock, rows - i);
        const View block = a.from(i, k);
        const Left left = room ? pack_left(block, count, steps, room) : in_place(block);
        right.multiply(count, left, sum.from(i, 0), c + i * c_row + j, c_row);
      }
    }
  }
}

// Products of a single row with a matrix are bound by how fast the matrix arrives from the second-level cache. The
// matrix is read where it lies, row after row, and every other call walks it from the far end, so that what the
// previous call read last is still in a near cache when the next one starts.
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
