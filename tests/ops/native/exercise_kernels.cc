// Calls every kernel at odd sizes with buffers of exactly the right length, to be run under the address and
// undefined-behavior sanitizers; tests/ops/test_memory.py builds and runs it. Numbers are checked elsewhere.
// With the argument "short" it takes the sizes at which vectors break, on one thread and on two.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels.h"
#include "simd.h"
#include "threads.h"

using namespace longspan;

namespace {

uint32_t state = 1;
uint32_t next() { return state = state * 1664525u + 1013904223u; }
long below(long bound) { return bound ? static_cast<long>(next() >> 8) % bound : 0; }

// Every hundredth number is not finite: kernels must not let one decide where they read or write.
float number() {
  const long kind = below(300);
  return kind == 0 ? NAN : kind == 1 ? INFINITY : kind == 2 ? -INFINITY : below(2001) / 1000.0f - 1.0f;
}

struct Floats : std::vector<float> {
  explicit Floats(long count) : std::vector<float>(count) {
    for (float& value : *this) value = number();
  }
};

struct Flags {
  explicit Flags(long count) : data(new bool[count]) {
    for (long i = 0; i < count; ++i) data[i] = below(4) == 0;
  }
  std::unique_ptr<bool[]> data;
};

template <class T>
std::vector<T> integers(long count, long bound) {
  std::vector<T> found(count);
  for (T& value : found) value = static_cast<T>(below(bound));
  return found;
}

void recurrence(long time, long lanes, long units, long length) {
  const long steps = time * lanes;
  Floats recurrent(units * units), leak(units), drive(steps * units), first(lanes * units), weight(steps);
  Floats hidden(steps * units), gain(steps * units), result(steps * units), square(units * units);
  Flags resets(steps);
  const Recurrence r{time, lanes, units, length, recurrent.data(), leak.data(), resets.data.get()};
  Recurrence halved = r;
  halved.bfloat16 = true;
  recurrence_forward(halved, Activation::tanh, drive.data(), first.data(), hidden.data(), gain.data());
  recurrence_tangent(halved, gain.data(), drive.data(), result.data());
  recurrence_adjoint(halved, gain.data(), drive.data(), result.data());
  for (const Activation f : {Activation::tanh, Activation::sigmoid, Activation::rectifier}) {
    recurrence_forward(r, f, drive.data(), first.data(), hidden.data(), gain.data());
  }
  recurrence_tangent(r, gain.data(), drive.data(), result.data());
  recurrence_adjoint(r, gain.data(), drive.data(), result.data());
  recurrence_adjoint(r, gain.data(), drive.data(), result.data(), {hidden.data(), weight.data()});
  recurrence_product(r, units, first.data(), hidden.data(), recurrent.data(), result.data());
  recurrence_outer(r, units, first.data(), hidden.data(), drive.data(), square.data());
  for (Floats* mostly_zeros : {&leak, &first, &gain, &hidden}) {
    for (float& value : *mostly_zeros) value = below(20) ? 0.0f : value;
  }
  for (float& value : drive) value = below(20) ? -9.0f : value;
  Floats other(steps * units);
  recurrence_forward(r, Activation::rectifier, drive.data(), first.data(), result.data(), other.data());
  recurrence_tangent(r, gain.data(), drive.data(), result.data());
  recurrence_adjoint(r, gain.data(), drive.data(), result.data());
  recurrence_outer(r, units, first.data(), hidden.data(), gain.data(), square.data());
}

void gated(long time, long lanes, long units, long length) {
  const long steps = time * lanes * units, state = lanes * units;
  Floats recurrent(4 * units * units), drive(4 * steps), first(state), first_cell(state), peepholes(3 * units);
  Floats hidden(steps), cells(steps), slopes(4 * steps), keeps(2 * steps), result(4 * steps), wide(4 * units * units);
  Flags resets(time * lanes);
  const Recurrence r{time, lanes, units, length, recurrent.data(), nullptr, resets.data.get()};
  const LstmStates of_lstm{hidden.data(), cells.data(), slopes.data(), keeps.data()};
  for (const Activation f : {Activation::tanh, Activation::sigmoid, Activation::rectifier}) {
    lstm_forward(r, f, drive.data(), first.data(), first_cell.data(), peepholes.data(), of_lstm);
  }
  lstm_tangent(r, slopes.data(), keeps.data(), drive.data(), first.data(), first_cell.data(), hidden.data(),
               cells.data());
  lstm_adjoint(r, slopes.data(), keeps.data(), hidden.data(), first_cell.data(), result.data(), first.data(),
               first_cell.data());
  recurrence_product(r, 4 * units, first.data(), hidden.data(), recurrent.data(), result.data());
  recurrence_outer(r, 4 * units, first.data(), hidden.data(), result.data(), wide.data());
  Floats square(3 * units * units), drives(3 * steps), through(3 * steps), gates(3 * steps), bias(units);
  const Recurrence g{time, lanes, units, length, square.data(), nullptr, resets.data.get()};
  for (const Activation f : {Activation::tanh, Activation::sigmoid, Activation::rectifier}) {
    gru_forward(g, f, drives.data(), first.data(), bias.data(), {hidden.data(), gates.data(), keeps.data()});
  }
  gru_tangent(g, gates.data(), keeps.data(), drives.data(), through.data(), first.data(), hidden.data());
  gru_adjoint(g, gates.data(), keeps.data(), hidden.data(), drives.data(), through.data(), first.data());
}

void products(long rows, long all_rows, long inputs, long outputs) {
  const Affine a{rows, all_rows, inputs, outputs};
  Floats x(all_rows * inputs), weights(inputs * outputs), bias(outputs), y(all_rows * outputs);
  affine(a, x.data(), weights.data(), bias.data(), y.data());
  affine(a, x.data(), weights.data(), nullptr, y.data());
  affine_input_cotangent(a, weights.data(), y.data(), x.data());
  affine_weight_cotangent(a, x.data(), y.data(), weights.data(), bias.data());
  const auto keys = integers<uint8_t>(all_rows * inputs, 2);
  sum_rows(a, keys.data(), weights.data(), bias.data(), y.data());
  add_to_rows(a, keys.data(), y.data(), weights.data(), bias.data());
  const auto symbols = integers<int32_t>(all_rows, inputs + 3);  // also some that do not exist
  sum_rows(a, symbols.data(), weights.data(), bias.data(), y.data());
  add_to_rows(a, symbols.data(), y.data(), weights.data(), bias.data());
  const SelectedRows selected{all_rows, inputs, outputs, symbols.data(), y.data()};
  selected_squares(selected);
  add_selected(selected, 0.5f, weights.data());
}

// A matrix whose rows lag, in a walk and in products, with states and errors that are dense and that are sparse.
void lagging(long lanes, long units, long outputs) {
  const long time = 4, length = 3, steps = time * lanes;
  Floats weights(units * units), velocity(units * units), momenta(10), leak(units), bias(outputs), weight(steps);
  Floats drive(steps * units), first(lanes * units), hidden(steps * units), gain(steps * units), result(steps * units);
  Floats gradient(units * units), errors(steps * outputs), y(steps * outputs), by_outputs(units * outputs);
  Floats readout(units * outputs), readout_velocity(units * outputs);
  std::vector<int32_t> moved = integers<int32_t>(units, 4), read = moved;
  std::unique_ptr<bool[]> reached(new bool[units]);
  Flags resets(steps);
  const Affine a{length * lanes, steps, units, outputs};
  for (const long one_in : {1, 20}) {
    for (float& value : leak) value = 0.0f;
    for (Floats* some : {&first, &hidden, &errors}) {
      for (float& value : *some) value = below(one_in) ? 0.0f : value;
    }
    for (float& value : drive) value = below(one_in) ? -9.0f : value;
    const Lagging m{units, units, weights.data(), velocity.data(), moved.data(), momenta.data(), 4};
    const Lagging output{units, outputs, readout.data(), readout_velocity.data(), read.data(), momenta.data(), 4};
    Recurrence r{time, lanes, units, length, weights.data(), leak.data(), resets.data.get()};
    r.lagging = &m;
    recurrence_forward(r, Activation::rectifier, drive.data(), first.data(), result.data(), gain.data());
    recurrence_adjoint(r, gain.data(), drive.data(), result.data(), {hidden.data(), weight.data()});
    outer_rows({length * lanes, units, units, hidden.data(), result.data()}, gradient.data(), reached.get());
    descend_rows(m, gradient.data(), reached.get(), 0.1f, 0.2f);
    lagging_product(a, output, hidden.data(), bias.data(), y.data());
    product_transposed_where(a, readout.data(), errors.data(), hidden.data(), result.data());
    outer_rows({length * lanes, units, outputs, hidden.data(), errors.data()}, by_outputs.data(), reached.get());
    descend_rows(output, by_outputs.data(), reached.get(), 0.1f, 0.2f);
    for (int32_t& count : moved) count = std::min(count, 4);
    for (int32_t& count : read) count = std::min(count, 4);
    catch_up(m);
  }
}

void losses(long rows, long outputs) {
  Floats logits(rows * outputs), weight(rows), loss(rows), gradient(rows * outputs);
  const Loss shape{rows, outputs, weight.data()};
  const auto keys = integers<uint8_t>(rows * outputs, 2);
  const auto symbols = integers<int32_t>(rows, outputs);
  for (float* wanted : {static_cast<float*>(nullptr), gradient.data()}) {
    bernoulli_loss(shape, logits.data(), keys.data(), loss.data(), wanted);
    softmax_loss(shape, logits.data(), symbols.data(), loss.data(), wanted);
  }
}

void nade(long rows, long all_rows, long keys, long hidden, long one_in) {
  const Nade shape{rows, all_rows, keys, hidden};
  Floats visible(all_rows * keys), bias(all_rows * hidden), weights(keys * hidden), readout(hidden * keys);
  Floats logits(all_rows * keys), by_bias(all_rows * hidden), by_weights(keys * hidden), by_readout(hidden * keys);
  const NadeParameters p{visible.data(), bias.data(), weights.data(), readout.data()};
  std::vector<uint8_t> targets(all_rows * keys);
  for (uint8_t& on : targets) on = below(one_in) == 0;
  nade_logits(shape, p, targets.data(), logits.data());
  nade_tangent(shape, p, targets.data(), p, logits.data());
  nade_adjoint(shape, p, targets.data(), logits.data(), {by_bias.data(), by_weights.data(), by_readout.data()});
}

void ranges(long steps, long rows, long units, long classes) {
  Floats hidden(steps * units), weights(rows * units), bias(rows), scale(steps), log_prob(steps);
  Floats gradient(steps * units), room(steps * rows);
  std::vector<int32_t> target(steps), start(steps), stop(steps);
  for (long s = 0; s < steps; ++s) {
    const long c = below(classes);
    start[s] = static_cast<int32_t>(rows * c / classes);
    stop[s] = static_cast<int32_t>(rows * (c + 1) / classes);
    target[s] = static_cast<int32_t>(start[s] + below(stop[s] - start[s]));
  }
  const Ranges r{steps,       rows,          units,        hidden.data(), weights.data(),
                 bias.data(), target.data(), start.data(), stop.data()};
  range_log_prob(r, log_prob.data());
  range_tangent(r, weights.data(), bias.data(), log_prob.data());
  for (const long size : {0l, steps * rows / 2, steps * rows}) {
    const Room kept{room.data(), size};
    range_gradient(r, scale.data(), log_prob.data(), gradient.data(), kept);
    range_add_gradient(r, scale.data(), kept, weights.data(), bias.data());
  }
}

void paths(long steps, long depth, long rows, long units) {
  Floats hidden(steps * units), weights(rows * units), bias(rows), logits(steps * depth), by_hidden(steps * units);
  std::vector<int32_t> nodes(steps * depth);
  for (int32_t& node : nodes) node = static_cast<int32_t>(below(rows + 2)) - 1;  // none, and one too many
  const Paths p{steps, depth, rows, units, nodes.data()};
  path_logits(p, hidden.data(), weights.data(), bias.data(), logits.data());
  path_hidden(p, weights.data(), logits.data(), by_hidden.data());
  path_squares(p, hidden.data(), logits.data());
  path_add_gradient(p, hidden.data(), logits.data(), weights.data(), bias.data());
}

void chains(long count, long keys, long units, long levels) {
  Floats weights(keys * units), visible(count * keys), hidden(count * units), strengths(levels);
  Floats frames(count * keys), log_weight(count);
  const auto start = integers<uint8_t>(count * keys, 2);
  const std::vector<uint32_t> seed{next(), next()};
  const Machines m{count, keys, units, weights.data(), visible.data(), hidden.data()};
  const Levels l{levels, strengths.data(), seed.data()};
  gibbs_walk(m, l, start.data(), frames.data());
  annealed_walk(m, l, start.data(), frames.data(), log_weight.data());
}

void update(std::initializer_list<long> sizes) {
  for (const bool moving : {false, true}) {
    std::vector<Floats> parameters, velocities, gradients;
    for (const long size : sizes) {
      parameters.emplace_back(size), velocities.emplace_back(size), gradients.emplace_back(size);
    }
    std::vector<Leaf> leaves;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      float* velocity = moving ? velocities[i].data() : nullptr;
      leaves.push_back({static_cast<long>(parameters[i].size()), parameters[i].data(), velocity, gradients[i].data(),
                        parameters[i].data(), velocity});
    }
    clip_nesterov(leaves, {0.1f, 1.0f, 0.5f, 0.9f, 0.9f});
  }
}

// An exception on any thread reaches the caller, after all parts are done.
bool failures_arrive() {
  std::atomic<long> done{0};
  try {
    in_parallel(8, [&](long part) {
      ++done;
      if (part % 3 == 1) throw std::runtime_error("expected");
    });
  } catch (const std::runtime_error&) {
    return done == 8;
  }
  return false;
}

}  // namespace

int main(int count, char** arguments) {
  const FlushDenormals guard;
  const bool short_form = count > 1 && std::string(arguments[1]) == "short";
  for (const long workers : {1, 2}) {
    set_threads(workers);
    if (!failures_arrive()) return 1;
    for (const long units : short_form ? std::vector<long>{3, 200} : std::vector<long>{1, 3, 8, 17, 37, 250}) {
      for (const long lanes : {1, 2, 5}) {
        for (const long time : {1, 4}) {
          for (const long length : {0l, 1l, time}) {
            recurrence(time, lanes, units, length);
            gated(time, lanes, units, length);
          }
        }
        for (const long outputs : {1, 33}) lagging(lanes, units, outputs);
      }
      for (const long rows : {0, 1, 7, 19}) {
        for (const long outputs : {1, 5, 16, 33, 250}) products(rows, rows + 1, units, outputs);
        losses(rows, units);
      }
      for (const long one_in : {1, 4, 1000}) {
        for (const long rows : {0, 1, 6}) nade(rows, rows + 2, units, units == 37 ? 150 : units + 2, one_in);
      }
      for (const long keys : {1, 17, 88}) chains(3, keys, units, 4);
      for (const long steps : {1, 2, 5, 40}) {
        for (const long rows : {2, 9, 130}) ranges(steps, rows, units, rows < 4 ? 1 : 3);
        for (const long depth : {1, 5, 18}) paths(steps, depth, 40, units);
      }
    }
    update({1, 0, 17, 5000, 4096});
  }
  set_threads(12);
  products(5000, 5001, 5, 8);  // worth twelve threads, but with columns for fewer
  std::puts("all kernels ran");
}
