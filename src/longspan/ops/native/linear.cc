// The linear maps of ops/linear.py: affine maps of dense rows, and sums of the rows of a matrix that an input selects.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels.h"
#include "products.h"
#include "simd.h"
#include "threads.h"

namespace longspan {

// The affine map of every step and its two transposes. Rows beyond `rows` are not read and come out zero.

namespace {

void clear(float* from, float* to) { std::memset(from, 0, (to - from) * sizeof(float)); }

// The product of products.h with the longer side of the result divided among threads.
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

// Sums of the few rows of a matrix that an input selects, and the transpose, which adds into those rows. An input is
// a row of counts, nearly all zero (the keys that are down), or one index (a symbol).

namespace {

struct Selected {
  long row;
  float count;
};

long select(const uint8_t* input, long size, Selected* selected) {
  long found = 0;
  for_each_nonzero(input, size, [&](long i, uint8_t count) { selected[found++] = {i, static_cast<float>(count)}; });
  return found;
}

long select(const int32_t* input, long size, Selected* selected) {
  selected[0] = {std::clamp<long>(*input, 0, size - 1), 1.0f};  // as XLA's gather does
  return 1;
}

long stride_of(const uint8_t*, const Rows& r) { return r.inputs; }
long stride_of(const int32_t*, const Rows&) { return 1; }

// y = base + a fixed number of selected rows, so that the sum stays in registers.
template <int count>
void sum_some(const Rows& r, const float* weights, const Selected* selected, const float* base, float* y) {
  const float* rows[count + 1];
  for (int s = 0; s < count; ++s) rows[s] = weights + selected[s].row * r.outputs;
  for_each_vector(r.outputs, [&](long j, auto load, auto store) {
    Vector sum = load(base + j);
    for (int s = 0; s < count; ++s) sum += selected[s].count * load(rows[s] + j);
    store(y + j, sum);
  });
}

}  // namespace

template <class Input>
void sum_rows(const Rows& r, const Input* inputs, const float* weights, const float* bias, float* y) {
  const long parts = parts_for(2 * r.rows * r.outputs);
  in_parallel(parts, [&](long part) {
    Scratch scratch;
    Selected* selected = scratch.take<Selected>(r.inputs);
    const Range rows = part_of(r.rows, parts, part);
    for (long i = rows.begin; i < rows.end; ++i) {
      const long count = select(inputs + i * stride_of(inputs, r), r.inputs, selected), rest = count % 4;
      const auto sum = rest == 0 ? sum_some<0> : rest == 1 ? sum_some<1> : rest == 2 ? sum_some<2> : sum_some<3>;
      float* target = y + i * r.outputs;
      sum(r, weights, selected, bias, target);
      for (long s = rest; s < count; s += 4) sum_some<4>(r, weights, selected + s, target, target);
    }
  });
  std::memset(y + r.rows * r.outputs, 0, (r.all_rows - r.rows) * r.outputs * sizeof(float));
}

template <class Input>
void add_to_rows(const Rows& r, const Input* inputs, const float* y, float* weights, float* bias) {
  std::memset(weights, 0, r.inputs * r.outputs * sizeof(float));
  std::memset(bias, 0, r.outputs * sizeof(float));
  const long parts = parts_for(2 * r.rows * r.outputs);
  in_parallel(parts, [&](long part) {  // every thread sees all rows and adds its own columns
    Scratch scratch;
    Selected* selected = scratch.take<Selected>(r.inputs);
    const Range columns = part_of(r.outputs, parts, part, kWidth);
    const long most = columns.size() / kFewColumnsOf;
    int32_t* places = scratch.take<int32_t>(columns.size() + 2 * kWidth);
    long found = 0;  // numbers of a row that are not zero, where they are few
    const auto add = [&](float count, const float* row, float* target) {
      if (found <= most) {
        for (long j = 0; j < found; ++j) target[places[j]] += count * row[places[j]];
        return;
      }
      for_each_vector(columns.size(), [&](long j, auto load, auto store) {
        store(target + j, load(target + j) + count * load(row + j));
      });
    };
    for (long i = 0; i < r.rows; ++i) {
      const long count = select(inputs + i * stride_of(inputs, r), r.inputs, selected);
      const float* row = y + i * r.outputs + columns.begin;
      found = nonzeros(row, columns.size(), most, places);
      for (long s = 0; s < count; ++s) {
        add(selected[s].count, row, weights + selected[s].row * r.outputs + columns.begin);
      }
      add(1.0f, row, bias + columns.begin);
    }
  });
}

double selected_squares(const SelectedRows& s) {
  Scratch scratch;
  float* sum = scratch.take(s.columns);
  std::vector<int32_t> order(s.count);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return s.index[a] < s.index[b]; });
  double total = 0.0;
  for (long i = 0; i < s.count;) {
    const int32_t row = s.index[order[i]];
    std::memset(sum, 0, s.columns * sizeof(float));
    for (; i < s.count && s.index[order[i]] == row; ++i) {
      const float* part = s.parts + order[i] * s.columns;
      for_each_vector(s.columns,
                      [&](long j, auto load, auto store) { store(sum + j, load(sum + j) + load(part + j)); });
    }
    Vector squares{};
    for_each_vector(s.columns, [&](long j, auto load, auto) { squares += load(sum + j) * load(sum + j); });
    total += longspan::sum(squares);
  }
  return total;
}

void add_selected(const SelectedRows& s, float scale, float* matrix) {
  for (long i = 0; i < s.count; ++i) {
    float* row = matrix + std::clamp<long>(s.index[i], 0, s.rows - 1) * s.columns;
    const float* part = s.parts + i * s.columns;
    for_each_vector(s.columns,
                    [&](long j, auto load, auto store) { store(row + j, load(row + j) + scale * load(part + j)); });
  }
}

template void sum_rows(const Rows&, const uint8_t*, const float*, const float*, float*);
template void sum_rows(const Rows&, const int32_t*, const float*, const float*, float*);
template void add_to_rows(const Rows&, const uint8_t*, const float*, float*, float*);
template void add_to_rows(const Rows&, const int32_t*, const float*, float*, float*);

}  // namespace longspan
