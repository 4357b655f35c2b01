// Gibbs chains of restricted Boltzmann machines. Few keys of a frame are on, so what they add to the hidden units is a
// sum of few rows of the weights, and what the units that are on add to the keys a sum of rows of the transpose. A
// chain is walked from its first step to its last while its state stays in registers and the nearest cache.
#include <algorithm>
#include <cstring>

#include "kernels.h"
#include "products.h"
#include "simd.h"
#include "threads.h"

namespace longspan {
namespace {

typedef uint32_t Unsigned __attribute__((vector_size(kWidth * 4)));

constexpr int kMostVectors = kWidth == 16 ? 16 : 12;  // of a panel of sums, which stay in registers
constexpr long kFactors = 64 * kWidth;  // as many factors of at most 2, a lane of a vector each, make no infinity
constexpr float kNever = -1e30f;        // log-odds of a unit that is there to fill a vector

// The hash of ops/outputs.py: the finalizer of MurmurHash3, twice.
template <class Bits>
inline Bits mixed(Bits bits) {
  bits = (bits ^ (bits >> 16)) * 0x85ebca6bu;
  bits = (bits ^ (bits >> 13)) * 0xc2b2ae35u;
  return bits ^ (bits >> 16);
}
template <class Bits>
inline Bits hashed(const uint32_t* words, Bits numbers) {
  return mixed(mixed(numbers + words[0]) ^ words[1]);
}

// Odd multiples of 2^-24: neither 0 nor 1, so that what is held never moves.
inline Vector uniform(const uint32_t* words, uint32_t number) {
  const Unsigned bits = hashed(words, (Unsigned)lanes() + number) >> 9;
  return (__builtin_convertvector((Integers)bits, Vector) + 0.5f) * 0x1p-23f;
}

// Whether units are on that have these log-odds x, of which e^-|x| is known: 1 or 0.
inline Vector coins(Vector log_odds, Vector decayed, Vector uniform) {
  const Vector share = log_odds >= 0.0f ? broadcast(1.0f) : decayed;
  return uniform * (1.0f + decayed) < share ? broadcast(1.0f) : Vector{};
}

// log x of positive numbers, exact to rounding also where x is nearly 1: twice the inverse hyperbolic tangent.
inline Vector logarithm(Vector x) {
  static constexpr float coefficients[] = {2.0f, 2.0f / 3, 2.0f / 5, 2.0f / 7, 2.0f / 9};
  constexpr int32_t least = 0x3f3504f3;  // the root of a half
  const Integers shifted = (Integers)x - least;
  const Vector exponent = __builtin_convertvector(shifted >> 23, Vector);
  const Vector mantissa = (Vector)((shifted & 0x7fffff) + least), w = (mantissa - 1.0f) / (mantissa + 1.0f);
  return exponent * 0.693147181f + w * polynomial(w * w, coefficients);
}

template <int vectors>
void sum_panel(const float* matrix, long row, const int32_t* places, long count, float* result) {
  Vector total[vectors] = {};
  for (long i = 0; i < count; ++i) {
    const float* source = matrix + places[i] * row;
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) total[v] += load(source + v * kWidth);
  }
#pragma GCC unroll 16
  for (int v = 0; v < vectors; ++v) store(result + v * kWidth, total[v]);
}

// The units of one side: what the other side adds to them, and which of them are on.
class Layer {
 public:
  Layer(Scratch& scratch, long size, const float* matrix)
      : size_(size), row_(round_up(size, kWidth)), matrix_(matrix), bias_(scratch.take(row_)),
        input_(scratch.take(row_)), on_(scratch.take<int32_t>(row_ + kWidth)) {
    std::fill(bias_ + size_, bias_ + row_, kNever);
  }

  void start(const float* bias) { std::memcpy(bias_, bias, size_ * sizeof(float)); }

  void listen(const Layer& other) {
    const long vectors = row_ / kWidth, panels = (vectors + kMostVectors - 1) / kMostVectors;
    for (long p = 0; p < panels; ++p) {
      const Range range = part_of(vectors, panels, p);
      const long first = range.begin * kWidth;
      with_constant<kMostVectors>(range.size(), [&](auto width) {
        sum_panel<width()>(matrix_ + first, row_, other.on_, other.count_, input_ + first);
      });
    }
  }

  // Draws which units are on at a strength of the weights; `number` is that of the first unit's random bits.
  void toss(float strength, const uint32_t* words, uint32_t number) {
    draw([&](long j) {
      const Vector log_odds = load(bias_ + j) + strength * load(input_ + j);
      return coins(log_odds, decay(-absolute(log_odds)), uniform(words, number + static_cast<uint32_t>(j)));
    });
  }

  // The same, and by how much the log-probability of the other side grows from a weaker strength to this one:
  // the sum of softplus(after) - softplus(before), one logarithm of a ratio of products for many units.
  double toss_and_weigh(float weaker, float strength, const uint32_t* words, uint32_t number) {
    Vector whole{}, logarithms{}, after = broadcast(1.0f), before = broadcast(1.0f);
    draw([&](long j) {
      if (j % kFactors == 0 && j > 0) {
        logarithms += logarithm(after / before);
        after = before = broadcast(1.0f);
      }
      const Vector bias = load(bias_ + j), input = load(input_ + j);
      const Vector log_odds = bias + strength * input, weak = bias + weaker * input;
      const Vector decayed = decay(-absolute(log_odds));
      whole += at_least(log_odds, 0.0f) - at_least(weak, 0.0f);
      after *= 1.0f + decayed;
      before *= 1.0f + decay(-absolute(weak));
      return coins(log_odds, decayed, uniform(words, number + static_cast<uint32_t>(j)));
    });
    return sum(whole + logarithms + logarithm(after / before));
  }

  void read(const uint8_t* bytes) {
    count_ = 0;
    for_each_nonzero(bytes, size_, [&](long i, uint8_t) { on_[count_++] = static_cast<int32_t>(i); });
  }
  void write(float* frame) const {
    std::memset(frame, 0, size_ * sizeof(float));
    for (long i = 0; i < count_; ++i) frame[on_[i]] = 1.0f;
  }

 private:
  template <class Coins>
  void draw(Coins coins) {
    count_ = find_places(row_, row_, 0, [&](long j, const auto&) { return coins(j); }, on_);
  }

  long size_, row_;
  const float* matrix_;  // a row for each unit of the other side, padded with zeros
  float *bias_, *input_;
  int32_t* on_;
  long count_ = 0;
};

float* padded(Scratch& scratch, long rows, long columns) {
  const long size = rows * round_up(columns, kWidth);
  float* matrix = scratch.take(size);
  std::memset(matrix, 0, size * sizeof(float));
  return matrix;
}

// body(machine, visible, hidden, words of each level) for all machines, each at its first frame.
template <class Body>
void for_each_chain(const Machines& m, const Levels& levels, const uint8_t* start, float* frames, Body body) {
  Scratch scratch;
  float *to_hidden = padded(scratch, m.keys, m.units), *to_visible = padded(scratch, m.units, m.keys);
  const long hidden_row = round_up(m.units, kWidth);
  for (long i = 0; i < m.keys; ++i) {
    std::memcpy(to_hidden + i * hidden_row, m.weights + i * m.units, m.units * sizeof(float));
  }
  transpose(m.weights, m.keys, m.units, m.units, to_visible, round_up(m.keys, kWidth));
  uint32_t* words = scratch.take<uint32_t>(4 * levels.count);
  for (long i = 0; i < 4 * levels.count; ++i) words[i] = hashed(levels.seed, static_cast<uint32_t>(i));
  const long parts = std::min(parts_for(m.count * levels.count * m.units * kWidth), m.count);
  in_parallel(parts, [&](long part) {
    Scratch own;
    Layer visible(own, m.keys, to_visible), hidden(own, m.units, to_hidden);
    const Range some = part_of(m.count, parts, part);
    for (long i = some.begin; i < some.end; ++i) {
      visible.start(m.visible_bias + i * m.keys);
      hidden.start(m.hidden_bias + i * m.units);
      visible.read(start + i * m.keys);
      body(i, visible, hidden, words);
      visible.write(frames + i * m.keys);
    }
  });
}

uint32_t first_number(long machine, long units) { return static_cast<uint32_t>(machine * units); }

}  // namespace

void gibbs_walk(const Machines& m, const Levels& levels, const uint8_t* start, float* frames) {
  for_each_chain(m, levels, start, frames, [&](long i, Layer& visible, Layer& hidden, const uint32_t* words) {
    for (long t = 0; t < levels.count; ++t, words += 4) {
      hidden.listen(visible);
      hidden.toss(levels.strength[t], words, first_number(i, m.units));
      visible.listen(hidden);
      visible.toss(levels.strength[t], words + 2, first_number(i, m.keys));
    }
  });
}

void annealed_walk(const Machines& m, const Levels& levels, const uint8_t* start, float* frames, float* log_weight) {
  for_each_chain(m, levels, start, frames, [&](long i, Layer& visible, Layer& hidden, const uint32_t* words) {
    double total = 0.0;
    for (long t = 1; t < levels.count; ++t) {
      const float weaker = levels.strength[t - 1], strength = levels.strength[t];
      hidden.listen(visible);
      total += hidden.toss_and_weigh(weaker, strength, words + 4 * t, first_number(i, m.units));
      visible.listen(hidden);
      visible.toss(strength, words + 4 * t + 2, first_number(i, m.keys));
    }
    log_weight[i] = static_cast<float>(total);
  });
}

}  // namespace longspan
