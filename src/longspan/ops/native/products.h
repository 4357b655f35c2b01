// Products of matrices, then of a single row with a matrix.
//
// Matrix products are built around one micro-kernel. A tile of kTileRows x (up to three vectors) of sums stays in
// registers while it walks the depth of a packed panel of the right-hand matrix; everything else here packs panels and
// chooses blocks so that a panel lives in the first-level cache and its left-hand rows in the second.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

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

// A left-hand matrix that is stored transposed has the rows of a tile laid side by side, tile after tile. It is read
// along its memory, step by step of the depth, because it is often too large for a near cache.
inline Left pack_left(View a, long rows, long depth, float* room) {
  const long whole = rows / kTileRows * kTileRows;
  for (long k = 0; k < depth; ++k) {
    const float* source = a.data + k * a.column;
    float* target = room + k * kTileRows;
    for (long i = 0; i < whole; i += kTileRows, target += depth * kTileRows) {
      std::memcpy(target, source + i, kTileRows * sizeof(float));
    }
    for (long i = whole; i < rows; ++i) target[i - whole] = source[i];
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

// Products of a single row with a matrix are bound by how fast the matrix arrives from the second-level cache. So it is
// cut into panels of columns, as many as registers can hold sums for, and read from the first number of a panel to its
// last, which is what the hardware foresees best. Every other call takes the blocks of rows from the far end, and finds
// what the previous call read last still in a near cache.
constexpr int kPanelVectors = kWidth == 16 ? 16 : 12;
constexpr long kBlockRows = 32;

// Calls body with a number in [1, most] as a type, so that loops of that length are unrolled.
template <int most, class Body>
inline void with_constant(long number, const Body& body) {
  if constexpr (most > 1) {
    if (number < most) return with_constant<most - 1>(number, body);
  }
  body(std::integral_constant<int, most>());
}

// Calls body(number of vectors of a panel, as a type; its first column) for panels of nearly equal width.
template <int widest = kPanelVectors, class Body>
inline void for_panels(long vectors, const Body& body) {
  const long panels = (vectors + widest - 1) / widest;
  for (long p = 0; p < panels; ++p) {
    const Range range = part_of(vectors, panels, p);
    with_constant<widest>(range.size(), [&](auto width) { body(width, range.begin * kWidth); });
  }
}

// How panels keep their numbers: as they are, or in the half of a word that bfloat16 takes. There two vectors share the
// words of one, so that a shift or a mask restores either; numbers have to be rounded before.
struct Whole {
  static constexpr long vectors(long count) { return count; }
  static Vector get(const float* row, long v) { return load(row + v * kWidth); }
  static void put(float* row, long v, Vector value) { store(row + v * kWidth, value); }
};
struct Halved {
  static constexpr int32_t kUpper = INT32_MIN / 0x8000;  // the upper half of a word
  static constexpr long vectors(long count) { return (count + 1) / 2; }
  static Vector get(const float* row, long v) {
    const Integers words = (Integers)load(row + v / 2 * kWidth);
    return (Vector)(v % 2 ? words & kUpper : words << 16);
  }
  // In order: an even vector clears its neighbor's half.
  static void put(float* row, long v, Vector value) {
    float* target = row + v / 2 * kWidth;
    const Integers upper = (Integers)value & kUpper;
    store(target, (Vector)(v % 2 ? upper | (Integers)load(target) : (upper >> 16) & 0xffff));
  }
};

// A square matrix of `size` rows and columns for each of its gates, in panels that do not cross from gate to gate, nor
// from the units below `cut` to those above it. Rows and the columns of every gate are padded with zeros to whole
// vectors.
template <class Storage>
class PanelMatrix {
 public:
  PanelMatrix(Scratch& scratch, const float* matrix, long size, long gates, long cut)
      : PanelMatrix(scratch, size, gates, cut) {
    pack(matrix);
  }
  // Takes memory for a matrix that is packed later.
  PanelMatrix(Scratch& scratch, long size, long gates, long cut)
      : size_(size), gates_(gates), padded_(round_up(size, kWidth)) {
    for (const long end : {std::min(round_up(cut, kWidth), padded_), padded_}) add_panels(end / kWidth);
    data_ = scratch.take(gates * room_ * padded_);
  }

  void pack(const float* matrix) {
    for (long g = 0; g < gates_; ++g) {
      for (const Panel& panel : panels_) pack(panel, g, matrix);
    }
  }

  long padded() const { return padded_; }
  long width() const { return gates_ * padded_; }

  // y += x u for the units [from, to) of all gates, which begin and end with panels; y is padded.
  void add_product(const float* x, float* y, long from, long to, bool backwards) const {
    for_each_panel(backwards, [&](const Panel& panel, const float* data, long column) {
      if (panel.first >= from && panel.first < to) kForward[panel.vectors](data, size_, x, y + column, backwards);
    });
  }

  // y += x u^T in the rows [from, to), whole vectors of them; x and y are padded, x with zeros.
  void add_transposed_product(const float* x, float* y, long from, long to, bool backwards) const {
    for_each_panel(backwards, [&](const Panel& panel, const float* data, long column) {
      kBackward[panel.vectors](data, from, round_up(to, kWidth), x + column, y, backwards);
    });
  }

 private:
  struct Panel {
    long first, vectors;  // its first unit
    long before;          // numbers that a row of a gate has in the panels before this one
  };

  template <int vectors>
  static void forward(const float* data, long rows, const float* x, float* y, bool backwards) {
    constexpr long row = Storage::vectors(vectors) * kWidth;
    Vector total[vectors];
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) total[v] = load(y + v * kWidth);
    for (long done = 0; done < rows; done += kBlockRows) {
      const long begin = backwards ? std::max(0l, rows - done - kBlockRows) : done;
      const long end = backwards ? rows - done : std::min(rows, done + kBlockRows);
      const float* source = data + begin * row;
      for (long i = begin; i < end; ++i, source += row) {
        const Vector scale = broadcast(x[i]);
#pragma GCC unroll 16
        for (int v = 0; v < vectors; ++v) total[v] += scale * Storage::get(source, v);
      }
    }
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) store(y + v * kWidth, total[v]);
  }

  template <int vectors>
  static void backward(const float* data, long from, long to, const float* x, float* y, bool backwards) {
    constexpr long row = Storage::vectors(vectors) * kWidth;
    Vector factors[vectors];
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) factors[v] = load(x + v * kWidth);
    for (long done = 0; done < to - from; done += kWidth) {
      const long i = backwards ? to - kWidth - done : from + done;
      Vector dots[kWidth];
#pragma GCC unroll 16
      for (int r = 0; r < kWidth; ++r) {
        const float* source = data + (i + r) * row;
        dots[r] = factors[0] * Storage::get(source, 0);
#pragma GCC unroll 16
        for (int v = 1; v < vectors; ++v) dots[r] += factors[v] * Storage::get(source, v);
      }
      store(y + i, load(y + i) + sums(dots));
    }
  }

  using Forward = void (*)(const float*, long, const float*, float*, bool);
  using Backward = void (*)(const float*, long, long, const float*, float*, bool);
  template <int... index>
  static constexpr std::array<Forward, kPanelVectors + 1> forwards(std::integer_sequence<int, index...>) {
    return {nullptr, forward<index + 1>...};
  }
  template <int... index>
  static constexpr std::array<Backward, kPanelVectors + 1> backwards(std::integer_sequence<int, index...>) {
    return {nullptr, backward<index + 1>...};
  }

  // Panels of nearly equal width up to this many vectors.
  void add_panels(long end) {
    const long begin = panels_.empty() ? 0 : panels_.back().first / kWidth + panels_.back().vectors;
    const long count = (end - begin + kPanelVectors - 1) / kPanelVectors;
    for (long p = 0; p < count; ++p) {
      const Range range = part_of(end - begin, count, p);
      panels_.push_back({(begin + range.begin) * kWidth, range.size(), room_});
      room_ += Storage::vectors(range.size()) * kWidth;
    }
  }

  float* data_of(const Panel& panel, long gate) const { return data_ + (gate * room_ + panel.before) * padded_; }

  template <class Body>
  void for_each_panel(bool backwards, const Body& body) const {
    const long count = panels_.size(), all = gates_ * count;
    for (long n = 0; n < all; ++n) {
      const long number = backwards ? all - 1 - n : n, gate = number / count;
      const Panel& panel = panels_[number % count];
      body(panel, data_of(panel, gate), gate * padded_ + panel.first);
    }
  }

  void pack(const Panel& panel, long gate, const float* matrix) const {
    const long row = Storage::vectors(panel.vectors) * kWidth;
    const long columns = std::min(panel.vectors * kWidth, size_ - panel.first);
    float* target = data_of(panel, gate);
    for (long i = 0; i < size_; ++i, target += row) {
      const float* source = matrix + (i * gates_ + gate) * size_ + panel.first;
      for_each_vector(columns, [&](long j, auto load, auto) { Storage::put(target, j / kWidth, load(source + j)); });
    }
    std::memset(target, 0, (padded_ - size_) * row * sizeof(float));
  }

  static const std::array<Forward, kPanelVectors + 1> kForward;
  static const std::array<Backward, kPanelVectors + 1> kBackward;

  long size_, gates_, padded_;
  long room_ = 0;  // numbers that a row of a gate has in all panels
  std::vector<Panel> panels_;
  float* data_;
};

template <class Storage>
inline constexpr std::array<typename PanelMatrix<Storage>::Forward, kPanelVectors + 1> PanelMatrix<Storage>::kForward =
    PanelMatrix::forwards(std::make_integer_sequence<int, kPanelVectors>());
template <class Storage>
inline constexpr std::array<typename PanelMatrix<Storage>::Backward, kPanelVectors + 1>
    PanelMatrix<Storage>::kBackward = PanelMatrix::backwards(std::make_integer_sequence<int, kPanelVectors>());

}  // namespace longspan
