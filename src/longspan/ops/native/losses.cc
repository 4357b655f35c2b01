// Negative log-likelihoods in nats, one number a row, and their gradients with respect to the logits.
#include <cmath>
#include <cstring>

#include "bytes.h"
#include "kernels.h"
#include "scratch.h"
#include "simd.h"
#include "threads.h"

namespace longspan {
namespace {

// A row whose weight is zero counts nothing, whatever its logits hold.
template <class Row>
void for_each_row(const Loss& l, const float* logits, float* loss, float* gradient, Row row) {
  const long parts = parts_for(8 * l.rows * l.outputs);
  in_parallel(parts, [&](long part) {
    const Range rows = part_of(l.rows, parts, part);
    for (long i = rows.begin; i < rows.end; ++i) {
      float* slope = gradient ? gradient + i * l.outputs : nullptr;
      if (l.weight[i] != 0.0f) {
        loss[i] = l.weight[i] * row(i, logits + i * l.outputs, slope);
      } else {
        loss[i] = 0.0f;
        if (slope) std::memset(slope, 0, l.outputs * sizeof(float));
      }
    }
  });
}

}  // namespace

// softplus(l) of a key that is off, softplus(-l) of one that is on: few are, so their signs are turned in a copy, and
// a confident prediction loses nothing to cancellation.
void bernoulli_loss(const Loss& l, const float* logits, const uint8_t* targets, float* loss, float* gradient) {
  for_each_row(l, logits, loss, gradient, [&](long i, const float* logit, float* slope) {
    Scratch scratch;
    float* turned = scratch.take(l.outputs);
    const uint8_t* target = targets + i * l.outputs;
    std::memcpy(turned, logit, l.outputs * sizeof(float));
    for_each_nonzero(target, l.outputs, [&](long j, uint8_t) { turned[j] = -turned[j]; });
    Vector total{};
    for_each_vector(l.outputs, [&](long j, auto load, auto store) {
      const Vector x = load(turned + j), u = decay(-absolute(x));
      const Vector cost = at_least(x, 0.0f) + log_one_plus(u);
      total += l.outputs - j >= kWidth ? cost : first_lanes_of(cost, l.outputs - j);
      if (slope) store(slope + j, l.weight[i] * (x >= 0.0f ? broadcast(1.0f) : u) / (1.0f + u));
    });
    if (slope) for_each_nonzero(target, l.outputs, [&](long j, uint8_t) { slope[j] = -slope[j]; });
    return sum(total);
  });
}

void softmax_loss(const Loss& l, const float* logits, const int32_t* targets, float* loss, float* gradient) {
  for_each_row(l, logits, loss, gradient, [&](long i, const float* logit, float* slope) {
    const long target = targets[i];
    float highest = logit[0];
    for (long j = 1; j < l.outputs; ++j) highest = logit[j] > highest || logit[j] != logit[j] ? logit[j] : highest;
    if (!(std::fabs(highest) < INFINITY)) highest = 0.0f;
    Vector total{};
    for_each_vector(l.outputs, [&](long j, auto load, auto store) {
      const Vector value = decay(load(logit + j) - highest);
      total += l.outputs - j >= kWidth ? value : first_lanes_of(value, l.outputs - j);
      if (slope) store(slope + j, value);
    });
    const float normalizer = sum(total), scale = l.weight[i] / normalizer;
    if (slope) {
      for_each_vector(l.outputs, [&](long j, auto load, auto store) { store(slope + j, scale * load(slope + j)); });
      slope[target] -= l.weight[i];
    }
    return std::log(normalizer) + highest - logit[target];
  });
}

}  // namespace longspan
