// The kernels as plain functions over row-major float32 arrays, time first. bindings.cc makes XLA operations of them.
#pragma once

#include <cstdint>
#include <vector>

namespace longspan {

enum class Activation { tanh, sigmoid, rectifier };

// A matrix whose rows lag. Momentum moves every row at every update, but a row that gradients do not reach makes up for
// the updates it missed only when it is read next, one by one, so that not a bit differs from moving it every time.
struct Lagging {
  long rows, columns;
  float *weights, *velocity;  // [rows, columns]
  int32_t* moved;             // [rows]: how many updates each row has made
  const float* momenta;       // [updates, 2]: the shares of the velocity that an update adds to the weights, and keeps
  int32_t now;                // how many updates were made
};

void catch_up(const Lagging&, long row);  // may be called for one row by several threads
void catch_up(const Lagging&);            // all rows

// What all walks through time share. Steps from `length` on are not computed; their outputs are zero.
struct Recurrence {
  long time, lanes, units, length;
  const float* recurrent;  // [units, units], or with gates [units, gates, units]
  const float* leak;       // [units], for leaky units alone
  const bool* resets;      // [time, lanes]: the state before this step is dropped
  bool bfloat16 = false;   // whether the recurrent weights are rounded to bfloat16, which a single lane reads faster
  const Lagging* lagging = nullptr;  // where the rows of `recurrent` lag, that matrix

  void catch_up(const int32_t* rows, long count) const {
    for (long i = 0; lagging && i < count; ++i) longspan::catch_up(*lagging, rows[i]);
  }
};

// hidden_t = a h + (1 - a) f(h U + drive_t) with h the kept previous state, and gain_t = (1 - a) f'(h U + drive_t).
void recurrence_forward(const Recurrence&, Activation, const float* drive, const float* first, float* hidden,
                        float* gain);
void recurrence_tangent(const Recurrence&, const float* gain, const float* drive_tangent, float* hidden_tangent);
// What the recurrent weights multiply: previous_t = k_t hidden_{t-1}. Its product with a matrix, and the transpose,
// the sum of the outer products of previous_t and cotangent_t.
void recurrence_product(const Recurrence&, long columns, const float* first, const float* hidden, const float* weights,
                        float* y);
void recurrence_outer(const Recurrence&, long columns, const float* first, const float* hidden, const float* cotangent,
                      float* weights);

// A penalty on the size of the states: the sum over steps and lanes of weight times |hidden|, summed over units.
struct Penalty {
  const float *hidden = nullptr, *weight = nullptr;  // [time, lanes, units], [time, lanes]; none without hidden
};

void recurrence_adjoint(const Recurrence&, const float* gain, const float* hidden_cotangent, float* drive_cotangent,
                        const Penalty& = {});

// LSTM. Arrays of a step hold its gates one after the other: input, forget, candidate, output. Of each step the forward
// walk keeps what the linear ones need, with c the cell state, k its value before the step:
//   slopes: dc/d(input), dc/d(forget), dc/d(candidate) and dh/d(output) pre-activation
//   keeps: dc/dk and dh/dc, each including what flows through peepholes
struct LstmStates {
  float *hidden, *cells, *slopes, *keeps;  // [time, lanes, 1 | 1 | 4 | 2, units]
};
void lstm_forward(const Recurrence&, Activation, const float* drive, const float* first, const float* first_cell,
                  const float* peepholes, const LstmStates&);
void lstm_tangent(const Recurrence&, const float* slopes, const float* keeps, const float* drive, const float* first,
                  const float* first_cell, float* hidden, float* last_cell);
void lstm_adjoint(const Recurrence&, const float* slopes, const float* keeps, const float* hidden,
                  const float* last_cell, float* drive, float* first, float* first_cell);

// GRU. Gates are reset, update and candidate; the candidate's recurrent part is multiplied by the reset gate. `slopes`
// are dh / d(what the recurrent weights add to each gate), `keeps` are dh/dh_before and dh/d(drive of the candidate).
struct GruStates {
  float *hidden, *slopes, *keeps;  // [time, lanes, 1 | 3 | 2, units]
};
void gru_forward(const Recurrence&, Activation, const float* drive, const float* first, const float* candidate_bias,
                 const GruStates&);
void gru_tangent(const Recurrence&, const float* slopes, const float* keeps, const float* drive,
                 const float* recurrent_drive, const float* first, float* hidden);
void gru_adjoint(const Recurrence&, const float* slopes, const float* keeps, const float* hidden, float* drive,
                 float* recurrent_drive, float* first);

// Rows of all steps and lanes one after the other; only the first `rows` of them are in use.
struct Affine {
  long rows, all_rows, inputs, outputs;
};

void affine(const Affine&, const float* x, const float* weights, const float* bias_or_null, float* y);
void affine_input_cotangent(const Affine&, const float* weights, const float* y, float* x);
void affine_weight_cotangent(const Affine&, const float* x, const float* y, float* weights, float* bias_or_null);
void outer(const Affine&, const float* x, const float* y, float* weights, bool add);  // weights (+)= x^T y
void sum_of_rows(long rows, long columns, const float* y, float* sum);

using Rows = Affine;

// y = bias + the rows of `weights` that the input selects, Input being a uint8_t count per row or an int32_t index.
template <class Input>
void sum_rows(const Rows&, const Input* inputs, const float* weights, const float* bias, float* y);
template <class Input>
void add_to_rows(const Rows&, const Input* inputs, const float* y, float* weights, float* bias);

struct Loss {
  long rows, outputs;
  const float* weight;  // of each row
};

// `gradient_or_null` is the gradient of the weighted loss with respect to the logits.
void bernoulli_loss(const Loss&, const float* logits, const uint8_t* targets, float* loss, float* gradient_or_null);
void softmax_loss(const Loss&, const float* logits, const int32_t* targets, float* loss, float* gradient_or_null);

// Frames of all steps and lanes one after the other; only the first `rows` of them are in use.
struct Nade {
  long rows, all_rows, keys, hidden;
  long row() const;  // hidden, padded to whole vectors
};
struct NadeParameters {
  const float *visible_bias, *hidden_bias;  // [all_rows, keys], [all_rows, hidden]
  const float *weights, *readout;           // [keys, hidden], [hidden, keys]
};
struct NadeCotangents {  // the visible bias has that of the logits
  float *hidden_bias, *weights, *readout;
};

void nade_logits(const Nade&, const NadeParameters&, const uint8_t* targets, float* logits);
void nade_tangent(const Nade&, const NadeParameters&, const uint8_t* targets, const NadeParameters& tangents,
                  float* logits);
void nade_adjoint(const Nade&, const NadeParameters&, const uint8_t* targets, const float* cotangent,
                  const NadeCotangents&);

// Restricted Boltzmann machines that share their weights and differ in their biases.
struct Machines {
  long count, keys, units;
  const float *weights, *visible_bias, *hidden_bias;  // [keys, units], [count, keys], [count, units]
};
// What the weights are multiplied by at each step of a chain, and two words from which its random bits follow.
struct Levels {
  long count;
  const float* strength;
  const uint32_t* seed;
};

// The frames after a Gibbs step at every level. Annealed, the first level is where a chain stands, and the log-weight
// is the sum over all others of how much more probable its frame becomes, unnormalized, before it moves.
void gibbs_walk(const Machines&, const Levels&, const uint8_t* start, float* frames);
void annealed_walk(const Machines&, const Levels&, const uint8_t* start, float* frames, float* log_weight);

// Steps, each normalized over the rows [start, stop) of one matrix; ranges that overlap must be equal.
struct Ranges {
  long steps, rows, units;
  const float *hidden, *weights, *bias;  // [steps, units], [rows, units], [rows]
  const int32_t *target, *start, *stop;  // [steps]
};

// Memory for what one kernel finds and a later one needs again; it may be too small, or none.
struct Room {
  float* data = nullptr;
  long size = 0;
};

// log_prob of the target; its gradient with respect to each step's hidden vector; and, where `scale_or_null` gives
// weights of the steps, the squared norm of the gradient of their weighted sum with respect to weights and bias.
void range_log_prob(const Ranges&, float* log_prob);
double range_gradient(const Ranges&, const float* scale_or_null, float* log_prob, float* hidden_gradient, Room = {});
// Adds that gradient to `weights` and `bias`, which may be those of the ranges; `kept` is the room range_gradient had.
void range_add_gradient(const Ranges&, const float* scale, Room kept, float* weights, float* bias);
void range_tangent(const Ranges&, const float* weights_tangent, const float* bias_tangent, float* log_prob);

// Every step names the rows of one matrix that its path leads along; a negative number names none.
struct Paths {
  long steps, depth, rows, units;
  const int32_t* nodes;  // [steps, depth]
};

// logit = row . hidden + bias for every node of a path, zero where there is none; the two transposes of that, of which
// the second is added to `weights` and `bias`; and the squared norm of what it adds.
void path_logits(const Paths&, const float* hidden, const float* weights, const float* bias, float* logits);
void path_hidden(const Paths&, const float* weights, const float* cotangent, float* hidden);
void path_add_gradient(const Paths&, const float* hidden, const float* cotangent, float* weights, float* bias);
double path_squares(const Paths&, const float* hidden, const float* cotangent);

// A gradient of a matrix of which few rows were read: row index[s] has the part rows[s].
struct SelectedRows {
  long count, rows, columns;
  const int32_t* index;
  const float* parts;  // [count, columns]
};

double selected_squares(const SelectedRows&);  // of the norm, parts of one row added up first
void add_selected(const SelectedRows&, float scale, float* matrix);

// The gradient of a matrix, the sum of the outer products of the rows of `left` and `right`, where `left` is mostly
// zeros.
struct Outer {
  long steps, rows, columns;
  const float *left, *right;  // [steps, rows], [steps, columns]
};

// Writes the rows of the gradient that `left` reaches, whose others are zero, and says which they are; returns the
// squared norm.
double outer_rows(const Outer&, float* gradient, bool* reached);
// One update of the rows that are reached: their velocity loses rate times the gradient, their weights stride times.
void descend_rows(const Lagging&, const float* gradient, const bool* reached, float rate, float stride);
// y = bias + x w of sparse rows x, which catch up; and y w^T at the places where x is not zero, and zero elsewhere.
void lagging_product(const Affine&, const Lagging&, const float* x, const float* bias, float* y);
void product_transposed_where(const Affine&, const float* weights, const float* y, const float* x, float* result);

struct Leaf {
  long size;
  const float *parameter, *velocity_or_null, *gradient;
  float *new_parameter, *new_velocity_or_null;  // may be the old ones
};
struct NesterovStep {
  float learning_rate, threshold;
  float other_squares;                             // what gradients applied elsewhere add to the square of the norm
  float momentum_previous = 0, momentum_next = 0;  // for leaves that have a velocity
};
struct Clipping {
  float norm;  // before clipping
  bool clipped;
};

Clipping clip_nesterov(const std::vector<Leaf>&, const NesterovStep&);

}  // namespace longspan
