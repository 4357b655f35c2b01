// The kernels as plain functions over row-major float32 arrays, time first. bindings.cc makes XLA operations of them.
#pragma once

namespace longspan {

enum class Activation { tanh, sigmoid, rectifier };

// What the three walks through time share. Steps from `length` on are not computed; their outputs are zero.
struct Recurrence {
  long time, lanes, units, length;
  const float* recurrent;  // [units, units]
  const float* leak;       // [units]
  const bool* resets;      // [time, lanes]: the state before this step is dropped
};

// hidden_t = a h + (1 - a) f(h U + drive_t) with h the kept previous state, and gain_t = (1 - a) f'(h U + drive_t).
void recurrence_forward(const Recurrence&, Activation, const float* drive, const float* first, float* hidden,
                        float* gain);
void recurrence_tangent(const Recurrence&, const float* gain, const float* drive_tangent, float* hidden_tangent);
void recurrence_adjoint(const Recurrence&, const float* gain, const float* hidden_cotangent, float* drive_cotangent);

}  // namespace longspan
