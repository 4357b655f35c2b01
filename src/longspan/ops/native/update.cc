// Clip by one norm over all leaves, then the simplified Nesterov step or plain descent, over memory twice and in place.
// Rows of matrices that lag take the same steps, later.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels.h"
#include "simd.h"
#include "threads.h"

namespace longspan {
namespace {

constexpr long kBlock = 4096;

struct Block {
  const Leaf* leaf;
  Range range;
};

// Pieces small enough for the first-level cache; also where sums go from float to double.
std::vector<Block> blocks_of(const std::vector<Leaf>& leaves) {
  std::vector<Block> blocks;
  for (const Leaf& leaf : leaves) {
    for (long i = 0; i < leaf.size; i += kBlock) blocks.push_back({&leaf, {i, std::min(leaf.size, i + kBlock)}});
  }
  return blocks;
}

// One number whatever the number of threads: block by block in float, over blocks in double and in order.
float norm_of(const std::vector<Block>& blocks, long parts, double other_squares) {
  std::vector<float> squares(blocks.size());
  in_parallel(parts, [&](long part) {
    const Range some = part_of(blocks.size(), parts, part);
    for (long b = some.begin; b < some.end; ++b) {
      squares[b] = sum_of_squares(blocks[b].leaf->gradient + blocks[b].range.begin, blocks[b].range.size());
    }
  });
  return static_cast<float>(std::sqrt(std::accumulate(squares.begin(), squares.end(), other_squares)));
}

// parameter + ahead velocity - stride gradient, decay velocity - rate gradient.
struct Factors {
  float rate, decay, ahead, stride;
};

void move(const Factors& f, Vector gradient, Vector& parameter, Vector& velocity) {
  parameter += f.ahead * velocity - f.stride * gradient;
  velocity = f.decay * velocity - f.rate * gradient;
}

void move(const Leaf& leaf, Range range, const Factors& factors) {
  for_each_vector(range.size(), [&](long j, auto load, auto store) {
    const long i = range.begin + j;
    Vector parameter = load(leaf.parameter + i), velocity = load(leaf.velocity_or_null + i);
    move(factors, load(leaf.gradient + i), parameter, velocity);
    store(leaf.new_parameter + i, parameter);
    store(leaf.new_velocity_or_null + i, velocity);
  });
}

void move_at_rest(const Leaf& leaf, Range range, float rate) {
  for_each_vector(range.size(), [&](long j, auto load, auto store) {
    const long i = range.begin + j;
    store(leaf.new_parameter + i, load(leaf.parameter + i) - rate * load(leaf.gradient + i));
  });
}

}  // namespace

Clipping clip_nesterov(const std::vector<Leaf>& leaves, const NesterovStep& step) {
  const std::vector<Block> blocks = blocks_of(leaves);
  const long parts = parts_for(2 * kBlock * blocks.size());
  const float norm = norm_of(blocks, parts, step.other_squares);
  const bool clipped = norm > step.threshold;
  const float rate = step.learning_rate * (clipped ? step.threshold / norm : 1.0f);
  const Factors factors{rate, step.momentum_previous, step.momentum_next * step.momentum_previous,
                        (1.0f + step.momentum_next) * rate};
  in_parallel(parts, [&](long part) {
    const Range some = part_of(blocks.size(), parts, part);
    for (long b = some.begin; b < some.end; ++b) {
      const auto& [leaf, range] = blocks[b];
      leaf->velocity_or_null ? move(*leaf, range, factors) : move_at_rest(*leaf, range, rate);
    }
  });
  return {norm, clipped};
}

namespace {

// The updates from `begin` on, to `now`, of some vectors of a row. They have no gradient, but are computed as if they
// had one of zero, which the compiler must not know: else it would round differently.
template <int vectors, class Load, class Store>
void make_updates(const Lagging& m, long at, int32_t begin, Vector zero, const Load& load, const Store& store) {
  Vector weights[vectors], velocity[vectors];
  for (int v = 0; v < vectors; ++v) {
    weights[v] = load(m.weights + at + v * kWidth), velocity[v] = load(m.velocity + at + v * kWidth);
  }
  for (long update = begin; update < m.now; ++update) {
    const Factors factors{0.0f, m.momenta[2 * update + 1], m.momenta[2 * update], 0.0f};
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) move(factors, zero, weights[v], velocity[v]);
  }
  for (int v = 0; v < vectors; ++v) {
    store(m.weights + at + v * kWidth, weights[v]), store(m.velocity + at + v * kWidth, velocity[v]);
  }
}

bool is_still(const float* velocity, long size) {
  Integers moving{};
  for_each_vector(size, [&](long j, auto load, auto) { moving |= load(velocity + j) != 0.0f; });
  for (int i = 0; i < kWidth; ++i) {
    if (moving[i]) return false;
  }
  return true;
}

void make_updates(const Lagging& m, long row, int32_t begin) {
  const long first = row * m.columns, blocks = m.columns / (4 * kWidth) * (4 * kWidth);
  if (is_still(m.velocity + first, m.columns)) return;
  volatile float nothing = 0.0f;
  const Vector zero = broadcast(nothing);
  for (long j = 0; j < blocks; j += 4 * kWidth) {
    make_updates<4>(
        m, first + j, begin, zero, [](const float* p) { return load(p); }, [](float* p, Vector v) { store(p, v); });
  }
  for_each_vector(m.columns - blocks, [&](long j, const auto& load, const auto& store) {
    make_updates<1>(m, first + blocks + j, begin, zero, load, store);
  });
}

}  // namespace

void catch_up(const Lagging& m, long row) {
  constexpr int32_t busy = -1;
  int32_t* moved = m.moved + row;
  int32_t seen = __atomic_load_n(moved, __ATOMIC_ACQUIRE);
  if (seen == m.now) return;
  if (seen != busy && __atomic_compare_exchange_n(moved, &seen, busy, false, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)) {
    make_updates(m, row, seen);
    __atomic_store_n(moved, m.now, __ATOMIC_RELEASE);
  } else {
    for (Patience patience; __atomic_load_n(moved, __ATOMIC_ACQUIRE) != m.now;) patience.wait();
  }
}

void catch_up(const Lagging& m) {
  const long parts = parts_for(4 * m.rows * m.columns);
  in_parallel(parts, [&](long part) {
    const Range rows = part_of(m.rows, parts, part);
    for (long row = rows.begin; row < rows.end; ++row) catch_up(m, row);
  });
}

void descend_rows(const Lagging& m, const float* gradient, const bool* reached, float rate, float stride) {
  const Factors factors{rate, m.momenta[2 * m.now + 1], m.momenta[2 * m.now], stride};
  const long parts = parts_for(2 * std::count(reached, reached + m.rows, true) * m.columns);
  in_parallel(parts, [&](long part) {
    const Range rows = part_of(m.rows, parts, part);
    for (long row = rows.begin; row < rows.end; ++row) {
      if (!reached[row]) continue;
      catch_up(m, row);
      for_each_vector(m.columns, [&](long j, auto load, auto store) {
        const long i = row * m.columns + j;
        Vector weights = load(m.weights + i), velocity = load(m.velocity + i);
        move(factors, load(gradient + i), weights, velocity);
        store(m.weights + i, weights), store(m.velocity + i, velocity);
      });
      m.moved[row] = m.now + 1;
    }
  });
}

}  // namespace longspan
