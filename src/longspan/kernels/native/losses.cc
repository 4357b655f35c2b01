// Negative log-likelihoods in nats, one number a row, and their gradients with respect to the logits.
#include <cmath>
#include <cstring>

#include "kernels.h"
#include "simd.h"

namespace longspan {
namespace {

typedef uint8_t Bytes __attribute__((vector_size(kWidth)));

Vector load_bytes(const uint8_t* source, long count) {
  Bytes bytes{};
  if (count >= kWidth) {
    std::memcpy(&bytes, source, kWidth);
  } else {
    std::memcpy(&bytes, source, count);
  }
  return __builtin_convertvector(bytes, Vector);
}

// A row whose weight is zero counts nothing, whatever its logits hold.
template <class Row>
void for_each_row(const Loss& l, const float* logits, float* loss, float* gradient, Row row) {
  for (long i = 0; i < l.rows; ++i) {
    float* slope = gradient ? gradient + i * l.outputs : nullptr;
    if (l.weight[i] != 0.0f) {
      loss[i] = l.weight[i] * row(i, logits + i * l.outputs, slope);
    } else {
      loss[i] = 0.0f;
      if (slope) std::memset(slope, 0, l.outputs * sizeof(float));
    }
  }
}

}  // namespace

// softplus(l) - x l, from u = e^-|l|, which is the probability of the less likely value up to 1 + u.
void bernoulli_loss(const Loss& l, const float* logits, const uint8_t* targets, float* loss, float* gradient) {
  for_each_row(l, logits, loss, gradient, [&](long i, const float* logit, float* slope) {
    const uint8_t* target = targets + i * l.outputs;
    const Vector weight = broadcast(l.weight[i]);
    Vector total{};
    for_each_vector(l.outputs, [&](long j, auto load, auto store) {
      const long count = l.outputs - j;
      const Vector x = load(logit + j), on = load_bytes(target + j, count), u = decay(-absolute(x));
      const Vector cost = at_least(x, 0.0f) - on * x + log_one_plus(u);
      total += count >= kWidth ? cost : first_lanes_of(cost, count);
      if (slope) store(slope + j, weight * ((x >= 0.0f ? broadcast(1.0f) : u) / (1.0f + u) - on));
    });
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
