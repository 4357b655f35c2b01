// One lane through time on two threads: each owns half of the units and waits, after every step, for the other's half
// of the state. The walk starts on the calling thread alone; a partner joins at the next step once it is awake.
#pragma once

#include <atomic>

#include "threads.h"

namespace longspan {

constexpr long kUnitsForTwo = 192;  // below, meeting after every step costs more than half a product

class Duet {
 public:
  explicit Duet(long steps, long units) : steps_(steps), units_(units), half_((units / 2 + 8) / 16 * 16) {}

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
// not throw, since its partner would wait for ever: it takes no memory. (Said by `noexcept`, GCC would also fuse other
// multiplications with additions than before, and old runs would resume to other bits.)
template <class Step>
void walk_in_step(long steps, long units, const Step& step) {
  if (threads() == 1 || units < kUnitsForTwo) {
    for (long t = 0; t < steps; ++t) step(t, 0, units);
    return;
  }
  Duet duet(steps, units);
  in_parallel(2, [&](long part) { part == 0 ? duet.lead(step) : duet.join(step); });
}

}  // namespace longspan
