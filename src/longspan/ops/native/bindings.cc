// XLA operations over the kernels. A handler says what it takes by the types of its buffers (dtype and rank, which XLA
// checks) and asks for the memory of each by the sizes that the kernel will assume, which `data` checks. The Python
// side refuses wrong shapes when an operation is traced; these checks are for whoever calls without it.
#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "kernels.h"
#include "simd.h"
#include "threads.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;
using namespace longspan;

namespace {

template <std::size_t rank>
using Floats = ffi::Buffer<ffi::F32, rank>;
template <std::size_t rank>
using FloatsOut = ffi::Result<Floats<rank>>;
using Flags = ffi::Buffer<ffi::PRED, 2>;
using Keys = ffi::Buffer<ffi::U8, 3>;
using Symbols = ffi::Buffer<ffi::S32, 2>;
using Indices = ffi::Buffer<ffi::S32, 1>;
using Length = ffi::Buffer<ffi::S32, 0>;

// The memory of a buffer that has exactly these sizes.
template <ffi::DataType type, std::size_t rank, class... Sizes>
ffi::NativeType<type>* data(ffi::Buffer<type, rank> buffer, Sizes... sizes) {
  static_assert(sizeof...(sizes) == rank);
  const int64_t expected[] = {static_cast<int64_t>(sizes)..., 0};
  const auto shape = buffer.dimensions();
  if (!std::equal(shape.begin(), shape.end(), expected)) {
    throw std::invalid_argument("the shape of a buffer does not fit those of the others");
  }
  return buffer.typed_data();
}
template <ffi::DataType type, std::size_t rank, class... Sizes>
ffi::NativeType<type>* data(ffi::Result<ffi::Buffer<type, rank>> buffer, Sizes... sizes) {
  return data(*buffer, sizes...);
}

// What every handler does: denormals are flushed, and an exception becomes an error of the operation.
template <auto function>
struct Handler;
template <class... Buffers, void (*function)(Buffers...)>
struct Handler<function> {
  static ffi::Error run(Buffers... buffers) {
    const FlushDenormals guard;
    try {
      function(buffers...);
    } catch (const std::invalid_argument& error) {
      return ffi::Error::InvalidArgument(error.what());
    } catch (const std::exception& error) {
      return ffi::Error::Internal(error.what());
    } catch (...) {
      return ffi::Error::Internal("unknown error");
    }
    return ffi::Error::Success();
  }
};

long bounded(Length length, long time) { return std::clamp<long>(length.typed_data()[0], 0, time); }

// The recurrence.

struct Walk : Recurrence {
  Walk(Floats<3> steps, Floats<2> recurrent, Floats<1> leak, Flags resets, Length length, bool bfloat16)
      : Walk(steps, resets, length) {
    this->bfloat16 = bfloat16;
    this->recurrent = data(recurrent, units, units);
    this->leak = data(leak, units);
  }
  Walk(Floats<3> steps, Flags resets, Length length) : Recurrence{} {
    const auto shape = steps.dimensions();
    time = shape[0], lanes = shape[1], units = shape[2];
    this->length = bounded(length, time);
    this->resets = data(resets, time, lanes);
  }
  template <class Buffer>
  float* states(Buffer buffer) const {
    return data(buffer, time, lanes, units);
  }
};

template <Activation activation, bool bfloat16>
void forward(Floats<3> drive, Floats<2> first, Floats<2> recurrent, Floats<1> leak, Flags resets, Length length,
             FloatsOut<3> hidden, FloatsOut<3> gain) {
  const Walk walk(drive, recurrent, leak, resets, length, bfloat16);
  recurrence_forward(walk, activation, walk.states(drive), data(first, walk.lanes, walk.units), walk.states(hidden),
                     walk.states(gain));
}

template <bool bfloat16>
void tangent(Floats<2> recurrent, Floats<1> leak, Floats<3> gain, Flags resets, Length length, Floats<3> drive,
             FloatsOut<3> hidden) {
  const Walk walk(gain, recurrent, leak, resets, length, bfloat16);
  recurrence_tangent(walk, walk.states(gain), walk.states(drive), walk.states(hidden));
}

template <bool bfloat16>
void adjoint(Floats<2> recurrent, Floats<1> leak, Floats<3> gain, Flags resets, Length length, Floats<3> cotangent,
             FloatsOut<3> drive) {
  const Walk walk(gain, recurrent, leak, resets, length, bfloat16);
  recurrence_adjoint(walk, walk.states(gain), walk.states(cotangent), walk.states(drive));
}

template <bool bfloat16>
void penalized_adjoint(Floats<2> recurrent, Floats<1> leak, Floats<3> gain, Flags resets, Length length,
                       Floats<3> hidden, Floats<2> weight, Floats<3> cotangent, FloatsOut<3> drive) {
  const Walk walk(gain, recurrent, leak, resets, length, bfloat16);
  recurrence_adjoint(walk, walk.states(gain), walk.states(cotangent), walk.states(drive),
                     {walk.states(hidden), data(weight, walk.time, walk.lanes)});
}

void previous_product(Floats<2> first, Floats<3> hidden, Flags resets, Length length, Floats<2> weights,
                      FloatsOut<3> result) {
  const Walk walk(hidden, resets, length);
  const long columns = weights.dimensions()[1];
  recurrence_product(walk, columns, data(first, walk.lanes, walk.units), walk.states(hidden),
                     data(weights, walk.units, columns), data(result, walk.time, walk.lanes, columns));
}

void previous_outer(Floats<2> first, Floats<3> hidden, Flags resets, Length length, Floats<3> cotangent,
                    FloatsOut<2> result) {
  const Walk walk(hidden, resets, length);
  const long columns = cotangent.dimensions()[2];
  recurrence_outer(walk, columns, data(first, walk.lanes, walk.units), walk.states(hidden),
                   data(cotangent, walk.time, walk.lanes, columns), data(result, walk.units, columns));
}

// Gated recurrences.

struct GatedWalk : Recurrence {
  GatedWalk(Floats<4> slopes, Floats<3> recurrent, Flags resets, Length length, long gates) : Recurrence{} {
    const auto shape = slopes.dimensions();
    time = shape[0], lanes = shape[1], units = shape[3];
    this->length = bounded(length, time);
    this->resets = data(resets, time, lanes);
    this->recurrent = data(recurrent, units, gates, units);
  }
  template <class Buffer>
  float* steps(Buffer buffer) const {
    return data(buffer, time, lanes, units);
  }
  template <class Buffer>
  float* steps(Buffer buffer, long parts) const {
    return data(buffer, time, lanes, parts, units);
  }
  template <class Buffer>
  float* state(Buffer buffer) const {
    return data(buffer, lanes, units);
  }
};

template <Activation activation>
void run_lstm(Floats<4> drive, Floats<2> first, Floats<2> first_cell, Floats<3> recurrent, Floats<2> peepholes,
              Flags resets, Length length, FloatsOut<3> hidden, FloatsOut<3> cells, FloatsOut<4> slopes,
              FloatsOut<4> keeps) {
  const GatedWalk w(drive, recurrent, resets, length, 4);
  lstm_forward(w, activation, w.steps(drive, 4), w.state(first), w.state(first_cell), data(peepholes, 3, w.units),
               {w.steps(hidden), w.steps(cells), w.steps(slopes, 4), w.steps(keeps, 2)});
}

void run_lstm_tangent(Floats<3> recurrent, Floats<4> slopes, Floats<4> keeps, Flags resets, Length length,
                      Floats<4> drive, Floats<2> first, Floats<2> first_cell, FloatsOut<3> hidden,
                      FloatsOut<2> last_cell) {
  const GatedWalk w(slopes, recurrent, resets, length, 4);
  lstm_tangent(w, w.steps(slopes, 4), w.steps(keeps, 2), w.steps(drive, 4), w.state(first), w.state(first_cell),
               w.steps(hidden), w.state(last_cell));
}

void run_lstm_adjoint(Floats<3> recurrent, Floats<4> slopes, Floats<4> keeps, Flags resets, Length length,
                      Floats<3> hidden, Floats<2> last_cell, FloatsOut<4> drive, FloatsOut<2> first,
                      FloatsOut<2> first_cell) {
  const GatedWalk w(slopes, recurrent, resets, length, 4);
  lstm_adjoint(w, w.steps(slopes, 4), w.steps(keeps, 2), w.steps(hidden), w.state(last_cell), w.steps(drive, 4),
               w.state(first), w.state(first_cell));
}

template <Activation activation>
void run_gru(Floats<4> drive, Floats<2> first, Floats<3> recurrent, Floats<1> candidate_bias, Flags resets,
             Length length, FloatsOut<3> hidden, FloatsOut<4> slopes, FloatsOut<4> keeps) {
  const GatedWalk w(drive, recurrent, resets, length, 3);
  gru_forward(w, activation, w.steps(drive, 3), w.state(first), data(candidate_bias, w.units),
              {w.steps(hidden), w.steps(slopes, 3), w.steps(keeps, 2)});
}

void run_gru_tangent(Floats<3> recurrent, Floats<4> slopes, Floats<4> keeps, Flags resets, Length length,
                     Floats<4> drive, Floats<4> recurrent_drive, Floats<2> first, FloatsOut<3> hidden) {
  const GatedWalk w(slopes, recurrent, resets, length, 3);
  gru_tangent(w, w.steps(slopes, 3), w.steps(keeps, 2), w.steps(drive, 3), w.steps(recurrent_drive, 3), w.state(first),
              w.steps(hidden));
}

void run_gru_adjoint(Floats<3> recurrent, Floats<4> slopes, Floats<4> keeps, Flags resets, Length length,
                     Floats<3> hidden, FloatsOut<4> drive, FloatsOut<4> recurrent_drive, FloatsOut<2> first) {
  const GatedWalk w(slopes, recurrent, resets, length, 3);
  gru_adjoint(w, w.steps(slopes, 3), w.steps(keeps, 2), w.steps(hidden), w.steps(drive, 3), w.steps(recurrent_drive, 3),
              w.state(first));
}

// Products. Rows of all steps and lanes follow each other.

struct Product : Affine {
  long time, lanes;

  template <class Steps, class Matrix>
  Product(Steps steps, Length length, Matrix weights) : Affine{} {
    time = steps.dimensions()[0], lanes = steps.dimensions()[1];
    rows = bounded(length, time) * lanes, all_rows = time * lanes;
    inputs = weights.dimensions()[0], outputs = weights.dimensions()[1];
  }
  template <class Buffer>
  float* x(Buffer buffer) const {
    return data(buffer, time, lanes, inputs);
  }
  template <class Buffer>
  float* y(Buffer buffer) const {
    return data(buffer, time, lanes, outputs);
  }
  template <class Buffer>
  float* matrix(Buffer buffer) const {
    return data(buffer, inputs, outputs);
  }
};

void run_affine(Floats<3> x, Length length, Floats<2> weights, Floats<1> bias, FloatsOut<3> y) {
  const Product p(x, length, weights);
  affine(p, p.x(x), p.matrix(weights), data(bias, p.outputs), p.y(y));
}

void run_product(Floats<2> weights, Length length, Floats<3> x, FloatsOut<3> y) {
  const Product p(x, length, weights);
  affine(p, p.x(x), p.matrix(weights), nullptr, p.y(y));
}

void run_product_transposed(Floats<2> weights, Length length, Floats<3> y, FloatsOut<3> x) {
  const Product p(y, length, weights);
  affine_input_cotangent(p, p.matrix(weights), p.y(y), p.x(x));
}

void run_affine_transposed(Floats<3> x, Length length, Floats<3> y, FloatsOut<2> weights, FloatsOut<1> bias) {
  const Product p(x, length, *weights);
  affine_weight_cotangent(p, p.x(x), p.y(y), p.matrix(weights), data(bias, p.outputs));
}

void run_outer(Floats<3> x, Length length, Floats<3> y, FloatsOut<2> weights) {
  const Product p(x, length, *weights);
  affine_weight_cotangent(p, p.x(x), p.y(y), p.matrix(weights), nullptr);
}

const uint8_t* selection(const Product& p, Keys counts) { return data(counts, p.time, p.lanes, p.inputs); }
const int32_t* selection(const Product& p, Symbols symbols) { return data(symbols, p.time, p.lanes); }

template <class Inputs>
void run_sum_rows(Inputs inputs, Length length, Floats<2> weights, Floats<1> bias, FloatsOut<3> y) {
  const Product p(inputs, length, weights);
  sum_rows(p, selection(p, inputs), p.matrix(weights), data(bias, p.outputs), p.y(y));
}

template <class Inputs>
void run_add_to_rows(Inputs inputs, Length length, Floats<3> y, FloatsOut<2> weights, FloatsOut<1> bias) {
  const Product p(inputs, length, *weights);
  add_to_rows(p, selection(p, inputs), p.y(y), p.matrix(weights), data(bias, p.outputs));
}

void run_selected_squares(Floats<2> parts, Indices index, FloatsOut<0> squares) {
  const long count = parts.dimensions()[0], columns = parts.dimensions()[1];
  const SelectedRows selected{count, 0, columns, data(index, count), parts.typed_data()};
  data(squares)[0] = static_cast<float>(selected_squares(selected));
}

// The matrix is overwritten.
void run_add_selected(Floats<2> matrix, Floats<2> parts, Indices index, Floats<0> scale, FloatsOut<2> result) {
  const long rows = matrix.dimensions()[0], columns = matrix.dimensions()[1], count = parts.dimensions()[0];
  const SelectedRows selected{count, rows, columns, data(index, count), data(parts, count, columns)};
  add_selected(selected, data(scale)[0], data(result, rows, columns));
}

// Matrices whose rows lag: weights, velocity and the counts of updates are overwritten.

using Counts = ffi::Result<Indices>;

struct LaggingOf : Lagging {
  LaggingOf(FloatsOut<2> weights, FloatsOut<2> velocity, Counts moved, Floats<2> momenta, Length now) : Lagging{} {
    rows = weights->dimensions()[0], columns = weights->dimensions()[1];
    this->weights = data(weights, rows, columns), this->velocity = data(velocity, rows, columns);
    this->moved = data(moved, rows);
    const long updates = momenta.dimensions()[0];
    this->momenta = data(momenta, updates, 2), this->now = static_cast<int32_t>(bounded(now, updates));
    for (long row = 0; row < rows; ++row) this->moved[row] = std::clamp<int32_t>(this->moved[row], 0, this->now);
  }
};

void lagging_forward(Floats<2>, Floats<2>, Indices, Floats<2> momenta, Length now, Floats<3> drive, Floats<2> first,
                     Floats<1> leak, Flags resets, Length length, FloatsOut<3> hidden, FloatsOut<3> gain,
                     FloatsOut<2> weights, FloatsOut<2> velocity, Counts moved) {
  const LaggingOf matrix(weights, velocity, moved, momenta, now);
  Walk walk(drive, *weights, leak, resets, length, false);
  walk.lagging = &matrix;
  recurrence_forward(walk, Activation::rectifier, walk.states(drive), data(first, walk.lanes, walk.units),
                     walk.states(hidden), walk.states(gain));
}

void lagging_adjoint(Floats<2>, Floats<2>, Indices, Floats<2> momenta, Length now, Floats<1> leak, Floats<3> gain,
                     Flags resets, Length length, Floats<3> hidden, Floats<2> weight, Floats<3> cotangent,
                     FloatsOut<3> drive, FloatsOut<2> weights, FloatsOut<2> velocity, Counts moved) {
  const LaggingOf matrix(weights, velocity, moved, momenta, now);
  Walk walk(gain, *weights, leak, resets, length, false);
  walk.lagging = &matrix;
  recurrence_adjoint(walk, walk.states(gain), walk.states(cotangent), walk.states(drive),
                     {walk.states(hidden), data(weight, walk.time, walk.lanes)});
}

void run_lagging_product(Floats<2>, Floats<2>, Indices, Floats<2> momenta, Length now, Floats<3> x, Floats<1> bias,
                         Length length, FloatsOut<3> y, FloatsOut<2> weights, FloatsOut<2> velocity, Counts moved) {
  const LaggingOf matrix(weights, velocity, moved, momenta, now);
  const Product p(x, length, *weights);
  lagging_product(p, matrix, p.x(x), data(bias, p.outputs), p.y(y));
}

void run_product_transposed_where(Floats<2> weights, Length length, Floats<3> y, Floats<3> x, FloatsOut<3> result) {
  const Product p(y, length, weights);
  product_transposed_where(p, p.matrix(weights), p.y(y), p.x(x), p.x(result));
}

void run_outer_rows(Floats<3> left, Length length, Floats<3> right, FloatsOut<2> gradient, FloatsOut<0> squares,
                    ffi::Result<ffi::Buffer<ffi::PRED, 1>> reached) {
  const Product p(left, length, *gradient);
  const Outer outer{p.rows, p.inputs, p.outputs, p.x(left), p.y(right)};
  data(squares)[0] = static_cast<float>(outer_rows(outer, p.matrix(gradient), data(reached, p.inputs)));
}

void run_descend_rows(Floats<2>, Floats<2>, Indices, Floats<2> momenta, Length now, Floats<2> gradient,
                      ffi::Buffer<ffi::PRED, 1> reached, Floats<1> rate_and_stride, FloatsOut<2> weights,
                      FloatsOut<2> velocity, Counts moved) {
  const LaggingOf matrix(weights, velocity, moved, momenta, now);
  if (matrix.now >= momenta.dimensions()[0]) throw std::invalid_argument("there are no momenta for another update");
  const float* factors = data(rate_and_stride, 2);
  descend_rows(matrix, data(gradient, matrix.rows, matrix.columns), data(reached, matrix.rows), factors[0], factors[1]);
}

void run_catch_up(Floats<2>, Floats<2>, Indices, Floats<2> momenta, Length now, FloatsOut<2> weights,
                  FloatsOut<2> velocity, Counts moved) {
  catch_up(LaggingOf(weights, velocity, moved, momenta, now));
}

// Losses.

struct Losses : Loss {
  long time, lanes;

  Losses(Floats<3> logits, Floats<2> weight) : Loss{} {
    const auto shape = logits.dimensions();
    time = shape[0], lanes = shape[1];
    rows = time * lanes, outputs = shape[2];
    this->weight = data(weight, time, lanes);
  }
  const uint8_t* targets(Keys keys) const { return data(keys, time, lanes, outputs); }
  const int32_t* targets(Symbols symbols) const { return data(symbols, time, lanes); }
};

template <class Targets, auto kernel>
void run_loss(Floats<3> logits, Targets targets, Floats<2> weight, FloatsOut<2> loss) {
  const Losses l(logits, weight);
  kernel(l, logits.typed_data(), l.targets(targets), data(loss, l.time, l.lanes), nullptr);
}

template <class Targets, auto kernel>
void run_loss_gradient(Floats<3> logits, Targets targets, Floats<2> weight, FloatsOut<2> loss, FloatsOut<3> gradient) {
  const Losses l(logits, weight);
  kernel(l, logits.typed_data(), l.targets(targets), data(loss, l.time, l.lanes),
         data(gradient, l.time, l.lanes, l.outputs));
}

// NADE.

struct Frames : Nade {
  long time, lanes;

  Frames(Keys targets, Floats<3> hidden_bias, Length length) : Nade{} {
    const auto shape = targets.dimensions();
    time = shape[0], lanes = shape[1];
    rows = bounded(length, time) * lanes, all_rows = time * lanes;
    keys = shape[2], hidden = hidden_bias.dimensions()[2];
  }
  template <class Buffer>
  float* visible(Buffer buffer) const {
    return data(buffer, time, lanes, keys);
  }
  template <class Buffer>
  float* of_hidden(Buffer buffer) const {
    return data(buffer, time, lanes, hidden);
  }
  template <class Buffer>
  float* weights(Buffer buffer) const {
    return data(buffer, keys, hidden);
  }
  template <class Buffer>
  float* readout(Buffer buffer) const {
    return data(buffer, hidden, keys);
  }
};

void run_nade_logits(Floats<3> visible_bias, Floats<3> hidden_bias, Floats<2> weights, Floats<2> readout, Keys targets,
                     Length length, FloatsOut<3> logits) {
  const Frames f(targets, hidden_bias, length);
  nade_logits(f, {f.visible(visible_bias), f.of_hidden(hidden_bias), f.weights(weights), f.readout(readout)},
              targets.typed_data(), f.visible(logits));
}

void run_nade_tangent(Floats<3> hidden_bias, Floats<2> weights, Floats<2> readout, Keys targets, Length length,
                      Floats<3> visible_bias_tangent, Floats<3> hidden_bias_tangent, Floats<2> weights_tangent,
                      Floats<2> readout_tangent, FloatsOut<3> logits) {
  const Frames f(targets, hidden_bias, length);
  nade_tangent(f, {nullptr, f.of_hidden(hidden_bias), f.weights(weights), f.readout(readout)}, targets.typed_data(),
               {f.visible(visible_bias_tangent), f.of_hidden(hidden_bias_tangent), f.weights(weights_tangent),
                f.readout(readout_tangent)},
               f.visible(logits));
}

void run_nade_adjoint(Floats<3> hidden_bias, Floats<2> weights, Floats<2> readout, Keys targets, Length length,
                      Floats<3> cotangent, FloatsOut<3> hidden_bias_cotangent, FloatsOut<2> weights_cotangent,
                      FloatsOut<2> readout_cotangent) {
  const Frames f(targets, hidden_bias, length);
  nade_adjoint(f, {nullptr, f.of_hidden(hidden_bias), f.weights(weights), f.readout(readout)}, targets.typed_data(),
               f.visible(cotangent),
               {f.of_hidden(hidden_bias_cotangent), f.weights(weights_cotangent), f.readout(readout_cotangent)});
}

// Chains of restricted Boltzmann machines.

using Bytes = ffi::Buffer<ffi::U8, 2>;
using Words = ffi::Buffer<ffi::U32, 1>;

struct MachinesOf : Machines {
  MachinesOf(Floats<2> weights, Floats<2> visible_bias, Floats<2> hidden_bias) : Machines{} {
    count = visible_bias.dimensions()[0], keys = visible_bias.dimensions()[1], units = hidden_bias.dimensions()[1];
    this->weights = data(weights, keys, units);
    this->visible_bias = visible_bias.typed_data(), this->hidden_bias = data(hidden_bias, count, units);
  }
  template <class Buffer>
  auto* frames(Buffer buffer) const {
    return data(buffer, count, keys);
  }
};

Levels levels_of(Floats<1> strengths, Words seed) {
  return {static_cast<long>(strengths.dimensions()[0]), strengths.typed_data(), data(seed, 2)};
}

void run_gibbs_walk(Floats<2> weights, Floats<2> visible_bias, Floats<2> hidden_bias, Bytes start, Floats<1> strengths,
                    Words seed, FloatsOut<2> frames) {
  const MachinesOf m(weights, visible_bias, hidden_bias);
  gibbs_walk(m, levels_of(strengths, seed), m.frames(start), m.frames(frames));
}

void run_annealed_walk(Floats<2> weights, Floats<2> visible_bias, Floats<2> hidden_bias, Bytes start,
                       Floats<1> strengths, Words seed, FloatsOut<2> frames, FloatsOut<1> log_weight) {
  const MachinesOf m(weights, visible_bias, hidden_bias);
  annealed_walk(m, levels_of(strengths, seed), m.frames(start), m.frames(frames), data(log_weight, m.count));
}

// Softmax over ranges of rows.

struct RangesOf : Ranges {
  RangesOf(Floats<2> hidden, Floats<2> weights, Floats<1> bias, Indices target, Indices start, Indices stop)
      : Ranges{} {
    steps = hidden.dimensions()[0], units = hidden.dimensions()[1], rows = weights.dimensions()[0];
    this->hidden = hidden.typed_data(), this->weights = matrix(weights), this->bias = data(bias, rows);
    this->target = data(target, steps), this->start = data(start, steps), this->stop = data(stop, steps);
  }
  template <class Buffer>
  float* matrix(Buffer buffer) const {
    return data(buffer, rows, units);
  }
};

void run_range_log_prob(Floats<2> hidden, Floats<2> weights, Floats<1> bias, Indices target, Indices start,
                        Indices stop, FloatsOut<1> log_prob) {
  const RangesOf r(hidden, weights, bias, target, start, stop);
  range_log_prob(r, data(log_prob, r.steps));
}

void run_range_gradient(Floats<2> hidden, Floats<2> weights, Floats<1> bias, Indices target, Indices start,
                        Indices stop, FloatsOut<1> log_prob, FloatsOut<2> gradient) {
  const RangesOf r(hidden, weights, bias, target, start, stop);
  range_gradient(r, nullptr, data(log_prob, r.steps), data(gradient, r.steps, r.units));
}

void run_range_squares(Floats<2> hidden, Floats<2> weights, Floats<1> bias, Indices target, Indices start, Indices stop,
                       Floats<1> scale, FloatsOut<1> log_prob, FloatsOut<2> gradient, FloatsOut<0> squares,
                       FloatsOut<1> kept) {
  const RangesOf r(hidden, weights, bias, target, start, stop);
  const Room room{kept->typed_data(), static_cast<long>(kept->element_count())};
  data(squares)[0] = static_cast<float>(
      range_gradient(r, data(scale, r.steps), data(log_prob, r.steps), data(gradient, r.steps, r.units), room));
}

void run_range_tangent(Floats<2> hidden, Floats<2> weights, Floats<1> bias, Indices target, Indices start, Indices stop,
                       Floats<2> weights_tangent, Floats<1> bias_tangent, FloatsOut<1> log_prob) {
  const RangesOf r(hidden, weights, bias, target, start, stop);
  range_tangent(r, r.matrix(weights_tangent), data(bias_tangent, r.rows), data(log_prob, r.steps));
}

void run_range_weights_gradient(Floats<2> hidden, Floats<2> weights, Floats<1> bias, Indices target, Indices start,
                                Indices stop, Floats<1> scale, FloatsOut<2> by_weights, FloatsOut<1> by_bias) {
  const RangesOf r(hidden, weights, bias, target, start, stop);
  float *matrix = r.matrix(by_weights), *vector = data(by_bias, r.rows);
  std::memset(matrix, 0, by_weights->size_bytes());
  std::memset(vector, 0, by_bias->size_bytes());
  range_add_gradient(r, data(scale, r.steps), {}, matrix, vector);
}

// Weights and bias are overwritten.
void run_range_descend(Floats<2> hidden, Floats<2> weights, Floats<1> bias, Indices target, Indices start, Indices stop,
                       Floats<1> scale, Floats<1> kept, FloatsOut<2> new_weights, FloatsOut<1> new_bias) {
  const RangesOf r(hidden, weights, bias, target, start, stop);
  range_add_gradient(r, data(scale, r.steps), {kept.typed_data(), static_cast<long>(kept.element_count())},
                     r.matrix(new_weights), data(new_bias, r.rows));
}

// Logits along paths.

struct PathsOf : Paths {
  PathsOf(Symbols nodes, long rows, long units) : Paths{} {
    steps = nodes.dimensions()[0], depth = nodes.dimensions()[1];
    this->rows = rows, this->units = units, this->nodes = nodes.typed_data();
  }
  template <class Buffer>
  float* logits(Buffer buffer) const {
    return data(buffer, steps, depth);
  }
  template <class Buffer>
  float* hidden(Buffer buffer) const {
    return data(buffer, steps, units);
  }
  template <class Buffer>
  float* matrix(Buffer buffer) const {
    return data(buffer, rows, units);
  }
};

void run_path_logits(Floats<2> hidden, Floats<2> weights, Floats<1> bias, Symbols nodes, FloatsOut<2> logits) {
  const PathsOf p(nodes, weights.dimensions()[0], weights.dimensions()[1]);
  path_logits(p, p.hidden(hidden), p.matrix(weights), data(bias, p.rows), p.logits(logits));
}

void run_path_hidden(Floats<2> weights, Symbols nodes, Floats<2> cotangent, FloatsOut<2> hidden) {
  const PathsOf p(nodes, weights.dimensions()[0], weights.dimensions()[1]);
  path_hidden(p, p.matrix(weights), p.logits(cotangent), p.hidden(hidden));
}

void run_path_weights(Floats<2> hidden, Symbols nodes, Floats<2> cotangent, FloatsOut<2> weights, FloatsOut<1> bias) {
  const PathsOf p(nodes, weights->dimensions()[0], weights->dimensions()[1]);
  float *matrix = p.matrix(weights), *vector = data(bias, p.rows);
  std::memset(matrix, 0, weights->size_bytes());
  std::memset(vector, 0, bias->size_bytes());
  path_add_gradient(p, p.hidden(hidden), p.logits(cotangent), matrix, vector);
}

void run_path_squares(Floats<2> hidden, Symbols nodes, Floats<2> cotangent, FloatsOut<0> squares) {
  const PathsOf p(nodes, std::numeric_limits<int32_t>::max(), hidden.dimensions()[1]);
  data(squares)[0] = static_cast<float>(path_squares(p, p.hidden(hidden), p.logits(cotangent)));
}

// Weights and bias are overwritten.
void run_path_descend(Floats<2> hidden, Floats<2> weights, Floats<1> bias, Symbols nodes, Floats<2> cotangent,
                      FloatsOut<2> new_weights, FloatsOut<1> new_bias) {
  const PathsOf p(nodes, weights.dimensions()[0], weights.dimensions()[1]);
  data(bias, p.rows);
  path_add_gradient(p, p.hidden(hidden), p.logits(cotangent), p.matrix(new_weights), data(new_bias, p.rows));
}

// The update of all leaves, each a buffer of any rank.

using Leaf32 = ffi::Buffer<ffi::F32>;

Leaf32 leaf(const ffi::RemainingArgs& operands, std::size_t number) {
  const auto found = operands.get<Leaf32>(number);
  if (!found.has_value()) throw std::invalid_argument("a leaf is not float32");
  return found.value();
}
Leaf32 leaf(const ffi::RemainingRets& results, std::size_t number) {
  auto found = results.get<Leaf32>(number);
  if (!found.has_value()) throw std::invalid_argument("a new leaf is not float32");
  return *found.value();
}
template <class Buffers>
float* leaf_data(const Buffers& buffers, std::size_t number, std::size_t size) {
  const Leaf32 buffer = leaf(buffers, number);
  if (buffer.element_count() != size) throw std::invalid_argument("a leaf differs in size from its parameter");
  return buffer.typed_data();
}

// Operands: the numbers of the step, then all parameters, all velocities if there are any, all gradients. Results: new
// parameters, new velocities, norm, clipped.
template <bool has_velocity>
void run_update(ffi::RemainingArgs operands, ffi::RemainingRets results) {
  constexpr std::size_t groups = has_velocity ? 3 : 2, numbers = has_velocity ? 5 : 3;
  if (operands.size() % groups != 1) throw std::invalid_argument("the groups of leaves differ in size");
  const std::size_t count = operands.size() / groups, moved = (groups - 1) * count;
  if (results.size() != moved + 2) throw std::invalid_argument("the results do not match the leaves");
  std::vector<Leaf> leaves;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t size = leaf(operands, 1 + i).element_count();
    leaves.push_back({static_cast<long>(size), leaf_data(operands, 1 + i, size),
                      has_velocity ? leaf_data(operands, 1 + count + i, size) : nullptr,
                      leaf_data(operands, 1 + moved + i, size), leaf_data(results, i, size),
                      has_velocity ? leaf_data(results, count + i, size) : nullptr});
  }
  const float* number = leaf_data(operands, 0, numbers);
  NesterovStep step{number[0], number[1], number[2]};
  if (has_velocity) step.momentum_previous = number[3], step.momentum_next = number[4];
  const auto clipped = results.get<ffi::Buffer<ffi::PRED, 0>>(moved + 1);
  if (!clipped.has_value()) throw std::invalid_argument("the last result is not a flag");
  const Clipping clipping = clip_nesterov(leaves, step);
  leaf_data(results, moved, 1)[0] = clipping.norm;
  data(clipped.value())[0] = clipping.clipped;
}

}  // namespace

// A handler under a C name; what it binds is read from the function's signature.
#define LONGSPAN_SYMBOL(name) \
  extern "C" __attribute__((visibility("default"))) XLA_FFI_Error* name(XLA_FFI_CallFrame* call)
#define LONGSPAN_OPERATION(name, ...) \
  LONGSPAN_SYMBOL(name);              \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(name, (Handler<__VA_ARGS__>::run))
#define LONGSPAN_VARIADIC_OPERATION(name, ...) \
  LONGSPAN_SYMBOL(name);                       \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(name, (Handler<__VA_ARGS__>::run), ffi::Ffi::Bind().RemainingArgs().RemainingRets())

LONGSPAN_OPERATION(longspan_recurrence_tanh, forward<Activation::tanh, false>);
LONGSPAN_OPERATION(longspan_recurrence_sigmoid, forward<Activation::sigmoid, false>);
LONGSPAN_OPERATION(longspan_recurrence_rectifier, forward<Activation::rectifier, false>);
LONGSPAN_OPERATION(longspan_recurrence_tangent, tangent<false>);
LONGSPAN_OPERATION(longspan_recurrence_adjoint, adjoint<false>);
LONGSPAN_OPERATION(longspan_recurrence_penalized_adjoint, penalized_adjoint<false>);
LONGSPAN_OPERATION(longspan_recurrence_tanh_bfloat16, forward<Activation::tanh, true>);
LONGSPAN_OPERATION(longspan_recurrence_sigmoid_bfloat16, forward<Activation::sigmoid, true>);
LONGSPAN_OPERATION(longspan_recurrence_rectifier_bfloat16, forward<Activation::rectifier, true>);
LONGSPAN_OPERATION(longspan_recurrence_tangent_bfloat16, tangent<true>);
LONGSPAN_OPERATION(longspan_recurrence_adjoint_bfloat16, adjoint<true>);
LONGSPAN_OPERATION(longspan_recurrence_penalized_adjoint_bfloat16, penalized_adjoint<true>);
LONGSPAN_OPERATION(longspan_recurrence_product, previous_product);
LONGSPAN_OPERATION(longspan_recurrence_outer, previous_outer);

LONGSPAN_OPERATION(longspan_lstm_tanh, run_lstm<Activation::tanh>);
LONGSPAN_OPERATION(longspan_lstm_sigmoid, run_lstm<Activation::sigmoid>);
LONGSPAN_OPERATION(longspan_lstm_rectifier, run_lstm<Activation::rectifier>);
LONGSPAN_OPERATION(longspan_lstm_tangent, run_lstm_tangent);
LONGSPAN_OPERATION(longspan_lstm_adjoint, run_lstm_adjoint);
LONGSPAN_OPERATION(longspan_gru_tanh, run_gru<Activation::tanh>);
LONGSPAN_OPERATION(longspan_gru_sigmoid, run_gru<Activation::sigmoid>);
LONGSPAN_OPERATION(longspan_gru_rectifier, run_gru<Activation::rectifier>);
LONGSPAN_OPERATION(longspan_gru_tangent, run_gru_tangent);
LONGSPAN_OPERATION(longspan_gru_adjoint, run_gru_adjoint);

LONGSPAN_OPERATION(longspan_affine, run_affine);
LONGSPAN_OPERATION(longspan_affine_transposed, run_affine_transposed);
LONGSPAN_OPERATION(longspan_product, run_product);
LONGSPAN_OPERATION(longspan_product_transposed, run_product_transposed);
LONGSPAN_OPERATION(longspan_outer, run_outer);

LONGSPAN_OPERATION(longspan_sum_rows, run_sum_rows<Keys>);
LONGSPAN_OPERATION(longspan_take_rows, run_sum_rows<Symbols>);
LONGSPAN_OPERATION(longspan_add_to_rows, run_add_to_rows<Keys>);
LONGSPAN_OPERATION(longspan_put_rows, run_add_to_rows<Symbols>);
LONGSPAN_OPERATION(longspan_selected_squares, run_selected_squares);
LONGSPAN_OPERATION(longspan_add_selected, run_add_selected);

LONGSPAN_OPERATION(longspan_lagging_forward, lagging_forward);
LONGSPAN_OPERATION(longspan_lagging_adjoint, lagging_adjoint);
LONGSPAN_OPERATION(longspan_lagging_product, run_lagging_product);
LONGSPAN_OPERATION(longspan_product_transposed_where, run_product_transposed_where);
LONGSPAN_OPERATION(longspan_outer_rows, run_outer_rows);
LONGSPAN_OPERATION(longspan_descend_rows, run_descend_rows);
LONGSPAN_OPERATION(longspan_catch_up, run_catch_up);

LONGSPAN_OPERATION(longspan_bernoulli_loss, run_loss<Keys, bernoulli_loss>);
LONGSPAN_OPERATION(longspan_bernoulli_loss_gradient, run_loss_gradient<Keys, bernoulli_loss>);
LONGSPAN_OPERATION(longspan_softmax_loss, run_loss<Symbols, softmax_loss>);
LONGSPAN_OPERATION(longspan_softmax_loss_gradient, run_loss_gradient<Symbols, softmax_loss>);

LONGSPAN_OPERATION(longspan_nade_logits, run_nade_logits);
LONGSPAN_OPERATION(longspan_nade_tangent, run_nade_tangent);
LONGSPAN_OPERATION(longspan_nade_adjoint, run_nade_adjoint);

LONGSPAN_OPERATION(longspan_gibbs_walk, run_gibbs_walk);
LONGSPAN_OPERATION(longspan_annealed_walk, run_annealed_walk);

LONGSPAN_OPERATION(longspan_range_log_prob, run_range_log_prob);
LONGSPAN_OPERATION(longspan_range_gradient, run_range_gradient);
LONGSPAN_OPERATION(longspan_range_squares, run_range_squares);
LONGSPAN_OPERATION(longspan_range_tangent, run_range_tangent);
LONGSPAN_OPERATION(longspan_range_weights_gradient, run_range_weights_gradient);
LONGSPAN_OPERATION(longspan_range_descend, run_range_descend);

LONGSPAN_OPERATION(longspan_path_logits, run_path_logits);
LONGSPAN_OPERATION(longspan_path_hidden, run_path_hidden);
LONGSPAN_OPERATION(longspan_path_weights, run_path_weights);
LONGSPAN_OPERATION(longspan_path_squares, run_path_squares);
LONGSPAN_OPERATION(longspan_path_descend, run_path_descend);

LONGSPAN_VARIADIC_OPERATION(longspan_clip_nesterov, run_update<true>);
LONGSPAN_VARIADIC_OPERATION(longspan_clip_descend, run_update<false>);

// What the Python side tells a library and asks it: how many threads it may use, and the best instruction set of this
// processor.
extern "C" __attribute__((visibility("default"))) void longspan_set_threads(long count) { set_threads(count); }

extern "C" __attribute__((visibility("default"))) const char* longspan_instruction_set() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq")) {
    return "avx512";
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "avx2";
#endif
  return "portable";
}
