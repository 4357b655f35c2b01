// The leaky recurrence through time: forward, its tangent, and the tangent's transpose, which walks backwards.
#include <cstring>

#include "gemm.h"
#include "gemv.h"
#include "kernels.h"

namespace longspan {
namespace {

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

// y += x U (or x U^T) for all lanes. One lane reads U in place; more share panels packed once for the whole walk.
class StateProduct {
 public:
  StateProduct(Scratch& scratch, const Recurrence& r, bool transposed)
      : lanes_(r.lanes), transposed_(transposed), square_(scratch, r.recurrent, r.lanes == 1 ? r.units : 0),
        packed_(scratch, transposed ? View{r.recurrent, 1, r.units} : View{r.recurrent, r.units, 1}, r.units,
                r.lanes == 1 ? 0 : r.units) {}

  void add(const float* x, long x_row, float* y, long y_row) {
    backwards_ = !backwards_;
    if (lanes_ > 1) {
      packed_.multiply(lanes_, in_place({x, x_row, 1}), {y, y_row}, y, y_row);
    } else if (transposed_) {
      add_transposed_product(square_, x, y, backwards_);
    } else {
      add_product(square_, x, y, backwards_);
    }
  }

 private:
  long lanes_;
  bool transposed_, backwards_ = false;
  PaddedSquare square_;
  PackedMatrix packed_;
};

// Rows of one step, all lanes, with the lanes that are reset replaced by zeros.
struct KeptRows {
  const float* data;
  bool any;

  KeptRows(const Recurrence& r, long t, const float* rows, float* room) : data(rows), any(rows != nullptr) {
    const bool* resets = r.resets + t * r.lanes;
    long dropped = 0;
    for (long b = 0; b < r.lanes; ++b) dropped += resets[b];
    if (!any || dropped == 0) return;
    any = dropped < r.lanes;
    for (long b = 0; b < r.lanes; ++b) {
      if (resets[b]) {
        std::memset(room + b * r.units, 0, r.units * sizeof(float));
      } else {
        std::memcpy(room + b * r.units, rows + b * r.units, r.units * sizeof(float));
      }
    }
    data = room;
  }
};

// Walks forward: states_t = finish(t, lane, previous, sums = previous U + inputs_t), written in place by `finish`.
template <class Finish>
void walk(const Recurrence& r, const float* inputs, const float* first, float* states, Finish finish) {
  Scratch scratch;
  const long row = round_up(r.units, kWidth), step = r.lanes * r.units;
  float* sums = scratch.take(r.lanes * row);
  float* room = scratch.take(step);
  std::memset(sums, 0, r.lanes * row * sizeof(float));
  StateProduct product(scratch, r, false);
  for (long t = 0; t < r.length; ++t) {
    const KeptRows previous(r, t, t ? states + (t - 1) * step : first, room);
    for (long b = 0; b < r.lanes; ++b) {
      std::memcpy(sums + b * row, inputs + t * step + b * r.units, r.units * sizeof(float));
    }
    if (previous.any) product.add(previous.data, r.units, sums, row);
    for (long b = 0; b < r.lanes; ++b) {
      finish(t * step + b * r.units, previous.any ? previous.data + b * r.units : nullptr, sums + b * row);
    }
  }
}

void clear_after(const Recurrence& r, float* rows) {
  const long step = r.lanes * r.units;
  std::memset(rows + r.length * step, 0, (r.time - r.length) * step * sizeof(float));
}

template <class Function>
void forward(const Recurrence& r, const float* drive, const float* first, float* hidden, float* gain) {
  walk(r, drive, first, hidden, [&](long offset, const float* previous, const float* sums) {
    for_each_vector(r.units, [&](long j, auto load, auto store) {
      const Vector leak = load(r.leak + j), z = longspan::load(sums + j), value = Function::value(z);
      const Vector kept = previous ? leak * load(previous + j) : Vector{};
      store(hidden + offset + j, kept + (1.0f - leak) * value);
      store(gain + offset + j, (1.0f - leak) * Function::slope(z, value));
    });
  });
  clear_after(r, hidden);
  clear_after(r, gain);
}

// The state each step started from, all steps and lanes one after the other.
const float* previous_states(Scratch& scratch, const Recurrence& r, const float* first, const float* hidden) {
  const long step = r.lanes * r.units;
  float* previous = scratch.take(r.length * step);
  for (long t = 0; t < r.length; ++t) {
    const float* before = t ? hidden + (t - 1) * step : first;
    const KeptRows kept(r, t, before, previous + t * step);
    if (kept.data == before) std::memcpy(previous + t * step, before, step * sizeof(float));
  }
  return previous;
}

}  // namespace

void recurrence_product(const Recurrence& r, const float* first, const float* hidden, const float* weights, float* y) {
  Scratch scratch;
  const Affine shape{r.length * r.lanes, r.time * r.lanes, r.units, r.units};
  affine(shape, previous_states(scratch, r, first, hidden), weights, nullptr, y);
}

void recurrence_outer(const Recurrence& r, const float* first, const float* hidden, const float* cotangent,
                      float* weights) {
  Scratch scratch;
  const Affine shape{r.length * r.lanes, r.time * r.lanes, r.units, r.units};
  affine_weight_cotangent(shape, previous_states(scratch, r, first, hidden), cotangent, weights, nullptr);
}

void recurrence_forward(const Recurrence& r, Activation activation, const float* drive, const float* first,
                        float* hidden, float* gain) {
  const auto run = activation == Activation::tanh      ? forward<HyperbolicTangent>
                   : activation == Activation::sigmoid ? forward<Logistic>
                                                       : forward<Rectifier>;
  run(r, drive, first, hidden, gain);
}

void recurrence_tangent(const Recurrence& r, const float* gain, const float* drive_tangent, float* hidden_tangent) {
  walk(r, drive_tangent, nullptr, hidden_tangent, [&](long offset, const float* previous, const float* sums) {
    for_each_vector(r.units, [&](long j, auto load, auto store) {
      const Vector kept = previous ? load(r.leak + j) * load(previous + j) : Vector{};
      store(hidden_tangent + offset + j, kept + load(gain + offset + j) * longspan::load(sums + j));
    });
  });
  clear_after(r, hidden_tangent);
}

void recurrence_adjoint(const Recurrence& r, const float* gain, const float* hidden_cotangent,
                        float* drive_cotangent) {
  Scratch scratch;
  const long row = round_up(r.units, kWidth), step = r.lanes * r.units;
  float* errors = scratch.take(r.lanes * row);  // with respect to the hidden state, padded rows
  float* drives = scratch.take(r.lanes * row);  // the same through the gain: what flows on through U^T
  std::memset(errors, 0, r.lanes * row * sizeof(float));
  std::memset(drives, 0, r.lanes * row * sizeof(float));
  StateProduct product(scratch, r, true);
  bool any = false;  // whether any lane hears from the step after this one
  for (long t = r.length - 1; t >= 0; --t) {
    const float* cotangent = hidden_cotangent + t * step;
    for (long b = 0; b < r.lanes; ++b) {
      for_each_vector(r.units, [&](long j, auto load, auto) {
        float* error = errors + b * row + j;
        store(error, load(cotangent + b * r.units + j) + load(r.leak + j) * longspan::load(error));
      });
    }
    if (any) product.add(drives, row, errors, row);
    any = false;
    for (long b = 0; b < r.lanes; ++b) {
      for_each_vector(r.units, [&](long j, auto load, auto store) {
        const long offset = t * step + b * r.units + j;
        const Vector drive = load(gain + offset) * longspan::load(errors + b * row + j);
        store(drive_cotangent + offset, drive);
        store(drives + b * row + j, drive);
      });
      if (r.resets[t * r.lanes + b]) {
        std::memset(errors + b * row, 0, row * sizeof(float));
        std::memset(drives + b * row, 0, row * sizeof(float));
      } else {
        any = true;
      }
    }
  }
  clear_after(r, drive_cotangent);
}

}  // namespace longspan
