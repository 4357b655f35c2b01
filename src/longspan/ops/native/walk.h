// What all walks through time share: the lanes they divide among threads, a single lane on two threads, and the state
// that a step starts from.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>

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

}  // namespace longspan
