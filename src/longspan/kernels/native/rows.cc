// Sums of the few rows of a matrix that an input selects, and the transpose, which adds into those rows. An input is
// a row of counts, nearly all zero (the keys that are down), or one index (a symbol).
#include <algorithm>
#include <cstring>

#include "bytes.h"
#include "kernels.h"
#include "scratch.h"
#include "simd.h"

namespace longspan {
namespace {

struct Selected {
  const float* row;  // of the weights or, in the transpose, of their cotangent
  float count;
};

long select(const uint8_t* input, long size, const float* weights, long columns, Selected* selected) {
  long found = 0;
  for_each_nonzero(input, size, [&](long i, uint8_t count) {
    selected[found++] = {weights + i * columns, static_cast<float>(count)};
  });
  return found;
}

long select(const int32_t* input, long size, const float* weights, long columns, Selected* selected) {
  const long index = std::clamp<long>(*input, 0, size - 1);  // as XLA's gather does
  selected[0] = {weights + index * columns, 1.0f};
  return 1;
}

long stride_of(const uint8_t*, const Rows& r) { return r.inputs; }
long stride_of(const int32_t*, const Rows&) { return 1; }

}  // namespace

template <class Input>
void sum_rows(const Rows& r, const Input* inputs, const float* weights, const float* bias, float* y) {
  Scratch scratch;
  Selected* selected = scratch.take<Selected>(r.inputs);
  for (long i = 0; i < r.rows; ++i, y += r.outputs) {
    const long count = select(inputs + i * stride_of(inputs, r), r.inputs, weights, r.outputs, selected);
    for_each_vector(r.outputs, [&](long j, auto load, auto store) {
      Vector sum = load(bias + j);
      for (long s = 0; s < count; ++s) sum += selected[s].count * load(selected[s].row + j);
      store(y + j, sum);
    });
  }
  std::memset(y, 0, (r.all_rows - r.rows) * r.outputs * sizeof(float));
}

template <class Input>
void add_to_rows(const Rows& r, const Input* inputs, const float* y, float* weights, float* bias) {
  Scratch scratch;
  Selected* selected = scratch.take<Selected>(r.inputs);
  std::memset(weights, 0, r.inputs * r.outputs * sizeof(float));
  for (long i = 0; i < r.rows; ++i) {
    const long count = select(inputs + i * stride_of(inputs, r), r.inputs, weights, r.outputs, selected);
    const float* row = y + i * r.outputs;
    for (long s = 0; s < count; ++s) {
      float* target = const_cast<float*>(selected[s].row);
      for_each_vector(r.outputs, [&](long j, auto load, auto store) {
        store(target + j, load(target + j) + selected[s].count * load(row + j));
      });
    }
  }
  sum_of_rows(r.rows, r.outputs, y, bias);
}

template void sum_rows(const Rows&, const uint8_t*, const float*, const float*, float*);
template void sum_rows(const Rows&, const int32_t*, const float*, const float*, float*);
template void add_to_rows(const Rows&, const uint8_t*, const float*, float*, float*);
template void add_to_rows(const Rows&, const int32_t*, const float*, float*, float*);

}  // namespace longspan
