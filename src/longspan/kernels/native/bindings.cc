// XLA operations over the kernels: each handler takes shapes from its buffers, flushes denormals and calls one
// kernel. The Python side checks that shapes agree before an operation is traced; here they are only read.
#include <algorithm>

#include "kernels.h"
#include "simd.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;
using namespace longspan;

// A handler under a C name; what it binds is read from the function's signature.
#define LONGSPAN_OPERATION(name, ...)                                                             \
  extern "C" __attribute__((visibility("default"))) XLA_FFI_Error* name(XLA_FFI_CallFrame* call); \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(name, (__VA_ARGS__))

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

template <void (*kernel)(const Recurrence&, const float*, const float*, float*)>
ffi::Error linear(Floats recurrent, Floats leak, Flags resets, Length length, Floats gain, Floats operand,
                  FloatsOut result) {
  const FlushDenormals guard;
  kernel(describe(recurrent, leak, resets, length), gain.typed_data(), operand.typed_data(), result->typed_data());
  return ffi::Error::Success();
}

}  // namespace

LONGSPAN_OPERATION(longspan_recurrence_tanh, forward<Activation::tanh>);
LONGSPAN_OPERATION(longspan_recurrence_sigmoid, forward<Activation::sigmoid>);
LONGSPAN_OPERATION(longspan_recurrence_rectifier, forward<Activation::rectifier>);
LONGSPAN_OPERATION(longspan_recurrence_tangent, linear<recurrence_tangent>);
LONGSPAN_OPERATION(longspan_recurrence_adjoint, linear<recurrence_adjoint>);
