// Matrices of which a chunk reads few rows, since states are mostly zeros: products, and gradients by row. How rows
// that lag catch up is in update.cc.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels.h"
#include "simd.h"
#include "walk.h"

namespace longspan {
namespace {

// Where the rows of a matrix are not zero, one after the other.
struct Places {
  long* begin;  // of each row, and the end of the last
  int32_t* place;

  Places(Scratch& scratch, long rows, long columns, const float* matrix)
      : begin(scratch.take<long>(rows + 1)), place(scratch.take<int32_t>(rows * columns + kWidth)), rows_(rows) {
    begin[0] = 0;
    for (long row = 0; row < rows; ++row) {
      begin[row + 1] = begin[row] + nonzeros(matrix + row * columns, columns, columns, place + begin[row]);
    }
  }
  long count(long row) const { return begin[row + 1] - begin[row]; }
  long total() const { return begin[rows_]; }
  const int32_t* of(long row) const { return place + begin[row]; }

  // The rows in which each column is not zero, in order.
  Places transposed(Scratch& scratch, long columns) const {
    Places turned(scratch, columns, total());
    long* next = scratch.take<long>(columns);
    std::memset(turned.begin, 0, (columns + 1) * sizeof(long));
    for (long i = 0; i < total(); ++i) ++turned.begin[place[i] + 1];
    std::partial_sum(turned.begin, turned.begin + columns + 1, turned.begin);
    std::memcpy(next, turned.begin, columns * sizeof(long));
    for (long row = 0; row < rows_; ++row) {
      for (long i = begin[row]; i < begin[row + 1]; ++i) turned.place[next[place[i]]++] = static_cast<int32_t>(row);
    }
    return turned;
  }

 private:
  Places(Scratch& scratch, long rows, long total)
      : begin(scratch.take<long>(rows + 1)), place(scratch.take<int32_t>(total)), rows_(rows) {}

  long rows_;
};

void add_scaled(float factor, const float* row, long columns, float* target) {
  for_each_vector(columns,
                  [&](long j, auto load, auto store) { store(target + j, load(target + j) + factor * load(row + j)); });
}

// One row of the gradient, from the steps at which its unit was on.
void sum_row(const Outer& o, long row, const Places& on, const Places& right, float* target) {
  std::memset(target, 0, o.columns * sizeof(float));
  for (long i = on.begin[row]; i < on.begin[row + 1]; ++i) {
    const long step = on.place[i], count = right.count(step);
    const float factor = o.left[step * o.rows + row], *values = o.right + step * o.columns;
    const int32_t* place = right.of(step);
    if (count > o.columns / kFewColumnsOf) {
      add_scaled(factor, values, o.columns, target);
    } else {
      for (long j = 0; j < count; ++j) target[place[j]] += factor * values[place[j]];
    }
  }
}

}  // namespace

namespace {

// Some columns of a matrix, side by side.
const float* gather_columns(Scratch& scratch, long rows, long columns, const float* matrix,
                            const std::vector<int32_t>& some) {
  const long count = some.size();
  float* result = scratch.take(rows * count);
  for (long row = 0; row < rows; ++row) {
    for (long i = 0; i < count; ++i) result[row * count + i] = matrix[row * columns + some[i]];
  }
  return result;
}

std::vector<int32_t> columns_in_use(const Places& of_columns, long columns) {
  std::vector<int32_t> used;
  for (long column = 0; column < columns; ++column) {
    if (of_columns.count(column)) used.push_back(static_cast<int32_t>(column));
  }
  return used;
}

// The rows in use from one product of what left and right have in them, which pays where the same few units are on at
// all steps.
void sum_rows_at_once(const Outer& o, const std::vector<int32_t>& rows, const std::vector<int32_t>& columns,
                      float* gradient) {
  Scratch scratch;
  const long height = rows.size(), width = columns.size();
  const float* left = gather_columns(scratch, o.steps, o.rows, o.left, rows);
  const float* right = gather_columns(scratch, o.steps, o.columns, o.right, columns);
  float* sums = scratch.take(height * width);
  outer({o.steps, o.steps, height, width}, left, right, sums, false);
  for (long i = 0; i < height; ++i) {
    float* target = gradient + rows[i] * o.columns;
    std::memset(target, 0, o.columns * sizeof(float));
    for (long j = 0; j < width; ++j) target[columns[j]] = sums[i * width + j];
  }
}

}  // namespace

double outer_rows(const Outer& o, float* gradient, bool* reached) {
  constexpr double picked = 16, copied = 4;  // what it costs to add or copy a number, in multiplications of a product
  Scratch scratch;
  const Places left(scratch, o.steps, o.rows, o.left), right(scratch, o.steps, o.columns, o.right);
  const Places on = left.transposed(scratch, o.rows);
  const std::vector<int32_t> rows = columns_in_use(on, o.rows);
  const std::vector<int32_t> columns = columns_in_use(right.transposed(scratch, o.columns), o.columns);
  double one_by_one = 0.0;
  for (long step = 0; step < o.steps; ++step) {
    const double most = static_cast<double>(o.columns) / kWidth;
    one_by_one += picked * left.count(step) * std::min<double>(right.count(step), most);
  }
  const double height = rows.size(), width = columns.size(), steps = o.steps;
  const bool at_once = height * width * (steps + copied) + steps * copied * (height + width) < one_by_one;
  if (at_once) sum_rows_at_once(o, rows, columns, gradient);
  std::vector<float> squares(rows.size());
  const long parts = parts_for(left.total() * o.columns);
  in_parallel(parts, [&](long part) {
    const Range some = part_of(rows.size(), parts, part);
    for (long i = some.begin; i < some.end; ++i) {
      float* target = gradient + rows[i] * o.columns;
      if (!at_once) sum_row(o, rows[i], on, right, target);
      squares[i] = sum_of_squares(target, o.columns);
    }
  });
  std::memset(reached, 0, o.rows * sizeof(bool));
  for (const int32_t row : rows) reached[row] = true;
  return std::accumulate(squares.begin(), squares.end(), 0.0);
}

void lagging_product(const Affine& a, const Lagging& m, const float* x, const float* bias, float* y) {
  Scratch scratch;
  const Places on(scratch, a.rows, a.inputs, x);
  if (kFewestOf * on.total() > a.rows * a.inputs) {
    catch_up(m);
    return affine(a, x, m.weights, bias, y);
  }
  for (long row = 0; row < a.rows; ++row) {
    float* target = y + row * a.outputs;
    for (long i = 0; i < on.count(row); ++i) catch_up(m, on.of(row)[i]);
    std::memcpy(target, bias, a.outputs * sizeof(float));
    add_rows(on.of(row), on.count(row), x + row * a.inputs, m.weights, a.outputs, {0, a.outputs}, target);
  }
  std::memset(y + a.rows * a.outputs, 0, (a.all_rows - a.rows) * a.outputs * sizeof(float));
}

void product_transposed_where(const Affine& a, const float* weights, const float* y, const float* x, float* result) {
  Scratch scratch;
  const Places on(scratch, a.rows, a.inputs, x);
  if (kFewestOf * on.total() > a.rows * a.inputs) {
    affine_input_cotangent(a, weights, y, result);
    for (long i = 0; i < a.rows * a.inputs; ++i) result[i] = x[i] != 0.0f ? result[i] : 0.0f;
    return;
  }
  int32_t* columns = scratch.take<int32_t>(a.outputs + 2 * kWidth);
  std::memset(result, 0, a.all_rows * a.inputs * sizeof(float));
  for (long row = 0; row < a.rows; ++row) {
    add_dots(on.of(row), on.count(row), y + row * a.outputs, weights, a.outputs, columns, result + row * a.inputs);
  }
}

}  // namespace longspan
