// Logits along the paths of a tree: every step has a hidden vector and names a few rows of one large matrix.
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels.h"
#include "simd.h"
#include "threads.h"

namespace longspan {
namespace {

constexpr int kRows = 4;  // of the matrix against one hidden vector: enough sums to hide the latency of an addition

// The nodes of one step that there are, and where in its path each stands.
struct Path {
  long count = 0;
  long *row, *place;

  Path(Scratch& scratch, const Paths& p) : row(scratch.take<long>(p.depth)), place(scratch.take<long>(p.depth)) {}

  void read(const Paths& p, long step) {
    count = 0;
    for (long d = 0; d < p.depth; ++d) {
      const long node = p.nodes[step * p.depth + d];
      if (node >= 0) row[count] = std::min(node, p.rows - 1), place[count++] = d;
    }
  }
};

// body(step, its path) for all steps, on all threads.
template <class Body>
void for_each_step(const Paths& p, Body body) {
  const long parts = std::min(p.steps, parts_for(p.steps * p.depth * p.units));
  in_parallel(parts, [&](long part) {
    Scratch scratch;
    Path path(scratch, p);
    const Range steps = part_of(p.steps, parts, part);
    for (long step = steps.begin; step < steps.end; ++step) {
      path.read(p, step);
      body(step, path);
    }
  });
}

// One use of a node: the step whose hidden vector is multiplied by `factor`.
struct Use {
  const float* hidden;
  float factor;
};

// Where each node is used, node after node. They are found by a table of open addressing, since a chunk uses a few
// hundred nodes of a tree that may have a million, and sorting them would take longer than all the arithmetic.
class Uses {
 public:
  Uses(Scratch& scratch, const Paths& p, const float* hidden, const float* cotangent) {
    const long entries = p.steps * p.depth;
    long size = 64;
    while (size < 2 * entries) size *= 2;
    int32_t *slots = scratch.take<int32_t>(size), *group_of = scratch.take<int32_t>(entries);
    std::fill(slots, slots + size, -1);
    std::vector<long> counts;
    for (long i = 0; i < entries; ++i) {
      if (p.nodes[i] < 0) continue;
      const int32_t node = static_cast<int32_t>(std::min<long>(p.nodes[i], p.rows - 1));
      unsigned slot = static_cast<unsigned>(node) * 2654435769u & (size - 1);
      while (slots[slot] >= 0 && nodes_[slots[slot]] != node) slot = (slot + 1) & (size - 1);
      if (slots[slot] < 0) {
        slots[slot] = static_cast<int32_t>(nodes_.size());
        nodes_.push_back(node);
        counts.push_back(0);
      }
      group_of[i] = slots[slot];
      ++counts[slots[slot]];
    }
    firsts_.assign(1, 0);
    for (const long count : counts) firsts_.push_back(firsts_.back() + count);
    std::vector<long> place(firsts_.begin(), firsts_.end() - 1);
    uses_ = scratch.take<Use>(firsts_.back() + 1);
    for (long i = 0; i < entries; ++i) {
      if (p.nodes[i] >= 0) uses_[place[group_of[i]]++] = {hidden + i / p.depth * p.units, cotangent[i]};
    }
  }

  long size() const { return nodes_.size(); }
  long total() const { return firsts_.back(); }
  long node(long group) const { return nodes_[group]; }

  struct Some {
    const Use *first, *last;
    const Use* begin() const { return first; }
    const Use* end() const { return last; }
  };
  Some of(long group) const { return {uses_ + firsts_[group], uses_ + firsts_[group + 1]}; }

 private:
  std::vector<int32_t> nodes_;
  std::vector<long> firsts_;
  Use* uses_;
};

// body(part, group) for every node in use, on all threads; what one part does is done in order.
template <class Body>
void for_each_group(const Uses& uses, long parts, Body body) {
  in_parallel(parts, [&](long part) {
    const Range groups = part_of(uses.size(), parts, part);
    for (long group = groups.begin; group < groups.end; ++group) body(part, group);
  });
}

}  // namespace

void path_logits(const Paths& p, const float* hidden, const float* weights, const float* bias, float* logits) {
  for_each_step(p, [&](long step, const Path& path) {
    const float* state = hidden + step * p.units;
    float* result = logits + step * p.depth;
    std::memset(result, 0, p.depth * sizeof(float));
    for (long first = 0; first < path.count; first += kWidth) {
      const long count = std::min<long>(kWidth, path.count - first);
      Vector products[kWidth] = {};
      for (long i = 0; i < count; i += kRows) {
        const float* row[kRows];
        for (int k = 0; k < kRows; ++k) row[k] = weights + path.row[first + std::min(i + k, count - 1)] * p.units;
        Vector totals[kRows] = {};
        for_each_vector(p.units, [&](long j, auto load, auto) {
          const Vector states = load(state + j);
#pragma GCC unroll 4
          for (int k = 0; k < kRows; ++k) totals[k] += states * load(row[k] + j);
        });
        for (int k = 0; k < kRows; ++k) products[i + k] = totals[k];
      }
      const Vector all = sums(products);
      for (long i = 0; i < count; ++i) result[path.place[first + i]] = all[i] + bias[path.row[first + i]];
    }
  });
}

void path_hidden(const Paths& p, const float* weights, const float* cotangent, float* hidden) {
  for_each_step(p, [&](long step, const Path& path) {
    const float* factor = cotangent + step * p.depth;
    float* result = hidden + step * p.units;
    for_each_vector(p.units, [&](long j, auto load, auto store) {
      Vector total{};
      for (long i = 0; i < path.count; ++i) {
        total += factor[path.place[i]] * load(weights + path.row[i] * p.units + j);
      }
      store(result + j, total);
    });
  });
}

double path_squares(const Paths& p, const float* hidden, const float* cotangent) {
  Scratch scratch;
  const Uses uses(scratch, p, hidden, cotangent);
  const long parts = parts_for(uses.total() * p.units);
  std::vector<double> totals(parts, 0.0);
  for_each_group(uses, parts, [&](long part, long group) {
    Vector squares{};
    for_each_vector(p.units, [&](long j, auto load, auto) {
      Vector row{};
      for (const Use& use : uses.of(group)) row += use.factor * load(use.hidden + j);
      squares += row * row;
    });
    float bias = 0.0f;
    for (const Use& use : uses.of(group)) bias += use.factor;
    totals[part] += sum(squares) + bias * bias;
  });
  double total = 0.0;
  for (const double part : totals) total += part;
  return total;
}

void path_add_gradient(const Paths& p, const float* hidden, const float* cotangent, float* weights, float* bias) {
  Scratch scratch;
  const Uses uses(scratch, p, hidden, cotangent);
  for_each_group(uses, parts_for(uses.total() * p.units), [&](long, long group) {
    const long node = uses.node(group);
    float* row = weights + node * p.units;
    for_each_vector(p.units, [&](long j, auto load, auto store) {
      Vector total = load(row + j);
      for (const Use& use : uses.of(group)) total += use.factor * load(use.hidden + j);
      store(row + j, total);
    });
    for (const Use& use : uses.of(group)) bias[node] += use.factor;
  });
}

}  // namespace longspan
