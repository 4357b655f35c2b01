// Clip by one norm over all leaves, then the simplified Nesterov step, over memory twice and in place.
#include <cmath>

#include "kernels.h"
#include "simd.h"

namespace longspan {
namespace {

// Sums in float over a block, in double over blocks: as fast as one and nearly as exact as the other.
double sum_of_squares(const Leaf& leaf) {
  constexpr long block = 4096, at_once = 4 * kWidth;
  double total = 0.0;
  for (long start = 0; start < leaf.size; start += block) {
    const float* g = leaf.gradient + start;
    const long count = leaf.size - start < block ? leaf.size - start : block, whole = count - count % at_once;
    Vector sums[4] = {};
    for (long i = 0; i < whole; i += at_once) {
      for (int k = 0; k < 4; ++k) {
        const Vector value = load(g + i + k * kWidth);
        sums[k] += value * value;
      }
    }
    for_each_vector(count - whole, [&](long i, auto load, auto) {
      const Vector value = load(g + whole + i);
      sums[0] += value * value;
    });
    total += sum(sums[0] + sums[1] + (sums[2] + sums[3]));
  }
  return total;
}

}  // namespace

Clipping clip_nesterov(const std::vector<Leaf>& leaves, const NesterovStep& step) {
  double squares = 0.0;
  for (const Leaf& leaf : leaves) squares += sum_of_squares(leaf);
  const float norm = static_cast<float>(std::sqrt(squares));
  const bool clipped = norm > step.threshold;
  const float rate = step.learning_rate * (clipped ? step.threshold / norm : 1.0f);
  const float decay = step.momentum_previous, ahead = step.momentum_next * step.momentum_previous;
  const float stride = (1.0f + step.momentum_next) * rate;
  for (const Leaf& leaf : leaves) {
    for_each_vector(leaf.size, [&](long i, auto load, auto store) {
      const Vector velocity = load(leaf.velocity + i), gradient = load(leaf.gradient + i);
      store(leaf.new_parameter + i, load(leaf.parameter + i) + (ahead * velocity - stride * gradient));
      store(leaf.new_velocity + i, decay * velocity - rate * gradient);
    });
  }
  return {norm, clipped};
}

}  // namespace longspan
