// LSTM and GRU through time: forward, tangent, and the tangent's transpose, which walks backwards. As in recurrence.cc
// several lanes share panels of the recurrent matrix packed once for the walk, and one lane reads panels of its own.
#include <cstring>

#include "kernels.h"
#include "products.h"
#include "walk.h"

namespace longspan {
namespace {

void clear_from(const Recurrence& r, long gates, float* steps) {
  const long step = r.lanes * gates * r.units;
  std::memset(steps + r.length * step, 0, (r.time - r.length) * step * sizeof(float));
}

// The pre-activations of one step of one lane, gate after gate.
struct Sums {
  const float* data;
  long stride;

  const float* operator[](long gate) const { return data + gate * stride; }
};

// Where a step of a lane lies in arrays with one value a unit, and where the state before it does, if it was kept.
struct Place {
  long lane, at, before;
  bool first, kept;

  Place(const Lanes& l, long t, long b)
      : lane(l.first + b), at(l.at(t, b)), before(t ? l.at(t - 1, b) : lane * l.r.units), first(t == 0),
        kept(!l.reset(t, b)) {}
};

// The value of a unit before the step, zero where it was dropped.
template <class Load>
Vector value_before(const Place& p, const float* start, const float* steps, long j, Load load) {
  return p.kept ? load((p.first ? start : steps) + p.before + j) : Vector{};
}

// Walks forward. `finish(place, sums, from, to)` turns the state before the step times the recurrent matrix, plus
// inputs if there are any, into what the step leaves behind.
template <int gates, class Finish>
void walk_lanes(const Lanes& l, const float* inputs, const float* start, const float* states, const Finish& finish) {
  Scratch scratch;
  const long units = l.r.units, width = gates * units, row = round_up(width, kWidth);
  float *sums = scratch.take(l.count * row), *room = scratch.take(l.count * units);
  const PackedMatrix recurrent(scratch, {l.r.recurrent, width, 1}, units, width);
  for (long t = 0; t < l.r.length; ++t) {
    const float* previous = l.before(t, start, states, room);
    const Addend base{inputs ? inputs + gates * l.at(t, 0) : nullptr, width};
    if (previous) {
      recurrent.multiply(l.count, in_place({previous, units, 1}), base, sums, row);
    } else {
      for (long b = 0; b < l.count; ++b) {
        if (inputs) std::memcpy(sums + b * row, base.data + b * width, width * sizeof(float));
        if (!inputs) std::memset(sums + b * row, 0, width * sizeof(float));
      }
    }
    for (long b = 0; b < l.count; ++b) finish(Place(l, t, b), Sums{sums + b * row, units}, 0, units);
  }
}

template <int gates, class Finish>
void walk_one(const Lanes& l, const float* inputs, const float* start, const float* states, const Finish& finish) {
  Scratch scratch;
  const long units = l.r.units;
  const PanelMatrix<Whole> recurrent(scratch, l.r.recurrent, units, gates, meeting_point(units));
  float* sums = scratch.take(recurrent.width());
  std::memset(sums, 0, recurrent.width() * sizeof(float));
  walk_in_step(l.r.length, units, [&](long t, long from, long to) {
    const float* previous = l.before(t, start, states, sums);  // a single lane is reset as a whole, and needs no room
    for (long g = 0; g < gates; ++g) {
      float* gate = sums + g * recurrent.padded();
      if (inputs) std::memcpy(gate + from, inputs + gates * l.at(t, 0) + g * units + from, (to - from) * sizeof(float));
      if (!inputs) std::memset(gate + from, 0, (to - from) * sizeof(float));
    }
    if (previous) recurrent.add_product(previous, sums, from, to, t % 2);
    finish(Place(l, t, 0), Sums{sums, recurrent.padded()}, from, to);
  });
}

template <int gates, class Finish>
void walk(const Recurrence& r, const float* inputs, const float* start, const float* states, const Finish& finish) {
  for_each_group_of_lanes(r, [&](const Lanes& lanes) {
    const auto run = lanes.count == 1 ? walk_one<gates, Finish> : walk_lanes<gates, Finish>;
    run(lanes, inputs, start, states, finish);
  });
}

// A row for each lane, padded to whole vectors, zero at first.
struct LaneRows {
  long row;
  float* data;

  LaneRows(Scratch& scratch, const Recurrence& r) : row(round_up(r.units, kWidth)), data(scratch.take(r.lanes * row)) {
    std::memset(data, 0, r.lanes * row * sizeof(float));
  }
  float* of(long lane) const { return data + lane * row; }
  void copy_from(const Recurrence& r, const float* rows) const {
    for (long b = 0; b < r.lanes; ++b) std::memcpy(of(b), rows + b * r.units, r.units * sizeof(float));
  }
  void copy_to(const Recurrence& r, float* rows) const {
    for (long b = 0; b < r.lanes; ++b) std::memcpy(rows + b * r.units, of(b), r.units * sizeof(float));
  }
};

void add(const float* values, float* sums, long from, long to) {
  for_units(from, to, [&](long j, auto load, auto store) { store(sums + j, load(sums + j) + load(values + j)); });
}

// Walks backwards. The errors of the states of a step are its cotangent, what comes through the recurrent matrix from
// `sent`, the errors of the gates of the step after, and what that step left. `finish(place, error, from, to)` turns
// them into those of this step's gates, and leaves what reaches the state before past the matrix.
template <int gates, class Finish>
void adjoint_lanes(const Lanes& l, const LaneRows& errors, const float* cotangent, const float* sent,
                   const Finish& finish) {
  Scratch scratch;
  const long units = l.r.units, width = gates * units;
  float *room = scratch.take(l.count * width), *all = errors.of(l.first);
  const PackedMatrix transposed(scratch, {l.r.recurrent, 1, width}, width, units);
  const auto pull = [&](long t) {
    const long dropped = l.resets(t);
    if (dropped == l.count) return;
    const float* rows = sent + gates * l.at(t, 0);
    if (dropped) {
      std::memcpy(room, rows, l.count * width * sizeof(float));
      for (long b = 0; b < l.count; ++b) {
        if (l.reset(t, b)) std::memset(room + b * width, 0, width * sizeof(float));
      }
      rows = room;
    }
    transposed.multiply(l.count, in_place({rows, width, 1}), {all, errors.row}, all, errors.row);
  };
  for (long t = l.r.length - 1; t >= 0; --t) {
    for (long b = 0; b < l.count; ++b) add(cotangent + l.at(t, b), errors.of(l.first + b), 0, units);
    if (t + 1 < l.r.length) pull(t + 1);
    for (long b = 0; b < l.count; ++b) finish(Place(l, t, b), errors.of(l.first + b), 0, units);
  }
  if (l.r.length > 0) pull(0);
}

template <int gates, class Finish>
void adjoint_one(const Lanes& l, const LaneRows& errors, const float* cotangent, const float* sent,
                 const Finish& finish) {
  Scratch scratch;
  const long units = l.r.units;
  const PanelMatrix<Whole> recurrent(scratch, l.r.recurrent, units, gates, units);
  // One is written while another thread may still read that of the step after.
  float* drives[2] = {scratch.take(recurrent.width()), scratch.take(recurrent.width())};
  for (float* drive : drives) std::memset(drive, 0, recurrent.width() * sizeof(float));
  float* error = errors.of(l.first);
  const auto pull = [&](long t, long from, long to, bool backwards) {
    if (!l.reset(t, 0)) recurrent.add_transposed_product(drives[t % 2], error, from, to, backwards);
  };
  walk_in_step(l.r.length, units, [&](long step, long from, long to) {
    const long t = l.r.length - 1 - step;
    add(cotangent + l.at(t, 0), error, from, to);
    if (step > 0) pull(t + 1, from, to, step % 2);
    finish(Place(l, t, 0), error, from, to);
    for (long g = 0; g < gates; ++g) {
      const float* gate = sent + gates * l.at(t, 0) + g * units;
      std::memcpy(drives[t % 2] + g * recurrent.padded() + from, gate + from, (to - from) * sizeof(float));
    }
  });
  if (l.r.length > 0) pull(0, 0, units, false);
}

template <int gates, class Finish>
void walk_back(const Recurrence& r, const LaneRows& errors, const float* cotangent, const float* sent,
               const Finish& finish) {
  for_each_group_of_lanes(r, [&](const Lanes& lanes) {
    const auto run = lanes.count == 1 ? adjoint_one<gates, Finish> : adjoint_lanes<gates, Finish>;
    run(lanes, errors, cotangent, sent, finish);
  });
}

template <class Function>
void lstm_forward_of(const Recurrence& r, const float* drive, const float* first, const float* first_cell,
                     const float* peepholes, const LstmStates& s) {
  const long units = r.units;
  const float *to_input = peepholes, *to_forget = peepholes + units, *to_output = peepholes + 2 * units;
  walk<4>(r, drive, first, s.hidden, [&](const Place& p, const Sums& sums, long from, long to) {
    float *slope = s.slopes + 4 * p.at, *keep = s.keeps + 2 * p.at;
    for_units(from, to, [&](long j, auto load, auto store) {
      const Vector past = value_before(p, first_cell, s.cells, j, load);
      const Vector input = logistic(load(sums[0] + j) + load(to_input + j) * past);
      const Vector forget = logistic(load(sums[1] + j) + load(to_forget + j) * past);
      const Vector z = load(sums[2] + j), candidate = Function::value(z);
      const Vector cell = forget * past + input * candidate;
      const Vector output = logistic(load(sums[3] + j) + load(to_output + j) * cell), shown = Function::value(cell);
      const Vector by_input = candidate * input * (1.0f - input), by_forget = past * forget * (1.0f - forget);
      const Vector by_output = shown * output * (1.0f - output);
      store(s.hidden + p.at + j, output * shown);
      store(s.cells + p.at + j, cell);
      store(slope + j, by_input);
      store(slope + units + j, by_forget);
      store(slope + 2 * units + j, input * Function::slope(z, candidate));
      store(slope + 3 * units + j, by_output);
      store(keep + j, forget + by_input * load(to_input + j) + by_forget * load(to_forget + j));
      store(keep + units + j, output * Function::slope(cell, shown) + by_output * load(to_output + j));
    });
  });
  clear_from(r, 1, s.hidden), clear_from(r, 1, s.cells), clear_from(r, 4, s.slopes), clear_from(r, 2, s.keeps);
}

template <class Function>
void gru_forward_of(const Recurrence& r, const float* drive, const float* first, const float* candidate_bias,
                    const GruStates& s) {
  const long units = r.units;
  walk<3>(r, nullptr, first, s.hidden, [&](const Place& p, const Sums& sums, long from, long to) {
    const float* input = drive + 3 * p.at;
    float *slope = s.slopes + 3 * p.at, *keep = s.keeps + 2 * p.at;
    for_units(from, to, [&](long j, auto load, auto store) {
      const Vector past = value_before(p, first, s.hidden, j, load);
      const Vector reset = logistic(load(sums[0] + j) + load(input + j));
      const Vector update = logistic(load(sums[1] + j) + load(input + units + j));
      const Vector recurred = load(sums[2] + j) + load(candidate_bias + j);
      const Vector z = load(input + 2 * units + j) + reset * recurred, candidate = Function::value(z);
      const Vector by_drive = (1.0f - update) * Function::slope(z, candidate);
      store(s.hidden + p.at + j, candidate + update * (past - candidate));
      store(slope + j, by_drive * recurred * reset * (1.0f - reset));
      store(slope + units + j, (past - candidate) * update * (1.0f - update));
      store(slope + 2 * units + j, by_drive * reset);
      store(keep + j, update);
      store(keep + units + j, by_drive);
    });
  });
  clear_from(r, 1, s.hidden), clear_from(r, 3, s.slopes), clear_from(r, 2, s.keeps);
}

}  // namespace

void lstm_forward(const Recurrence& r, Activation activation, const float* drive, const float* first,
                  const float* first_cell, const float* peepholes, const LstmStates& states) {
  const auto run = activation == Activation::tanh      ? lstm_forward_of<HyperbolicTangent>
                   : activation == Activation::sigmoid ? lstm_forward_of<Logistic>
                                                       : lstm_forward_of<Rectifier>;
  run(r, drive, first, first_cell, peepholes, states);
}

void lstm_tangent(const Recurrence& r, const float* slopes, const float* keeps, const float* drive, const float* first,
                  const float* first_cell, float* hidden, float* last_cell) {
  const long units = r.units;
  std::memcpy(last_cell, first_cell, r.lanes * units * sizeof(float));
  walk<4>(r, drive, first, hidden, [&](const Place& p, const Sums& sums, long from, long to) {
    const float *slope = slopes + 4 * p.at, *keep = keeps + 2 * p.at;
    float* cell = last_cell + p.lane * units;
    for_units(from, to, [&](long j, auto load, auto store) {
      const auto through = [&](long g) { return load(slope + g * units + j) * load(sums[g] + j); };
      const Vector past = p.kept ? load(keep + j) * load(cell + j) : Vector{};
      const Vector changed = past + through(0) + through(1) + through(2);
      store(cell + j, changed);
      store(hidden + p.at + j, load(keep + units + j) * changed + through(3));
    });
  });
  clear_from(r, 1, hidden);
}

void lstm_adjoint(const Recurrence& r, const float* slopes, const float* keeps, const float* hidden,
                  const float* last_cell, float* drive, float* first, float* first_cell) {
  Scratch scratch;
  const long units = r.units;
  const LaneRows errors(scratch, r), cells(scratch, r);
  cells.copy_from(r, last_cell);
  walk_back<4>(r, errors, hidden, drive, [&](const Place& p, float* error, long from, long to) {
    const float *slope = slopes + 4 * p.at, *keep = keeps + 2 * p.at;
    float *result = drive + 4 * p.at, *cell = cells.of(p.lane);
    for_units(from, to, [&](long j, auto load, auto store) {
      const Vector shown = load(error + j), inside = load(cell + j) + load(keep + units + j) * shown;
      for (long g = 0; g < 3; ++g) store(result + g * units + j, load(slope + g * units + j) * inside);
      store(result + 3 * units + j, load(slope + 3 * units + j) * shown);
      store(cell + j, p.kept ? load(keep + j) * inside : Vector{});
      store(error + j, Vector{});
    });
  });
  errors.copy_to(r, first);
  cells.copy_to(r, first_cell);
  clear_from(r, 4, drive);
}

void gru_forward(const Recurrence& r, Activation activation, const float* drive, const float* first,
                 const float* candidate_bias, const GruStates& states) {
  const auto run = activation == Activation::tanh      ? gru_forward_of<HyperbolicTangent>
                   : activation == Activation::sigmoid ? gru_forward_of<Logistic>
                                                       : gru_forward_of<Rectifier>;
  run(r, drive, first, candidate_bias, states);
}

void gru_tangent(const Recurrence& r, const float* slopes, const float* keeps, const float* drive,
                 const float* recurrent_drive, const float* first, float* hidden) {
  const long units = r.units;
  walk<3>(r, recurrent_drive, first, hidden, [&](const Place& p, const Sums& sums, long from, long to) {
    const float *slope = slopes + 3 * p.at, *keep = keeps + 2 * p.at, *input = drive + 3 * p.at;
    for_units(from, to, [&](long j, auto load, auto store) {
      const auto gate = [&](long g) {
        return load(slope + g * units + j) * (load(sums[g] + j) + load(input + g * units + j));
      };
      const Vector past = load(keep + j) * value_before(p, first, hidden, j, load);
      const Vector candidate = load(slope + 2 * units + j) * load(sums[2] + j);
      const Vector driven = load(keep + units + j) * load(input + 2 * units + j);
      store(hidden + p.at + j, past + gate(0) + gate(1) + candidate + driven);
    });
  });
  clear_from(r, 1, hidden);
}

void gru_adjoint(const Recurrence& r, const float* slopes, const float* keeps, const float* hidden, float* drive,
                 float* recurrent_drive, float* first) {
  Scratch scratch;
  const long units = r.units;
  const LaneRows errors(scratch, r);
  walk_back<3>(r, errors, hidden, recurrent_drive, [&](const Place& p, float* error, long from, long to) {
    const float *slope = slopes + 3 * p.at, *keep = keeps + 2 * p.at;
    float *through = recurrent_drive + 3 * p.at, *result = drive + 3 * p.at;
    for_units(from, to, [&](long j, auto load, auto store) {
      const Vector value = load(error + j);
      for (long g = 0; g < 2; ++g) {
        const Vector gate = load(slope + g * units + j) * value;
        store(through + g * units + j, gate);
        store(result + g * units + j, gate);
      }
      store(through + 2 * units + j, load(slope + 2 * units + j) * value);
      store(result + 2 * units + j, load(keep + units + j) * value);
      store(error + j, p.kept ? load(keep + j) * value : Vector{});
    });
  });
  errors.copy_to(r, first);
  clear_from(r, 3, drive), clear_from(r, 3, recurrent_drive);
}

}  // namespace longspan
