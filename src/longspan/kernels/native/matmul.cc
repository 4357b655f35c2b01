// The affine map of every step and its two transposes. Rows beyond `rows` are not read and come out zero.
#include <cstring>

#include "gemm.h"
#include "kernels.h"

namespace longspan {
namespace {

void clear(float* from, float* to) { std::memset(from, 0, (to - from) * sizeof(float)); }

}  // namespace

void affine(const Affine& a, const float* x, const float* weights, const float* bias, float* y) {
  multiply(a.rows, a.outputs, a.inputs, {x, a.inputs, 1}, {weights, a.outputs, 1}, {bias, 0}, y, a.outputs);
  clear(y + a.rows * a.outputs, y + a.all_rows * a.outputs);
}

void affine_input_cotangent(const Affine& a, const float* weights, const float* y, float* x) {
  multiply(a.rows, a.inputs, a.outputs, {y, a.outputs, 1}, {weights, 1, a.outputs}, {}, x, a.inputs);
  clear(x + a.rows * a.inputs, x + a.all_rows * a.inputs);
}

void affine_weight_cotangent(const Affine& a, const float* x, const float* y, float* weights, float* bias) {
  multiply(a.inputs, a.outputs, a.rows, {x, 1, a.inputs}, {y, a.outputs, 1}, {}, weights, a.outputs);
  if (bias) sum_of_rows(a.rows, a.outputs, y, bias);
}

void sum_of_rows(long rows, long columns, const float* y, float* sum) {
  clear(sum, sum + columns);
  for (long i = 0; i < rows; ++i, y += columns) {
    for_each_vector(columns, [&](long j, auto load, auto store) { store(sum + j, load(sum + j) + load(y + j)); });
  }
}

}  // namespace longspan
