// The softmax within a class: each step is normalized over a contiguous range of the rows of one large matrix. Steps
// that share a range are taken together, so that its rows, which come from far away, are read once for all of them.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels.h"
#include "products.h"
#include "threads.h"

namespace longspan {
namespace {

constexpr int kRows = kWidth / 2;  // of the matrix in a tile of logits, against two steps: one vector of results
constexpr long kRowsNearby = 32;   // rows that stay in the first-level cache while all steps pass over them
constexpr int kSteps = 3;          // steps in a tile of hidden gradients
constexpr int kSums = kWidth == 16 ? 24 : 12;  // vectors of them that stay in registers
constexpr long kStepsForGram = 32;             // up to so many steps a norm comes cheaper from inner products

// Steps with the same range, and what they share while a kernel works on them.
class Group {
 public:
  Group(Scratch& scratch, const Ranges& r, const std::vector<int32_t>& members)
      : r_(r), members_(members), first_(r.start[members[0]]), rows_(r.stop[members[0]] - first_),
        row_(round_up(rows_, kWidth)), values_(scratch.take(size() * row_)) {}

  // Floats that the values of such a group take.
  static long extent(const Ranges& r, const std::vector<int32_t>& members) {
    return members.size() * round_up(r.stop[members[0]] - r.start[members[0]], kWidth);
  }

  long size() const { return members_.size(); }
  long rows() const { return rows_; }
  long first() const { return first_; }
  int32_t member(long s) const { return members_[s]; }
  const float* hidden(long s) const { return r_.hidden + members_[s] * r_.units; }
  const float* weights(long row) const { return r_.weights + (first_ + row) * r_.units; }
  float* values(long s) const { return values_ + s * row_; }

  // The logits of all steps, in place of `values`, without the bias.
  void find_logits() {
    for_each_nearby([&](Range rows) { find_logits(rows); });
  }

  // `values` become the gradient of log p with respect to the logits, [row = target] - p, in one pass over the rows:
  // terms are relative to the highest logit so far and what was summed before shrinks when a higher one comes. With
  // `weighed`, its row of each step becomes the sum over rows of value times weights, while the rows are near.
  void find_gradient(float* log_prob, float* weighed) {
    std::vector<Sum> sums(size());
    std::vector<float> highest_then;  // nearby rows after nearby rows, all steps of each
    for_each_nearby([&](Range rows) {
      find_logits(rows);
      for (long s = 0; s < size(); ++s) {
        const float shrink = exponentiate(rows, s, sums[s]);
        if (weighed && shrink != 1.0f) scale_by(shrink, weighed + members_[s] * r_.units, r_.units);
        highest_then.push_back(sums[s].highest);
      }
      if (weighed) weigh(rows, weighed);
    });
    for (long s = 0; s < size(); ++s) {
      const Sum& sum = sums[s];
      const float factor = -1.0f / sum.total;
      long number = s;
      for_each_nearby([&](Range rows) {
        scale_by(factor * std::exp(highest_then[number] - sum.highest), values(s) + rows.begin, rows.size());
        number += size();
      });
      const long target = r_.target[members_[s]] - first_;
      const bool hit = target >= 0 && target < rows_;
      if (hit) values(s)[target] += 1.0f;
      if (weighed) {
        float* result = weighed + members_[s] * r_.units;
        for_each_vector(r_.units, [&](long j, auto load, auto store) {
          const Vector own = hit ? load(weights(target) + j) : Vector{};
          store(result + j, own + factor * load(result + j));
        });
      }
      if (log_prob) log_prob[members_[s]] = (hit ? sum.picked : 0.0f) - (sum.highest + std::log(sum.total));
    }
  }

  // weights[row] += sum over steps of scale[s] value[s, row] hidden[s], and the same for the bias, both from the
  // first row of the range on.
  void add_outer(const float* scale, float* weights, float* bias) {
    for (long s = 0; s < size(); ++s) {
      const float factor = scale[members_[s]];
      for_each_vector(rows_, [&](long i, auto load, auto store) {
        const Vector change = factor * load(values(s) + i);
        store(values(s) + i, change);
        store(bias + i, load(bias + i) + change);
      });
    }
    long i = 0;
    for (; i + 2 <= rows_; i += 2) add_outer_rows<2>(i, weights);
    if (i < rows_) add_outer_rows<1>(i, weights);
  }

  // The values of all steps, to keep them for later and to take them up again.
  void save(float* room) const { std::memcpy(room, values_, size() * row_ * sizeof(float)); }
  void restore(const float* room) { std::memcpy(values_, room, size() * row_ * sizeof(float)); }

  // The squared norm of what add_outer would add.
  double squares(const float* scale) {
    double total = 0.0;
    if (size() <= kStepsForGram) {
      for (long s = 0; s < size(); ++s) {
        for (long t = 0; t <= s; ++t) {
          const double twice = (s == t ? 1.0 : 2.0) * scale[members_[s]] * scale[members_[t]];
          total += twice * dot(values(s), values(t), rows_) * (1.0 + dot(hidden(s), hidden(t), r_.units));
        }
      }
      return total;
    }
    std::vector<float> weights(rows_ * r_.units), bias(rows_);
    add_outer(scale, weights.data(), bias.data());
    return dot(weights.data(), weights.data(), weights.size()) + dot(bias.data(), bias.data(), bias.size());
  }

 private:
  // The normalizer of a step as far as rows were seen: e^highest * total.
  struct Sum {
    float highest = -INFINITY, total = 0.0f, picked = 0.0f;
  };

  template <class Body>
  void for_each_nearby(Body body) const {
    for (long i = 0; i < rows_; i += kRowsNearby) body(Range{i, std::min(i + kRowsNearby, rows_)});
  }

  void find_logits(Range rows) {
    for (long s = 0; s + 1 < size(); s += 2) {
      for (long i = rows.begin; i < rows.end; i += kRows) dots<2>(i, s);
    }
    if (size() % 2) {
      for (long i = rows.begin; i < rows.end; i += kWidth) dots<1>(i, size() - 1);
    }
  }

  // From logits to terms of the sum; returns by how much the earlier ones shrink.
  float exponentiate(Range rows, long s, Sum& sum) {
    float *value = values(s) + rows.begin, before = sum.highest;
    const float* bias = r_.bias + first_ + rows.begin;
    Vector largest = broadcast(before);
    for_each_vector(rows.size(), [&](long i, auto load, auto store) {
      const Vector logit = load(value + i) + load(bias + i);
      store(value + i, logit);
      const Vector real = rows.size() - i >= kWidth ? logit : first_lanes_of(logit, rows.size() - i, before);
      largest = real > largest ? real : largest;
    });
    for (int i = 0; i < kWidth; ++i) sum.highest = std::max(sum.highest, largest[i]);
    const long target = r_.target[members_[s]] - first_ - rows.begin;
    if (target >= 0 && target < rows.size()) sum.picked = value[target];
    Vector total{};
    for_each_vector(rows.size(), [&](long i, auto load, auto store) {
      const Vector term = decay(load(value + i) - sum.highest);
      total += rows.size() - i >= kWidth ? term : first_lanes_of(term, rows.size() - i);
      store(value + i, term);
    });
    const float shrink = before == sum.highest ? 1.0f : std::exp(before - sum.highest);
    sum.total = shrink * sum.total + longspan::sum(total);
    return shrink;
  }

  // result[s] += sum over some rows of value[s, row] weights[row].
  void weigh(Range rows, float* result) {
    long s = 0;
    for (; s + kSteps <= size(); s += kSteps) weigh_steps<kSteps>(rows, s, result);
    with_constant<kSteps>(size() - s, [&](auto steps) {
      if (s < size()) weigh_steps<steps()>(rows, s, result);
    });
  }

  static void scale_by(float factor, float* values, long count) {
    for_each_vector(count, [&](long i, auto load, auto store) { store(values + i, factor * load(values + i)); });
  }

  template <int steps>
  inline __attribute__((always_inline)) void dots(long i, long s) {
    constexpr int rows = steps == 2 ? kRows : kWidth;
    const float* row[rows];
    for (int k = 0; k < rows; ++k) row[k] = weights(std::min(i + k, rows_ - 1));  // past the end: into the padding
    Vector results[kWidth];
#pragma GCC unroll 16
    for (int k = 0; k < kWidth; ++k) results[k] = Vector{};
    for_each_vector(r_.units, [&](long j, auto load, auto) {
      Vector state[steps];
      for (int k = 0; k < steps; ++k) state[k] = load(hidden(s + k) + j);
#pragma GCC unroll 16
      for (int k = 0; k < rows; ++k) {
        const Vector weight = load(row[k] + j);
#pragma GCC unroll 2
        for (int q = 0; q < steps; ++q) results[q * rows + k] += weight * state[q];
      }
    });
    const Vector all = sums(results);
    for (int q = 0; q < steps; ++q) {
      std::memcpy(values(s + q) + i, reinterpret_cast<const float*>(&all) + q * rows, rows * sizeof(float));
    }
  }

  // In panels of as many columns as registers can hold sums for; the last vector of the last one may be broken.
  template <int steps>
  void weigh_steps(Range rows, long s, float* result) {
    constexpr int widest = kSums / steps;
    const long vectors = round_up(r_.units, kWidth) / kWidth, panels = (vectors + widest - 1) / widest;
    for (long p = 0; p < panels; ++p) {
      const Range some = part_of(vectors, panels, p);
      with_constant<widest>(some.size(),
                            [&](auto width) { weigh_columns<steps, width()>(rows, s, some.begin * kWidth, result); });
    }
  }

  template <int steps, int vectors>
  void weigh_columns(Range rows, long s, long j, float* result) {
    constexpr long last = (vectors - 1) * kWidth;
    const long rest = std::min<long>(kWidth, r_.units - j - last);
    const auto read = [rest](const float* p, int v) {
      return v + 1 < vectors ? load(p + v * kWidth) : load_first(p + last, rest);
    };
    float* target[steps];
    Vector totals[steps][vectors];
#pragma GCC unroll 4
    for (int k = 0; k < steps; ++k) {
      target[k] = result + members_[s + k] * r_.units + j;
#pragma GCC unroll 24
      for (int v = 0; v < vectors; ++v) totals[k][v] = read(target[k], v);
    }
    const float *left = values(s), *right = weights(rows.begin) + j;
    const long row = row_, units = r_.units;  // local: a store may alias what is not
    for (long i = rows.begin; i < rows.end; ++i, right += units) {
      Vector weight[vectors];
#pragma GCC unroll 24
      for (int v = 0; v < vectors; ++v) weight[v] = read(right, v);
#pragma GCC unroll 4
      for (int k = 0; k < steps; ++k) {
        const Vector value = broadcast(left[k * row + i]);
#pragma GCC unroll 24
        for (int v = 0; v < vectors; ++v) totals[k][v] += value * weight[v];
      }
    }
#pragma GCC unroll 4
    for (int k = 0; k < steps; ++k) {
#pragma GCC unroll 24
      for (int v = 0; v + 1 < vectors; ++v) store(target[k] + v * kWidth, totals[k][v]);
      store_first(target[k] + last, totals[k][vectors - 1], rest);
    }
  }

  // Few steps share a range: rows are taken whole, two against up to four steps, and come by once from far away.
  template <int rows>
  void add_outer_rows(long i, float* weights) {
    long s = 0;
    for (; s + 4 <= size(); s += 4) add_outer_steps<rows, 4>(i, s, weights);
    if (size() - s == 3) add_outer_steps<rows, 3>(i, s, weights);
    if (size() - s == 2) add_outer_steps<rows, 2>(i, s, weights);
    if (size() - s == 1) add_outer_steps<rows, 1>(i, s, weights);
  }

  template <int rows, int steps>
  void add_outer_steps(long i, long s, float* weights) {
    const float* state[steps];
    float* target[rows];  // all that is read within the loop is local: a store may alias what is not
    Vector factor[rows][steps];
    for (int k = 0; k < steps; ++k) state[k] = hidden(s + k);
    for (int r = 0; r < rows; ++r) {
      target[r] = weights + (i + r) * r_.units;
      for (int k = 0; k < steps; ++k) factor[r][k] = broadcast(values(s + k)[i + r]);
    }
    for_each_vector(r_.units, [&](long j, auto load, auto store) {
      Vector totals[rows];
#pragma GCC unroll 2
      for (int r = 0; r < rows; ++r) totals[r] = load(target[r] + j);
#pragma GCC unroll 4
      for (int k = 0; k < steps; ++k) {
        const Vector states = load(state[k] + j);
#pragma GCC unroll 2
        for (int r = 0; r < rows; ++r) totals[r] += factor[r][k] * states;
      }
#pragma GCC unroll 2
      for (int r = 0; r < rows; ++r) store(target[r] + j, totals[r]);
    });
  }

  static double dot(const float* a, const float* b, long count) {
    double total = 0.0;
    for (long start = 0; start < count; start += 4096) {
      Vector some{};
      for_each_vector(std::min(4096l, count - start),
                      [&](long i, auto load, auto) { some += load(a + start + i) * load(b + start + i); });
      total += sum(some);
    }
    return total;
  }

  const Ranges& r_;
  const std::vector<int32_t>& members_;
  long first_, rows_, row_;
  float* values_;
};

// Steps by range, most work first, so that the last ones handed to threads are short. A range of one row or none has
// nothing to decide: its steps are left out.
std::vector<std::vector<int32_t>> groups_of(const Ranges& r) {
  std::vector<int32_t> order;
  for (long s = 0; s < r.steps; ++s) {
    if (r.start[s] >= 0 && r.stop[s] > r.start[s] + 1l && r.stop[s] <= r.rows) order.push_back(s);  // without overflow
  }
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return r.start[a] < r.start[b]; });
  std::vector<std::vector<int32_t>> groups;
  for (const int32_t s : order) {
    if (groups.empty() || r.start[groups.back()[0]] != r.start[s]) groups.emplace_back();
    groups.back().push_back(s);
  }
  const auto work = [&](const std::vector<int32_t>& g) { return (r.stop[g[0]] - r.start[g[0]]) * g.size(); };
  std::stable_sort(groups.begin(), groups.end(), [&](const auto& a, const auto& b) { return work(a) > work(b); });
  return groups;
}

// body(group, its number) for all groups, on all threads.
template <class Body>
void for_each_group(const Ranges& r, const std::vector<std::vector<int32_t>>& groups, Body body) {
  in_parallel(groups.size(), [&](long g) {
    Scratch scratch;
    Group group(scratch, r, groups[g]);
    body(group, g);
  });
}

// Where the values of each group are kept in a room for so many floats; -1 for those that find no place.
std::vector<long> places_of(const Ranges& r, const std::vector<std::vector<int32_t>>& groups, long capacity) {
  std::vector<long> places;
  long used = 0;
  for (const auto& members : groups) {
    const long extent = Group::extent(r, members);
    places.push_back(used + extent <= capacity ? used : -1);
    if (places.back() >= 0) used += extent;
  }
  return places;
}

}  // namespace

void range_log_prob(const Ranges& r, float* log_prob) {
  std::memset(log_prob, 0, r.steps * sizeof(float));
  for_each_group(r, groups_of(r), [&](Group& group, long) { group.find_gradient(log_prob, nullptr); });
}

double range_gradient(const Ranges& r, const float* scale, float* log_prob, float* hidden_gradient, Room room) {
  std::memset(log_prob, 0, r.steps * sizeof(float));
  std::memset(hidden_gradient, 0, r.steps * r.units * sizeof(float));
  const auto groups = groups_of(r);
  const auto places = places_of(r, groups, room.size);
  std::vector<double> squares(groups.size());
  for_each_group(r, groups, [&](Group& group, long g) {
    group.find_gradient(log_prob, hidden_gradient);
    if (places[g] >= 0) group.save(room.data + places[g]);
    if (scale) squares[g] = group.squares(scale);
  });
  return std::accumulate(squares.begin(), squares.end(), 0.0);
}

void range_add_gradient(const Ranges& r, const float* scale, Room kept, float* weights, float* bias) {
  const auto groups = groups_of(r);
  const auto places = places_of(r, groups, kept.size);
  for_each_group(r, groups, [&](Group& group, long g) {
    places[g] >= 0 ? group.restore(kept.data + places[g]) : group.find_gradient(nullptr, nullptr);
    group.add_outer(scale, weights + group.first() * r.units, bias + group.first());
  });
}

void range_tangent(const Ranges& r, const float* weights, const float* bias, float* log_prob) {
  std::memset(log_prob, 0, r.steps * sizeof(float));
  const auto groups = groups_of(r);
  Ranges moved = r;
  moved.weights = weights;
  for_each_group(r, groups, [&](Group& group, long g) {
    Scratch scratch;
    Group change(scratch, moved, groups[g]);
    change.find_logits();
    group.find_gradient(nullptr, nullptr);
    for (long s = 0; s < group.size(); ++s) {
      Vector total{};
      for_each_vector(group.rows(), [&](long i, auto load, auto) {
        total += load(group.values(s) + i) * (load(change.values(s) + i) + load(bias + group.first() + i));
      });
      log_prob[group.member(s)] = sum(total);
    }
  });
}

}  // namespace longspan
