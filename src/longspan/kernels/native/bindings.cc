// XLA operations over the kernels: each handler takes shapes from its buffers, flushes denormals and calls one
// kernel. The Python side checks that shapes agree before an operation is traced; here they are only read.
#include <algorithm>
#include <cstring>

#include "kernels.h"
#include "simd.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;
using namespace longspan;

// A handler under a C name; what it binds is read from the function's signature.
#define LONGSPAN_OPERATION(name, ...)                                                             \
  extern "C" __attribute__((visibility("default"))) XLA_FFI_Error* name(XLA_FFI_CallFrame* call); \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(name, (__VA_ARGS__))

#define LONGSPAN_BOUND_OPERATION(name, function, binding)                                         \
  extern "C" __attribute__((visibility("default"))) XLA_FFI_Error* name(XLA_FFI_CallFrame* call); \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(name, function, binding)

namespace {

using Floats = ffi::Buffer<ffi::F32>;
using Flags = ffi::Buffer<ffi::PRED>;
using Length = ffi::BufferR0<ffi::S32>;
using FloatsOut = ffi::Result<Floats>;

long bounded(Length length, long time) { return std::clamp<long>(length.typed_data()[0], 0, time); }

Recurrence describe(Floats recurrent, Floats leak, Flags resets, Length length) {
  const auto shape = resets.dimensions();
  return {shape[0], shape[1], recurrent.dimensions()[0], bounded(length, shape[0]),
          recurrent.typed_data(), leak.typed_data(), resets.typed_data()};
}

template <Activation activation>
ffi::Error forward(Floats recurrent, Floats leak, Flags resets, Length length, Floats drive, Floats first,
                   FloatsOut hidden, FloatsOut gain) {
  const FlushDenormals guard;
  recurrence_forward(describe(recurrent, leak, resets, length), activation, drive.typed_data(), first.typed_data(),
                     hidden->typed_data(), gain->typed_data());
  return ffi::Error::Success();
}

ffi::Error tangent(Floats recurrent, Floats leak, Flags resets, Length length, Floats gain, Floats drive,
                   FloatsOut hidden) {
  const FlushDenormals guard;
  recurrence_tangent(describe(recurrent, leak, resets, length), gain.typed_data(), drive.typed_data(),
                     hidden->typed_data());
  return ffi::Error::Success();
}

ffi::Error adjoint(Floats recurrent, Floats leak, Flags resets, Length length, Floats gain, Floats cotangent,
                   FloatsOut drive) {
  const FlushDenormals guard;
  recurrence_adjoint(describe(recurrent, leak, resets, length), gain.typed_data(), cotangent.typed_data(),
                     drive->typed_data());
  return ffi::Error::Success();
}

ffi::Error penalised_adjoint(Floats recurrent, Floats leak, Flags resets, Length length, Floats gain, Floats cotangent,
                             Floats hidden, Floats weight, FloatsOut drive) {
  const FlushDenormals guard;
  recurrence_adjoint(describe(recurrent, leak, resets, length), gain.typed_data(), cotangent.typed_data(),
                     drive->typed_data(), {hidden.typed_data(), weight.typed_data()});
  return ffi::Error::Success();
}

template <void (*kernel)(const Recurrence&, const float*, const float*, const float*, float*)>
ffi::Error with_previous(Floats first, Floats hidden, Flags resets, Length length, Floats operand, FloatsOut result) {
  const FlushDenormals guard;
  const auto shape = hidden.dimensions();
  const Recurrence r{shape[0], shape[1], shape[2], bounded(length, shape[0]), nullptr, nullptr, resets.typed_data()};
  kernel(r, first.typed_data(), hidden.typed_data(), operand.typed_data(), result->typed_data());
  return ffi::Error::Success();
}

Affine describe(ffi::Span<const int64_t> rows, Length length, long inputs, long outputs) {
  return {bounded(length, rows[0]) * rows[1], rows[0] * rows[1], inputs, outputs};
}

ffi::Error run_affine(Floats x, Floats weights, Floats bias, Length length, FloatsOut y) {
  const FlushDenormals guard;
  const auto shape = weights.dimensions();
  affine(describe(x.dimensions(), length, shape[0], shape[1]), x.typed_data(), weights.typed_data(), bias.typed_data(),
         y->typed_data());
  return ffi::Error::Success();
}

ffi::Error run_product(Floats x, Floats weights, Length length, FloatsOut y) {
  const FlushDenormals guard;
  const auto shape = weights.dimensions();
  affine(describe(x.dimensions(), length, shape[0], shape[1]), x.typed_data(), weights.typed_data(), nullptr,
         y->typed_data());
  return ffi::Error::Success();
}

ffi::Error run_input_cotangent(Floats y, Floats weights, Length length, FloatsOut x) {
  const FlushDenormals guard;
  const auto shape = weights.dimensions();
  affine_input_cotangent(describe(y.dimensions(), length, shape[0], shape[1]), weights.typed_data(), y.typed_data(),
                         x->typed_data());
  return ffi::Error::Success();
}

ffi::Error run_weight_cotangent(Floats x, Floats y, Length length, FloatsOut weights, FloatsOut bias) {
  const FlushDenormals guard;
  const auto shape = weights->dimensions();
  affine_weight_cotangent(describe(x.dimensions(), length, shape[0], shape[1]), x.typed_data(), y.typed_data(),
                          weights->typed_data(), bias->typed_data());
  return ffi::Error::Success();
}

ffi::Error run_outer(Floats x, Floats y, Length length, FloatsOut weights) {
  const FlushDenormals guard;
  const auto shape = weights->dimensions();
  affine_weight_cotangent(describe(x.dimensions(), length, shape[0], shape[1]), x.typed_data(), y.typed_data(),
                          weights->typed_data(), nullptr);
  return ffi::Error::Success();
}

template <ffi::DataType type>
ffi::Error run_sum_rows(Floats weights, Floats bias, ffi::Buffer<type> inputs, Length length, FloatsOut y) {
  const FlushDenormals guard;
  const auto shape = weights.dimensions();
  sum_rows(describe(inputs.dimensions(), length, shape[0], shape[1]), inputs.typed_data(), weights.typed_data(),
           bias.typed_data(), y->typed_data());
  return ffi::Error::Success();
}

template <ffi::DataType type>
ffi::Error run_add_to_rows(ffi::Buffer<type> inputs, Floats y, Length length, FloatsOut weights, FloatsOut bias) {
  const FlushDenormals guard;
  const auto shape = weights->dimensions();
  add_to_rows(describe(inputs.dimensions(), length, shape[0], shape[1]), inputs.typed_data(), y.typed_data(),
              weights->typed_data(), bias->typed_data());
  return ffi::Error::Success();
}

template <ffi::DataType type, auto kernel>
ffi::Error run_loss(Floats logits, ffi::Buffer<type> targets, Floats weight, FloatsOut loss) {
  const FlushDenormals guard;
  const Loss shape{static_cast<long>(weight.element_count()), logits.dimensions().back(), weight.typed_data()};
  kernel(shape, logits.typed_data(), targets.typed_data(), loss->typed_data(), nullptr);
  return ffi::Error::Success();
}

template <ffi::DataType type, auto kernel>
ffi::Error run_loss_gradient(Floats logits, ffi::Buffer<type> targets, Floats weight, FloatsOut loss,
                             FloatsOut gradient) {
  const FlushDenormals guard;
  const Loss shape{static_cast<long>(weight.element_count()), logits.dimensions().back(), weight.typed_data()};
  kernel(shape, logits.typed_data(), targets.typed_data(), loss->typed_data(), gradient->typed_data());
  return ffi::Error::Success();
}

using Keys = ffi::Buffer<ffi::U8>;

Nade describe(Floats hidden_bias, Keys targets, Length length) {
  const auto shape = targets.dimensions();
  return {bounded(length, shape[0]) * shape[1], shape[0] * shape[1], shape[2], hidden_bias.dimensions()[2]};
}

ffi::Error run_nade_logits(Floats visible_bias, Floats hidden_bias, Floats weights, Floats readout, Keys targets,
                           Length length, FloatsOut logits) {
  const FlushDenormals guard;
  nade_logits(describe(hidden_bias, targets, length),
              {visible_bias.typed_data(), hidden_bias.typed_data(), weights.typed_data(), readout.typed_data()},
              targets.typed_data(), logits->typed_data());
  return ffi::Error::Success();
}

ffi::Error run_nade_tangent(Floats hidden_bias, Floats weights, Floats readout, Keys targets, Length length,
                            Floats visible_bias_tangent, Floats hidden_bias_tangent, Floats weights_tangent,
                            Floats readout_tangent, FloatsOut logits) {
  const FlushDenormals guard;
  nade_tangent(describe(hidden_bias, targets, length),
               {nullptr, hidden_bias.typed_data(), weights.typed_data(), readout.typed_data()}, targets.typed_data(),
               {visible_bias_tangent.typed_data(), hidden_bias_tangent.typed_data(), weights_tangent.typed_data(),
                readout_tangent.typed_data()},
               logits->typed_data());
  return ffi::Error::Success();
}

ffi::Error run_nade_adjoint(Floats hidden_bias, Floats weights, Floats readout, Keys targets, Length length,
                            Floats cotangent, FloatsOut hidden_bias_cotangent, FloatsOut weights_cotangent,
                            FloatsOut readout_cotangent) {
  const FlushDenormals guard;
  nade_adjoint(describe(hidden_bias, targets, length),
               {nullptr, hidden_bias.typed_data(), weights.typed_data(), readout.typed_data()}, targets.typed_data(),
               cotangent.typed_data(),
               {hidden_bias_cotangent->typed_data(), weights_cotangent->typed_data(), readout_cotangent->typed_data()});
  return ffi::Error::Success();
}

using Indices = ffi::Buffer<ffi::S32>;

Ranges describe(Floats hidden, Floats weights, Floats bias, Indices target, Indices start, Indices stop) {
  return {hidden.dimensions()[0], weights.dimensions()[0], hidden.dimensions()[1],
          hidden.typed_data(),    weights.typed_data(),    bias.typed_data(),
          target.typed_data(),    start.typed_data(),      stop.typed_data()};
}

ffi::Error run_range_log_prob(Floats hidden, Floats weights, Floats bias, Indices target, Indices start, Indices stop,
                              FloatsOut log_prob) {
  const FlushDenormals guard;
  range_log_prob(describe(hidden, weights, bias, target, start, stop), log_prob->typed_data());
  return ffi::Error::Success();
}

ffi::Error run_range_gradient(Floats hidden, Floats weights, Floats bias, Indices target, Indices start, Indices stop,
                              FloatsOut log_prob, FloatsOut gradient) {
  const FlushDenormals guard;
  range_gradient(describe(hidden, weights, bias, target, start, stop), nullptr, log_prob->typed_data(),
                 gradient->typed_data());
  return ffi::Error::Success();
}

ffi::Error run_range_squares(Floats hidden, Floats weights, Floats bias, Indices target, Indices start, Indices stop,
                             Floats scale, FloatsOut log_prob, FloatsOut gradient, FloatsOut squares, FloatsOut kept) {
  const FlushDenormals guard;
  const Room room{kept->typed_data(), static_cast<long>(kept->element_count())};
  squares->typed_data()[0] = static_cast<float>(
      range_gradient(describe(hidden, weights, bias, target, start, stop), scale.typed_data(), log_prob->typed_data(),
                     gradient->typed_data(), room));
  return ffi::Error::Success();
}

ffi::Error run_range_tangent(Floats hidden, Floats weights, Floats bias, Indices target, Indices start, Indices stop,
                             Floats weights_tangent, Floats bias_tangent, FloatsOut log_prob) {
  const FlushDenormals guard;
  range_tangent(describe(hidden, weights, bias, target, start, stop), weights_tangent.typed_data(),
                bias_tangent.typed_data(), log_prob->typed_data());
  return ffi::Error::Success();
}

ffi::Error run_range_weights_gradient(Floats hidden, Floats weights, Floats bias, Indices target, Indices start,
                                      Indices stop, Floats scale, FloatsOut by_weights, FloatsOut by_bias) {
  const FlushDenormals guard;
  std::memset(by_weights->typed_data(), 0, by_weights->size_bytes());
  std::memset(by_bias->typed_data(), 0, by_bias->size_bytes());
  range_add_gradient(describe(hidden, weights, bias, target, start, stop), scale.typed_data(), {},
                     by_weights->typed_data(), by_bias->typed_data());
  return ffi::Error::Success();
}

// Weights and bias are overwritten.
ffi::Error run_range_descend(Floats hidden, Floats weights, Floats bias, Indices target, Indices start, Indices stop,
                             Floats scale, Floats kept, FloatsOut new_weights, FloatsOut new_bias) {
  const FlushDenormals guard;
  range_add_gradient(describe(hidden, weights, bias, target, start, stop), scale.typed_data(),
                     {kept.typed_data(), static_cast<long>(kept.element_count())}, new_weights->typed_data(),
                     new_bias->typed_data());
  return ffi::Error::Success();
}

SelectedRows describe(Floats parts, Indices index, long rows) {
  return {parts.dimensions()[0], rows, parts.dimensions()[1], index.typed_data(), parts.typed_data()};
}

ffi::Error run_selected_squares(Floats parts, Indices index, FloatsOut squares) {
  const FlushDenormals guard;
  squares->typed_data()[0] = static_cast<float>(selected_squares(describe(parts, index, 0)));
  return ffi::Error::Success();
}

ffi::Error run_add_selected(Floats matrix, Floats parts, Indices index, ffi::BufferR0<ffi::F32> scale,
                            FloatsOut result) {
  const FlushDenormals guard;
  add_selected(describe(parts, index, matrix.dimensions()[0]), scale.typed_data()[0], result->typed_data());
  return ffi::Error::Success();
}

// Operands: the numbers of the step, then all parameters, all velocities if there are any, all gradients. Results: new
// parameters, new velocities, norm, clipped.
template <bool has_velocity>
ffi::Error run_update(ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const FlushDenormals guard;
  const std::size_t count = (operands.size() - 1) / (has_velocity ? 3 : 2), moved = has_velocity ? 2 * count : count;
  const auto operand = [&](std::size_t i) { return operands.get<Floats>(i).value(); };
  const auto result = [&](std::size_t i) { return results.get<Floats>(i).value()->typed_data(); };
  std::vector<Leaf> leaves;
  for (std::size_t i = 0; i < count; ++i) {
    leaves.push_back({static_cast<long>(operand(1 + i).element_count()), operand(1 + i).typed_data(),
                      has_velocity ? operand(1 + count + i).typed_data() : nullptr,
                      operand(1 + moved + i).typed_data(), result(i), has_velocity ? result(count + i) : nullptr});
  }
  const float* number = operand(0).typed_data();
  NesterovStep step{number[0], number[1], number[2]};
  if (has_velocity) step.momentum_previous = number[3], step.momentum_next = number[4];
  const Clipping clipping = clip_nesterov(leaves, step);
  result(moved)[0] = clipping.norm;
  results.get<Flags>(moved + 1).value()->typed_data()[0] = clipping.clipped;
  return ffi::Error::Success();
}

}  // namespace

LONGSPAN_OPERATION(longspan_recurrence_tanh, forward<Activation::tanh>);
LONGSPAN_OPERATION(longspan_recurrence_sigmoid, forward<Activation::sigmoid>);
LONGSPAN_OPERATION(longspan_recurrence_rectifier, forward<Activation::rectifier>);
LONGSPAN_OPERATION(longspan_recurrence_tangent, tangent);
LONGSPAN_OPERATION(longspan_recurrence_adjoint, adjoint);
LONGSPAN_OPERATION(longspan_recurrence_penalised_adjoint, penalised_adjoint);

LONGSPAN_OPERATION(longspan_recurrence_product, with_previous<recurrence_product>);
LONGSPAN_OPERATION(longspan_recurrence_outer, with_previous<recurrence_outer>);

LONGSPAN_OPERATION(longspan_affine, run_affine);
LONGSPAN_OPERATION(longspan_product, run_product);
LONGSPAN_OPERATION(longspan_input_cotangent, run_input_cotangent);
LONGSPAN_OPERATION(longspan_weight_cotangent, run_weight_cotangent);
LONGSPAN_OPERATION(longspan_outer, run_outer);

LONGSPAN_OPERATION(longspan_sum_rows, run_sum_rows<ffi::U8>);
LONGSPAN_OPERATION(longspan_take_rows, run_sum_rows<ffi::S32>);
LONGSPAN_OPERATION(longspan_add_to_rows, run_add_to_rows<ffi::U8>);
LONGSPAN_OPERATION(longspan_put_rows, run_add_to_rows<ffi::S32>);

LONGSPAN_OPERATION(longspan_bernoulli_loss, run_loss<ffi::U8, bernoulli_loss>);
LONGSPAN_OPERATION(longspan_bernoulli_loss_gradient, run_loss_gradient<ffi::U8, bernoulli_loss>);
LONGSPAN_OPERATION(longspan_softmax_loss, run_loss<ffi::S32, softmax_loss>);
LONGSPAN_OPERATION(longspan_softmax_loss_gradient, run_loss_gradient<ffi::S32, softmax_loss>);

LONGSPAN_OPERATION(longspan_nade_logits, run_nade_logits);
LONGSPAN_OPERATION(longspan_nade_tangent, run_nade_tangent);
LONGSPAN_OPERATION(longspan_nade_adjoint, run_nade_adjoint);

LONGSPAN_OPERATION(longspan_range_log_prob, run_range_log_prob);
LONGSPAN_OPERATION(longspan_range_gradient, run_range_gradient);
LONGSPAN_OPERATION(longspan_range_squares, run_range_squares);
LONGSPAN_OPERATION(longspan_range_tangent, run_range_tangent);
LONGSPAN_OPERATION(longspan_range_weights_gradient, run_range_weights_gradient);
LONGSPAN_OPERATION(longspan_range_descend, run_range_descend);
LONGSPAN_OPERATION(longspan_selected_squares, run_selected_squares);
LONGSPAN_OPERATION(longspan_add_selected, run_add_selected);

LONGSPAN_BOUND_OPERATION(longspan_clip_nesterov, run_update<true>, ffi::Ffi::Bind().RemainingArgs().RemainingRets());
LONGSPAN_BOUND_OPERATION(longspan_clip_descend, run_update<false>, ffi::Ffi::Bind().RemainingArgs().RemainingRets());
