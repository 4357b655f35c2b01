// The affine map of every step and its two transposes. Rows beyond `rows` are not read and come out zero.
#include <cstring>

#include "gemm.h"
#include "kernels.h"
#include "threads.h"

namespace longspan {
namespace {

void clear(float* from, float* to) { std::memset(from, 0, (to - from) * sizeof(float)); }

// The product of gemm.h with the longer side of the result divided among threads.
void multiply_together(long rows, long columns, long depth, View a, View b, Addend base, float* c) {
  const long parts = parts_for(rows * columns * depth);
  in_parallel(parts, [&](long part) {
    const Range i = rows >= columns ? part_of(rows, parts, part, kTileRows) : Range{0, rows};
    const Range j = rows >= columns ? Range{0, columns} : part_of(columns, parts, part, kWidth);
    multiply(i.size(), j.size(), depth, a.from(i.begin, 0), b.from(0, j.begin), base.from(i.begin, j.begin),
             c + i.begin * columns + j.begin, columns);
  });
}

}  // namespace

void affine(const Affine& a, const float* x, const float* weights, const float* bias, float* y) {
  multiply_together(a.rows, a.outputs, a.inputs, {x, a.inputs, 1}, {weights, a.outputs, 1}, {bias, 0}, y);
  clear(y + a.rows * a.outputs, y + a.all_rows * a.outputs);
}

void affine_input_cotangent(const Affine& a, const float* weights, const float* y, float* x) {
  multiply_together(a.rows, a.inputs, a.outputs, {y, a.outputs, 1}, {weights, 1, a.outputs}, {}, x);
  clear(x + a.rows * a.inputs, x + a.all_rows * a.inputs);
}

void affine_weight_cotangent(const Affine& a, const float* x, const float* y, float* weights, float* bias) {
  outer(a, x, y, weights, false);
  if (bias) sum_of_rows(a.rows, a.outputs, y, bias);
}

void outer(const Affine& a, const float* x, const float* y, float* weights, bool add) {
  const Addend base = add ? Addend{weights, a.outputs} : Addend{};
  multiply_together(a.inputs, a.outputs, a.rows, {x, 1, a.inputs}, {y, a.outputs, 1}, base, weights);
}

void sum_of_rows(long rows, long columns, const float* y, float* sum) {
  for_each_vector(columns, [&](long j, auto load, auto store) {
    Vector even{}, odd{};
    for (long i = 0; i + 1 < rows; i += 2) {
      even += load(y + i * columns + j);
      odd += load(y + (i + 1) * columns + j);
    }
    if (rows % 2) even += load(y + (rows - 1) * columns + j);
    store(sum + j, even + odd);
  });
}

}  // namespace longspan
