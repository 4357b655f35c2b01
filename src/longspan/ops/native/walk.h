// What all walks through time share: the lanes they divide among threads, a single lane on two threads, the state that
// a step starts from, and the recurrent matrix, of which sparse states need few rows.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>
#include <vector>

#include "kernels.h"
#include "products.h"
#include "threads.h"

namespace longspan {

constexpr long kLanesAThread = 2;

struct HyperbolicTangent {
  static Vector value(Vector z) { return hyperbolic_tangent(z); }
  static Vector slope(Vector, Vector value) { return 1.0f - value * value; }
};
struct Logistic {
  static Vector value(Vector z) { return logistic(z); }
  static Vector slope(Vector, Vector value) { return value * (1.0f - value); }
};
struct Rectifier {
  static Vector value(Vector z) { return at_least(z, 0.0f); }
  static Vector slope(Vector z, Vector) { return z > 0.0f ? broadcast(1.0f) : Vector{}; }
};

// Some neighboring lanes of a walk. Rows of a step lie `r.units` apart, steps `step` apart.
struct Lanes {
  const Recurrence& r;
  long first, count, step;

  Lanes(const Recurrence& r, long first, long count) : r(r), first(first), count(count), step(r.lanes * r.units) {}

  long at(long t, long lane) const { return t * step + (first + lane) * r.units; }
  bool reset(long t, long lane) const { return r.resets[t * r.lanes + first + lane]; }
  long resets(long t) const {
    long total = 0;
    for (long b = 0; b < count; ++b) total += reset(t, b);
    return total;
  }

  // The states before step t, lanes that are reset replaced by zeros, or nullptr where nothing is left.
  const float* before(long t, const float* start, const float* states, float* room) const {
    const float* rows = t ? states + at(t - 1, 0) : start ? start + first * r.units : nullptr;
    const long dropped = resets(t);
    if (!rows || dropped == count) return nullptr;
    if (dropped == 0) return rows;
    std::memcpy(room, rows, count * r.units * sizeof(float));
    for (long b = 0; b < count; ++b) {
      if (reset(t, b)) std::memset(room + b * r.units, 0, r.units * sizeof(float));
    }
    return room;
  }
};

template <class Body>
void for_each_group_of_lanes(const Recurrence& r, Body body) {
  const long groups = std::max(1l, std::min(threads(), r.lanes / kLanesAThread));
  in_parallel(groups, [&](long g) {
    const Range lanes = part_of(r.lanes, groups, g);
    body(Lanes(r, lanes.begin, lanes.size()));
  });
}

// Applies body(j, load, store) to the vectors of units [from, to), of which the last may be broken.
template <class Body>
void for_units(long from, long to, Body body) {
  for_each_vector(to - from, [&](long j, auto load, auto store) { body(from + j, load, store); });
}

// body(t, steps, the states these steps started from) for stretches of steps whose states fit a near cache. They lie
// in `hidden` one step earlier, and are copied only where a lane was reset or the walk began.
template <class Body>
void for_previous_states(const Recurrence& r, const float* first, const float* hidden, Body body) {
  Scratch scratch;
  const Lanes all(r, 0, r.lanes);
  const long stretch = std::max(1l, kDepthBlock / r.lanes);
  float* room = scratch.take(stretch * all.step);
  for (long start = 0; start < r.length; start += stretch) {
    const long end = std::min(start + stretch, r.length);
    bool in_place = start > 0;
    for (long t = start; t < end && in_place; ++t) in_place = all.resets(t) == 0;
    for (long t = start; t < end && !in_place; ++t) {
      float* target = room + (t - start) * all.step;
      const float* before = all.before(t, first, hidden, target);
      if (!before) {
        std::memset(target, 0, all.step * sizeof(float));
      } else if (before != target) {
        std::memcpy(target, before, all.step * sizeof(float));
      }
    }
    body(start, end - start, in_place ? hidden + all.at(start - 1, 0) : room);
  }
}

constexpr long kUnitsForTwo = 192;  // below, meeting after every step costs more than half a product

// Where two threads divide the units of one lane; all of them belong to the first if there is only one.
inline long meeting_point(long units) {
  return threads() == 1 || units < kUnitsForTwo ? units : (units / 2 + 8) / 16 * 16;
}

// One lane through time on two threads: each owns half of the units and waits, after every step, for the other's half
// of the state. The walk starts on the calling thread alone; a partner joins at the next step once it is awake.
class Duet {
 public:
  Duet(long steps, long units, long half) : steps_(steps), units_(units), half_(half) {}

  template <class Step>
  void lead(const Step& step) {
    bool together = false;
    for (long t = 0; t < steps_; ++t) {
      if (!together && joined_.load(std::memory_order_acquire)) {
        together = true;
        together_from_.store(t, std::memory_order_release);
      }
      step(t, 0, together ? half_ : units_);
      if (together) meet(t, leader_, partner_);
    }
    if (!together) together_from_.store(steps_, std::memory_order_release);
  }

  template <class Step>
  void join(const Step& step) {
    joined_.store(true, std::memory_order_release);
    for (Patience patience; together_from_.load(std::memory_order_acquire) < 0;) patience.wait();
    for (long t = together_from_.load(std::memory_order_relaxed); t < steps_; ++t) {
      step(t, half_, units_);
      meet(t, partner_, leader_);
    }
  }

 private:
  struct alignas(64) Progress {
    std::atomic<long> steps{0};
  };

  static void meet(long t, Progress& mine, const Progress& other) {
    mine.steps.store(t + 1, std::memory_order_release);
    for (Patience patience; other.steps.load(std::memory_order_acquire) <= t;) patience.wait();
  }

  long steps_, units_, half_;
  std::atomic<bool> joined_{false};
  std::atomic<long> together_from_{-1};
  Progress leader_, partner_;
};

// Calls step(t, from, to) for t = 0, 1, ..., so that all units of a step are done before the next begins. A step must
// not throw, since its partner would wait for ever: it takes no memory.
template <class Step>
void walk_in_step(long steps, long units, const Step& step) {
  const long half = meeting_point(units);
  if (half == units) {
    for (long t = 0; t < steps; ++t) step(t, 0, units);
    return;
  }
  Duet duet(steps, units, half);
  in_parallel(2, [&](long part) { part == 0 ? duet.lead(step) : duet.join(step); });
}

// Products with vectors that are mostly zeros: the states of rectifiers, and the errors that flow back through them.
// Only the rows of the matrix that count are read, where they lie; nothing is packed.

constexpr long kFewestOf = 4;  // rows are picked one by one if there are at most a fourth of them

// Some vectors of columns of some rows, wherever these are. Products with them keep their sums, or the vectors of x, in
// registers; what the hardware cannot foresee, the next rows, it is told.
constexpr long kRowsAhead = 4;

template <int vectors>
inline void fetch(const float* row) {
#pragma GCC unroll 16
  for (int v = 0; v < vectors; v += 16 / kWidth) __builtin_prefetch(row + v * kWidth);
}

// y += sum over the rows of x[row] matrix[row], in these columns.
template <int vectors>
void add_panel_rows(const int32_t* row, long count, const float* x, const float* matrix, long size, float* y) {
  Vector total[vectors];
#pragma GCC unroll 16
  for (int v = 0; v < vectors; ++v) total[v] = load(y + v * kWidth);
  for (long i = 0; i < count; ++i) {
    fetch<vectors>(matrix + row[std::min(i + kRowsAhead, count - 1)] * size);
    const float* source = matrix + row[i] * size;
    const Vector factor = broadcast(x[row[i]]);
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) total[v] += factor * load(source + v * kWidth);
  }
#pragma GCC unroll 16
  for (int v = 0; v < vectors; ++v) store(y + v * kWidth, total[v]);
}

// totals[i] += x * matrix[row[i]], in these columns; what is left is to sum each of them.
template <int vectors>
void add_panel_dots(const int32_t* row, long count, const float* x, const float* matrix, long size, Vector* totals) {
  Vector factors[vectors];
#pragma GCC unroll 16
  for (int v = 0; v < vectors; ++v) factors[v] = load(x + v * kWidth);
  for (long i = 0; i < count; ++i) {
    fetch<vectors>(matrix + row[std::min(i + kRowsAhead, count - 1)] * size);
    const float* source = matrix + row[i] * size;
    Vector even = totals[i], odd{};
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) (v % 2 ? odd : even) += factors[v] * load(source + v * kWidth);
    totals[i] = even + odd;
  }
}

inline void add_rows(const int32_t* row, long count, const float* x, const float* matrix, long size, Range columns,
                     float* y) {
  const long whole = columns.size() / kWidth, rest = columns.size() % kWidth;
  if (count == 0) return;
  for_panels(whole, [&](auto width, long first) {
    add_panel_rows<width>(row, count, x, matrix + columns.begin + first, size, y + columns.begin + first);
  });
  if (rest == 0) return;
  const long last = columns.begin + whole * kWidth;
  Vector total = load_first(y + last, rest);
  for (long i = 0; i < count; ++i) total += x[row[i]] * load_first(matrix + row[i] * size + last, rest);
  store_first(y + last, total, rest);
}

// y[row] += x . matrix[row] for some rows.
inline void add_whole_dots(const int32_t* row, long count, const float* x, const float* matrix, long size, float* y) {
  constexpr long at_once = 64;
  const long whole = size / kWidth, rest = size % kWidth;
  for (long begin = 0; begin < count; begin += at_once, row += at_once) {
    const long rows = std::min(at_once, count - begin);
    Vector totals[at_once] = {};
    for_panels(whole, [&](auto width, long first) {
      add_panel_dots<width>(row, rows, x + first, matrix + first, size, totals);
    });
    for (long i = 0; i < rows; ++i) {
      const long last = whole * kWidth;
      if (rest) totals[i] += load_first(x + last, rest) * load_first(matrix + row[i] * size + last, rest);
      y[row[i]] += sum(totals[i]);
    }
  }
}

// The same where only some columns of x are not zero. The numbers of the rows that stand `ahead` places further on are
// fetched in the meantime.
template <int rows>
inline void add_picked_dots(const int32_t* row, long ahead, const float* x, const int32_t* column, long columns,
                            const float* matrix, long size, float* y) {
  const float *source[rows], *next[rows];
  float totals[rows] = {};
  for (int k = 0; k < rows; ++k) source[k] = matrix + row[k] * size, next[k] = matrix + row[k + ahead] * size;
  for (long j = 0; j < columns; ++j) {
    const float factor = x[column[j]];
#pragma GCC unroll 8
    for (int k = 0; k < rows; ++k) {
      __builtin_prefetch(next[k] + column[j]);
      totals[k] += factor * source[k][column[j]];
    }
  }
  for (int k = 0; k < rows; ++k) y[row[k]] += totals[k];
}

// y[row] += x . matrix[row] for some rows. `columns` has room for all of them and a vector more.
inline void add_dots(const int32_t* row, long count, const float* x, const float* matrix, long size, int32_t* columns,
                     float* y) {
  const long most = size / kFewColumnsOf, found = nonzeros(x, size, most, columns);
  if (found > most) return add_whole_dots(row, count, x, matrix, size, y);
  long i = 0;
  for (; i + 16 <= count; i += 8) add_picked_dots<8>(row + i, 8, x, columns, found, matrix, size, y);
  for (; i + 8 <= count; i += 8) add_picked_dots<8>(row + i, 0, x, columns, found, matrix, size, y);
  for (; i < count; ++i) add_picked_dots<1>(row + i, 0, x, columns, found, matrix, size, y);
}

// Whether the outer products of rows of a and b have so few sums that they come cheaper one by one: each costs about as
// much as two vectors of those of the dense product.
inline bool is_sparse(long rows, const float* a, long a_size, const float* b, long b_size) {
  const long most = rows * a_size * b_size / (2 * kWidth);
  const auto count = [](const float* row, long size) {
    Integers found{};
    for_each_vector(size, [&](long j, auto load, auto) { found -= load(row + j) != 0.0f; });
    long total = 0;
    for (int i = 0; i < kWidth; ++i) total += found[i];
    return total;
  };
  long sums = 0;
  for (long r = 0; r < rows && sums <= most; ++r) sums += count(a + r * a_size, a_size) * count(b + r * b_size, b_size);
  return sums <= most;
}

// c += a^T b, of the numbers that are not zero.
inline void add_sparse_outer(long rows, const float* a, long a_size, const float* b, long b_size, float* c) {
  Scratch scratch;
  int32_t *in_a = scratch.take<int32_t>(a_size + 2 * kWidth), *in_b = scratch.take<int32_t>(b_size + 2 * kWidth);
  for (long r = 0; r < rows; ++r) {
    const float *left = a + r * a_size, *right = b + r * b_size;
    const long count_a = nonzeros(left, a_size, a_size, in_a), count_b = nonzeros(right, b_size, b_size, in_b);
    for (long i = 0; i < count_a; ++i) {
      const float factor = left[in_a[i]];
      float* target = c + in_a[i] * b_size;
      for (long j = 0; j < count_b; ++j) target[in_b[j]] += factor * right[in_b[j]];
    }
  }
}

// Writes down the units in [from, to) whose gain or leak is not zero: those whose errors matter. It gives up like
// `find_places`.
inline long wanted_units(const float* gain, const float* leak, long from, long to, long most, int32_t* places) {
  const auto wanted = [=](long j, const auto& load) {
    return absolute(load(gain + from + j)) + absolute(load(leak + from + j));
  };
  return find_places(to - from, most, static_cast<int32_t>(from), wanted, places);
}

// The recurrent matrix of one lane: by the rows that count where they are few, else whole, in panels. These are packed
// when they are first needed, since that costs as much as some steps do, in memory that is taken before, because two
// threads may ask for them in a step.
template <class Storage>
class RecurrentMatrix {
 public:
  RecurrentMatrix(Scratch& scratch, const Recurrence& r, long cut)
      : r_(r), room_(round_up(r.units, kWidth) + kWidth), places_(scratch.take<int32_t>(4 * room_)),
        panels_(scratch, r.units, 1, cut) {}

  // y += x u for the units [from, to).
  void add_product(const float* x, float* y, long from, long to, bool backwards) {
    int32_t* rows = places(from);
    const long most = r_.units / kFewestOf, count = nonzeros(x, r_.units, most, rows);
    if (count > most) return whole().add_product(x, y, from, to, backwards);
    r_.catch_up(rows, count);
    add_rows(rows, count, x, r_.recurrent, r_.units, {from, to}, y);
  }

  // y += x u^T in the units [from, to), of which only those are wanted at which a gain or a leak is not zero.
  void add_transposed_product(const float* x, float* y, const float* gain, const float* leak, long from, long to,
                              bool backwards) {
    int32_t* rows = places(from);
    const long most = (to - from) / kFewestOf, count = wanted_units(gain, leak, from, to, most, rows);
    if (count > most) return whole().add_transposed_product(x, y, from, to, backwards);
    r_.catch_up(rows, count);
    add_dots(rows, count, x, r_.recurrent, r_.units, rows + room_, y);
  }

 private:
  // Each of two threads writes down its own, of rows and of columns.
  int32_t* places(long from) { return places_ + 2 * (from > 0) * room_; }

  const PanelMatrix<Storage>& whole() {
    std::call_once(packed_, [&] {
      if (r_.lagging) catch_up(*r_.lagging);
      panels_.pack(r_.recurrent);
    });
    return panels_;
  }

  const Recurrence& r_;
  long room_;
  int32_t* places_;
  PanelMatrix<Storage> panels_;
  std::once_flag packed_;
};

// The recurrent matrix, or its transpose, of several lanes: by the rows that count in each where they are few in all of
// them, else whole, packed when it is first needed.
class RecurrentLanes {
 public:
  RecurrentLanes(Scratch& scratch, const Lanes& l, View view)
      : scratch_(scratch), l_(l), view_(view), room_(round_up(l.r.units, kWidth) + kWidth), counts_(l.count),
        places_(scratch.take<int32_t>((l.count + 1) * room_)) {}

  // c = x u + base, rows of x `units` apart and those of c `row`.
  void multiply(const float* x, Addend base, float* c, long row) {
    const long units = l_.r.units;
    if (!few([&](long b, long most) { return nonzeros(x + b * units, units, most, places(b)); })) {
      return whole().multiply(l_.count, in_place({x, units, 1}), base, c, row);
    }
    for (long b = 0; b < l_.count; ++b) {
      std::memcpy(c + b * row, base.data + b * base.row, units * sizeof(float));
      add_rows(places(b), counts_[b], x + b * units, l_.r.recurrent, units, {0, units}, c + b * row);
    }
  }

  // y += x u^T, rows of both `row` apart, where a gain of step t or a leak is not zero.
  void add_transposed_product(const float* x, const float* gain, long t, float* y, long row) {
    const long units = l_.r.units;
    const auto find = [&](long b, long most) {
      return wanted_units(gain + l_.at(t, b), l_.r.leak, 0, units, most, places(b));
    };
    if (!few(find)) return whole().multiply(l_.count, in_place({x, row, 1}), {y, row}, y, row);
    for (long b = 0; b < l_.count; ++b) {
      add_dots(places(b), counts_[b], x + b * row, l_.r.recurrent, units, places(l_.count), y + b * row);
    }
  }

 private:
  int32_t* places(long lane) { return places_ + lane * room_; }

  template <class Find>
  bool few(const Find& find) {
    const long most = l_.r.units / kFewestOf;
    for (long b = 0; b < l_.count; ++b) {
      if ((counts_[b] = find(b, most)) > most) return false;
    }
    for (long b = 0; b < l_.count; ++b) l_.r.catch_up(places(b), counts_[b]);
    return true;
  }

  const PackedMatrix& whole() {
    if (!packed_) {
      if (l_.r.lagging) catch_up(*l_.r.lagging);
      packed_.emplace(scratch_, view_, l_.r.units, l_.r.units);
    }
    return *packed_;
  }

  Scratch& scratch_;
  const Lanes& l_;
  View view_;
  long room_;
  std::vector<long> counts_;
  int32_t* places_;
  std::optional<PackedMatrix> packed_;
};

}  // namespace longspan
