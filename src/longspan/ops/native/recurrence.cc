// The leaky recurrence through time: forward, its tangent, and the tangent's transpose, which walks backwards. Several
// lanes share panels of U packed once for the whole walk, and threads divide the lanes. One lane has panels of another
// kind, and two threads may divide the units, meeting after every step.
#include <cstring>

#include "kernels.h"
#include "products.h"
#include "walk.h"

namespace longspan {
namespace {

// Walks forward. `finish(at, previous or nullptr, sums, from, to)` turns previous U + inputs into the new state.
template <class Finish>
void walk_lanes(const Lanes& l, const float* inputs, const float* start, float* states, Finish finish) {
  Scratch scratch;
  const long units = l.r.units, row = round_up(units, kWidth);
  float *sums = scratch.take(l.count * row), *room = scratch.take(l.count * units);
  RecurrentLanes recurrent(scratch, l, {l.r.recurrent, units, 1});
  for (long t = 0; t < l.r.length; ++t) {
    const float* previous = l.before(t, start, states, room);
    const Addend base{inputs + l.at(t, 0), units};
    if (previous) {
      recurrent.multiply(previous, base, sums, row);
    } else {
      for (long b = 0; b < l.count; ++b) std::memcpy(sums + b * row, base.data + b * units, units * sizeof(float));
    }
    for (long b = 0; b < l.count; ++b) {
      finish(l.at(t, b), previous ? previous + b * units : nullptr, sums + b * row, 0, units);
    }
  }
}

template <class Storage, class Finish>
void walk_one(const Lanes& l, const float* inputs, const float* start, float* states, Finish finish) {
  Scratch scratch;
  const long units = l.r.units;
  const long padded = round_up(units, kWidth);
  float* sums = scratch.take(padded);
  std::memset(sums, 0, padded * sizeof(float));
  RecurrentMatrix<Storage> recurrent(scratch, l.r, meeting_point(units));
  walk_in_step(l.r.length, units, [&](long t, long from, long to) {
    const float* previous = l.before(t, start, states, sums);  // a single lane is reset as a whole, and needs no room
    std::memcpy(sums + from, inputs + l.at(t, 0) + from, (to - from) * sizeof(float));
    if (previous) recurrent.add_product(previous, sums, from, to, t % 2);
    finish(l.at(t, 0), previous, sums, from, to);
  });
}

template <class Finish>
void walk(const Recurrence& r, const float* inputs, const float* start, float* states, Finish finish) {
  for_each_group_of_lanes(r, [&](const Lanes& lanes) {
    const auto run = lanes.count > 1 ? walk_lanes<Finish>
                     : r.bfloat16    ? walk_one<Halved, Finish>
                                     : walk_one<Whole, Finish>;
    run(lanes, inputs, start, states, finish);
  });
  std::memset(states + r.length * r.lanes * r.units, 0, (r.time - r.length) * r.lanes * r.units * sizeof(float));
}

template <class Function>
void forward(const Recurrence& r, const float* drive, const float* first, float* hidden, float* gain) {
  walk(r, drive, first, hidden, [&](long at, const float* previous, const float* sums, long from, long to) {
    for_units(from, to, [&](long j, auto load, auto store) {
      const Vector leak = load(r.leak + j), z = longspan::load(sums + j), value = Function::value(z);
      const Vector kept = previous ? leak * load(previous + j) : Vector{};
      store(hidden + at + j, kept + (1.0f - leak) * value);
      store(gain + at + j, (1.0f - leak) * Function::slope(z, value));
    });
  });
  std::memset(gain + r.length * r.lanes * r.units, 0, (r.time - r.length) * r.lanes * r.units * sizeof(float));
}

// What the walk backwards carries from a step to the one before it, padded rows.
struct Errors {
  long row, size;
  float* hidden;     // with respect to the state
  float* drives[2];  // the same through the gain: what flows on through U^T. One is written while another thread may
                     // still read the one of the step after.

  Errors(Scratch& scratch, const Lanes& l) : row(round_up(l.r.units, kWidth)), size(l.count * row) {
    hidden = scratch.take(3 * size);
    drives[0] = hidden + size;
    drives[1] = hidden + 2 * size;
    std::memset(hidden, 0, 3 * size * sizeof(float));
  }

  float* drive(long t) { return drives[t % 2]; }

  // Errors of step t in the units [from, to), before what comes through U^T.
  void receive(const Lanes& l, long t, const float* cotangent, const Penalty& penalty, long from, long to) {
    const bool last = t == l.r.length - 1;
    for (long b = 0; b < l.count; ++b) {
      const float *incoming = cotangent + l.at(t, b), *leak = l.r.leak;
      float* error = hidden + b * row;
      const bool alone = last || l.reset(t + 1, b);
      for_units(from, to, [&](long j, auto load, auto) {
        store(error + j, alone ? load(incoming + j) : load(incoming + j) + load(leak + j) * longspan::load(error + j));
      });
      if (penalty.hidden) {
        add_slope(penalty.hidden + l.at(t, b), penalty.weight[t * l.r.lanes + l.first + b], error, from, to);
      }
    }
  }

  // The derivative of weight |state|, which is zero at zero.
  static void add_slope(const float* state, float weight, float* error, long from, long to) {
    for_units(from, to, [&](long j, auto load, auto) {
      const Vector h = load(state + j), slope = h > 0.0f ? broadcast(weight) : h < 0.0f ? broadcast(-weight) : Vector{};
      store(error + j, longspan::load(error + j) + slope);
    });
  }

  void pass_gain(const Lanes& l, long t, const float* gain, float* result, long from, long to) {
    for (long b = 0; b < l.count; ++b) {
      const long at = l.at(t, b);
      const bool dropped = l.reset(t, b);
      for_units(from, to, [&](long j, auto load, auto store) {
        const Vector value = load(gain + at + j) * longspan::load(hidden + b * row + j);
        store(result + at + j, value);
        store(drive(t) + b * row + j, dropped ? Vector{} : value);
      });
    }
  }
};

void adjoint_lanes(const Lanes& l, const float* gain, const float* cotangent, const Penalty& penalty, float* result) {
  Scratch scratch;
  const long units = l.r.units;
  Errors errors(scratch, l);
  RecurrentLanes recurrent(scratch, l, {l.r.recurrent, 1, units});
  for (long t = l.r.length - 1; t >= 0; --t) {
    errors.receive(l, t, cotangent, penalty, 0, units);
    if (t + 1 < l.r.length && l.resets(t + 1) < l.count) {
      recurrent.add_transposed_product(errors.drive(t + 1), gain, t, errors.hidden, errors.row);
    }
    errors.pass_gain(l, t, gain, result, 0, units);
  }
}

template <class Storage>
void adjoint_one(const Lanes& l, const float* gain, const float* cotangent, const Penalty& penalty, float* result) {
  Scratch scratch;
  Errors errors(scratch, l);
  RecurrentMatrix<Storage> recurrent(scratch, l.r, l.r.units);
  walk_in_step(l.r.length, l.r.units, [&](long step, long from, long to) {
    const long t = l.r.length - 1 - step;
    errors.receive(l, t, cotangent, penalty, from, to);
    if (step > 0 && !l.reset(t + 1, 0)) {
      recurrent.add_transposed_product(errors.drive(t + 1), errors.hidden, gain + l.at(t, 0), l.r.leak, from, to,
                                       step % 2);
    }
    errors.pass_gain(l, t, gain, result, from, to);
  });
}

}  // namespace

void recurrence_forward(const Recurrence& r, Activation activation, const float* drive, const float* first,
                        float* hidden, float* gain) {
  const auto run = activation == Activation::tanh      ? forward<HyperbolicTangent>
                   : activation == Activation::sigmoid ? forward<Logistic>
                                                       : forward<Rectifier>;
  run(r, drive, first, hidden, gain);
}

void recurrence_tangent(const Recurrence& r, const float* gain, const float* drive_tangent, float* hidden_tangent) {
  walk(r, drive_tangent, nullptr, hidden_tangent,
       [&](long at, const float* previous, const float* sums, long from, long to) {
         for_units(from, to, [&](long j, auto load, auto store) {
           const Vector kept = previous ? load(r.leak + j) * load(previous + j) : Vector{};
           store(hidden_tangent + at + j, kept + load(gain + at + j) * longspan::load(sums + j));
         });
       });
}

void recurrence_adjoint(const Recurrence& r, const float* gain, const float* hidden_cotangent, float* drive_cotangent,
                        const Penalty& penalty) {
  for_each_group_of_lanes(r, [&](const Lanes& lanes) {
    const auto run = lanes.count > 1 ? adjoint_lanes : r.bfloat16 ? adjoint_one<Halved> : adjoint_one<Whole>;
    run(lanes, gain, hidden_cotangent, penalty, drive_cotangent);
  });
  std::memset(drive_cotangent + r.length * r.lanes * r.units, 0,
              (r.time - r.length) * r.lanes * r.units * sizeof(float));
}

void recurrence_product(const Recurrence& r, long columns, const float* first, const float* hidden,
                        const float* weights, float* y) {
  const long step = r.lanes * columns;
  for_previous_states(r, first, hidden, [&](long t, long steps, const float* previous) {
    affine({steps * r.lanes, steps * r.lanes, r.units, columns}, previous, weights, nullptr, y + t * step);
  });
  std::memset(y + r.length * step, 0, (r.time - r.length) * step * sizeof(float));
}

void recurrence_outer(const Recurrence& r, long columns, const float* first, const float* hidden,
                      const float* cotangent, float* weights) {
  bool begun = false;  // whether `weights` hold something
  const auto clear = [&] { std::memset(weights, 0, r.units * columns * sizeof(float)); };
  for_previous_states(r, first, hidden, [&](long t, long steps, const float* previous) {
    const long rows = steps * r.lanes;
    const float* errors = cotangent + t * r.lanes * columns;
    if (is_sparse(rows, previous, r.units, errors, columns)) {
      if (!begun) clear();
      add_sparse_outer(rows, previous, r.units, errors, columns, weights);
    } else {
      outer({rows, rows, r.units, columns}, previous, errors, weights, begun);
    }
    begun = true;
  });
  if (!begun) clear();
}

}  // namespace longspan
