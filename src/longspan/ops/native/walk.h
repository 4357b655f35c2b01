// What all walks through time share: the lanes they divide among threads, and the state that a step starts from.
#pragma once

#include <algorithm>
#include <cstring>

#include "gemm.h"
#include "kernels.h"
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

// Some neighbouring lanes of a walk. Rows of a step lie `r.units` apart, steps `step` apart.
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

}  // namespace longspan
