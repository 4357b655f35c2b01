// Clip by one norm over all leaves, then the simplified Nesterov step or plain descent, over memory twice and in place.
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

float sum_of_squares(const float* values, long count) {
  constexpr long at_once = 4 * kWidth;
  const long whole = count - count % at_once;
  Vector sums[4] = {};
  for (long i = 0; i < whole; i += at_once) {
    for (int k = 0; k < 4; ++k) {
      const Vector value = load(values + i + k * kWidth);
      sums[k] += value * value;
    }
  }
  for_each_vector(count - whole, [&](long i, auto load, auto) {
    const Vector value = load(values + whole + i);
    sums[0] += value * value;
  });
  return sum(sums[0] + sums[1] + (sums[2] + sums[3]));
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

// What one step multiplies: parameter + ahead velocity - stride gradient, decay velocity - rate gradient.
struct Factors {
  float rate, decay, ahead, stride;
};

void move(const Leaf& leaf, Range range, const Factors& f) {
  for_each_vector(range.size(), [&](long j, auto load, auto store) {
    const long i = range.begin + j;
    const Vector velocity = load(leaf.velocity_or_null + i), gradient = load(leaf.gradient + i);
    store(leaf.new_parameter + i, load(leaf.parameter + i) + (f.ahead * velocity - f.stride * gradient));
    store(leaf.new_velocity_or_null + i, f.decay * velocity - f.rate * gradient);
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

}  // namespace longspan
