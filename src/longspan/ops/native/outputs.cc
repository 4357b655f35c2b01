// The outputs of ops/outputs.py: losses of logits, and the logits of NADE.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels.h"
#include "products.h"
#include "simd.h"
#include "threads.h"

namespace longspan {

// Negative log-likelihoods in nats, one number per row, and their gradients with respect to the logits.

namespace {

// A row whose weight is zero counts nothing, whatever its logits hold.
template <class Row>
void for_each_row(const Loss& l, const float* logits, float* loss, float* gradient, Row row) {
  const long parts = parts_for(8 * l.rows * l.outputs);
  in_parallel(parts, [&](long part) {
    const Range rows = part_of(l.rows, parts, part);
    for (long i = rows.begin; i < rows.end; ++i) {
      float* slope = gradient ? gradient + i * l.outputs : nullptr;
      if (l.weight[i] != 0.0f) {
        loss[i] = l.weight[i] * row(i, logits + i * l.outputs, slope);
      } else {
        loss[i] = 0.0f;
        if (slope) std::memset(slope, 0, l.outputs * sizeof(float));
      }
    }
  });
}

// All bits where a byte is not zero, of the first `count` bytes or of a whole vector of them.
inline Integers where_on(const uint8_t* bytes, long count) {
  typedef uint8_t Bytes __attribute__((vector_size(kWidth)));
  Bytes some{};
  std::memcpy(&some, bytes, count < kWidth ? count : kWidth);
  return __builtin_convertvector(some, Integers) != 0;
}

}  // namespace

// softplus(l) of a key that is off, softplus(-l) of one that is on: a confident prediction loses nothing to
// cancellation.
void bernoulli_loss(const Loss& l, const float* logits, const uint8_t* targets, float* loss, float* gradient) {
  constexpr int32_t sign = INT32_MIN;
  for_each_row(l, logits, loss, gradient, [&](long i, const float* logit, float* slope) {
    const uint8_t* target = targets + i * l.outputs;
    Vector total{};
    for_each_vector(l.outputs, [&](long j, auto load, auto store) {
      const Integers turn = where_on(target + j, l.outputs - j) & sign;
      const Vector x = (Vector)((Integers)load(logit + j) ^ turn), u = decay(-absolute(x));
      const Vector cost = at_least(x, 0.0f) + log_one_plus(u);
      total += l.outputs - j >= kWidth ? cost : first_lanes_of(cost, l.outputs - j);
      const Vector steep = l.weight[i] * (x >= 0.0f ? broadcast(1.0f) : u) / (1.0f + u);
      if (slope) store(slope + j, (Vector)((Integers)steep ^ turn));
    });
    return sum(total);
  });
}

void softmax_loss(const Loss& l, const float* logits, const int32_t* targets, float* loss, float* gradient) {
  for_each_row(l, logits, loss, gradient, [&](long i, const float* logit, float* slope) {
    const long target = targets[i];
    float highest = logit[0];
    for (long j = 1; j < l.outputs; ++j) highest = logit[j] > highest || logit[j] != logit[j] ? logit[j] : highest;
    if (!(std::fabs(highest) < INFINITY)) highest = 0.0f;
    Vector total{};
    for_each_vector(l.outputs, [&](long j, auto load, auto store) {
      const Vector value = decay(load(logit + j) - highest);
      total += l.outputs - j >= kWidth ? value : first_lanes_of(value, l.outputs - j);
      if (slope) store(slope + j, value);
    });
    const float normalizer = sum(total), scale = l.weight[i] / normalizer;
    if (slope) {
      for_each_vector(l.outputs, [&](long j, auto load, auto store) { store(slope + j, scale * load(slope + j)); });
      slope[target] -= l.weight[i];
    }
    return std::log(normalizer) + highest - logit[target];
  });
}

// NADE conditionals of frames with few keys down. The hidden vector changes only after a key that is on, so a frame
// with m keys on has at most m + 1 distinct ones, each serving a run of neighboring keys. All distinct vectors of a
// block of frames form one tall matrix; products with it visit, for a few keys at a time, only the runs that meet
// them. As frames fill up the work grows to that of the dense form; there is no second path.

namespace {

constexpr long kFrames = 16;                           // a block's hidden vectors stay in the second-level cache
constexpr long kKeyBlock = 32;                         // rows of the readout that stay in the first-level cache
constexpr long kKeysAtOnce = 4;                        // rows of a tile of the readout's gradient
constexpr int kReadoutVectors = kWidth == 16 ? 5 : 3;  // and its vectors

typedef int32_t FewLanes __attribute__((vector_size(kKeysAtOnce * 4)));

// One distinct hidden vector: the keys [begin, end) of a frame read it; the key before them made it.
struct Run {
  int32_t frame, begin, end;
};

// The runs of a block of frames, in order.
struct Runs {
  std::vector<Run> all;
  long start[kFrames + 1];  // of each frame
  long frames;

  Runs(const uint8_t* targets, long frames, long keys) : frames(frames) {
    for (long f = 0; f < frames; ++f, targets += keys) {
      start[f] = all.size();
      int32_t begin = 0;
      for_each_nonzero(targets, keys - 1, [&](long key, uint8_t) {  // no key reads the vector after the last one
        all.push_back({static_cast<int32_t>(f), begin, static_cast<int32_t>(key + 1)});
        begin = static_cast<int32_t>(key + 1);
      });
      all.push_back({static_cast<int32_t>(f), begin, static_cast<int32_t>(keys)});
    }
    start[frames] = all.size();
  }
  long size() const { return all.size(); }
};

// For each group of `width` keys the runs that meet it, in order; a frame adds at most one a key.
class Groups {
 public:
  Groups(Scratch& scratch, const Runs& runs, long keys, long width)
      : capacity_(runs.frames * width), count_((keys + width - 1) / width), sizes_(scratch.take<long>(count_)),
        members_(scratch.take<int32_t>(count_ * capacity_)) {
    std::fill(sizes_, sizes_ + count_, 0);
    for (long i = 0; i < runs.size(); ++i) {
      const Run& run = runs.all[i];
      for (long g = run.begin / width; g <= (run.end - 1) / width; ++g) members_[g * capacity_ + sizes_[g]++] = i;
    }
  }
  long size(long group) const { return sizes_[group]; }
  const int32_t* operator[](long group) const { return members_ + group * capacity_; }

 private:
  long capacity_, count_;
  long* sizes_;
  int32_t* members_;
};

// The readout transposed, a row for each key, in panels of as many vectors as registers hold, padded with zeros.
class Readout {
 public:
  Readout(Scratch& scratch, const Nade& n, const float* readout) : n_(n), data_(scratch.take(n.keys * n.row())) {
    for_panels(n.row() / kWidth, [&](auto vectors, long j) {
      const long width = vectors * kWidth, units = std::min(width, n.hidden - j);
      float* panel = data_ + j * n.keys;
      transpose(readout + j * n.keys, units, n.keys, n.keys, panel, width);
      for (long key = 0; units < width && key < n.keys; ++key) {
        std::memset(panel + key * width + units, 0, (width - units) * sizeof(float));
      }
    });
  }

  // body(vectors, panel, its first unit, first key, keys) for parts of panels that stay in the first-level cache.
  template <class Body>
  void for_each_tile(Body body) const {
    for_panels(n_.row() / kWidth, [&](auto vectors, long j) {
      for (long key = 0; key < n_.keys; key += kKeyBlock) {
        body(vectors, data_ + j * n_.keys, j, key, std::min(kKeyBlock, n_.keys - key));
      }
    });
  }

 private:
  const Nade& n_;
  float* data_;
};

// A block of frames with its hidden vectors, one row a run, padded.
class Block {
 public:
  Block(Scratch& scratch, const Nade& n, const uint8_t* targets, long first, long count)
      : n_(n), scratch_(scratch), runs_(targets + first * n.keys, count, n.keys) {}

  float* take_rows() { return scratch_.take(runs_.size() * n_.row()); }

  // finish(offset, sum) for every run: the frame's bias plus the weights of the keys on before the run.
  template <class Finish>
  void preactivations(const float* bias, const float* weights, Finish finish) {
    float* sums = scratch_.take(n_.row());
    for (long f = 0; f < runs_.frames; ++f, bias += n_.hidden) {
      for_each_vector(n_.hidden, [&](long j, auto load, auto) {
        const Vector sum = load(bias + j);
        store(sums + j, sum);
        finish(runs_.start[f] * n_.row() + j, sum);
      });
      for (long i = runs_.start[f] + 1; i < runs_.start[f + 1]; ++i) {
        const float* added = weights + (runs_.all[i].begin - 1) * n_.hidden;
        for_each_vector(n_.hidden, [&](long j, auto load, auto) {
          const Vector sum = longspan::load(sums + j) + load(added + j);
          store(sums + j, sum);
          finish(i * n_.row() + j, sum);
        });
      }
    }
  }

  // logits[frame, key] += rows[run of the key] . readout[key].
  void add_logits(const float* rows, const Readout& readout, float* logits) {
    Vector* dots = scratch_.take<Vector>(round_up(kKeyBlock, kWidth));
    std::fill(dots, dots + round_up(kKeyBlock, kWidth), Vector{});
    readout.for_each_tile([&](auto vectors, const float* panel, long j, long key, long keys) {
      for (long f = 0; f < runs_.frames; ++f) {
        for_each_run(f, key, key + keys, [&](long i, long begin, long count) {
          find_dots<vectors>(rows + i * n_.row() + j, panel + begin * vectors * kWidth, count, dots + (begin - key));
        });
        add_sums(dots, keys, logits + f * n_.keys + key);
      }
    });
  }

  // errors[run] = sum over its keys of cotangent[key] readout[key].
  void run_errors(const float* cotangents, const Readout& readout, float* errors) {
    readout.for_each_tile([&](auto vectors, const float* panel, long j, long key, long keys) {
      for (long f = 0; f < runs_.frames; ++f) {
        for_each_run(f, key, key + keys, [&](long i, long begin, long count) {
          const float *left = cotangents + f * n_.keys + begin, *right = panel + begin * vectors * kWidth;
          float* error = errors + i * n_.row() + j;
          Vector sums[1][vectors()] = {};
          if (runs_.all[i].begin < key) load_tile(error, 0, sums);
          accumulate(
              count, [&](long k, int) { return left[k]; }, [&](long k) { return right + k * vectors * kWidth; }, sums);
          store_tile(error, 0, sums);
        });
      }
    });
  }

  // readout[key] += sum over frames of cotangent[frame, key] rows[run of the key]; transposed, rows padded.
  void add_readout(const float* cotangents, const float* rows, float* readout) {
    const Groups groups(scratch_, runs_, n_.keys, kKeysAtOnce);
    float* left = scratch_.take(kKeysAtOnce * kKeysAtOnce * runs_.frames);
    for (long key = 0, g = 0; key < n_.keys; key += kKeysAtOnce, ++g) {
      const int32_t* members = groups[g];
      for (long m = 0; m < groups.size(g); ++m) {
        const Run& run = runs_.all[members[m]];
        const float* source = cotangents + run.frame * n_.keys + key;
        FewLanes values{};
        if (key + kKeysAtOnce <= n_.keys) {
          std::memcpy(&values, source, sizeof values);
        } else {
          std::memcpy(&values, source, (n_.keys - key) * sizeof(float));
        }
        const FewLanes lane = FewLanes{0, 1, 2, 3} + static_cast<int32_t>(key);
        values &= (lane >= run.begin) & (lane < run.end);
        std::memcpy(left + m * kKeysAtOnce, &values, sizeof values);
      }
      float* target = readout + key * n_.row();
      for_panels<kReadoutVectors>(n_.row() / kWidth, [&](auto vectors, long j) {
        Vector sums[kKeysAtOnce][vectors()];
        load_tile(target + j, n_.row(), sums);
        accumulate(
            groups.size(g), [&](long m, int r) { return left[m * kKeysAtOnce + r]; },
            [&](long m) { return rows + members[m] * n_.row() + j; }, sums);
        store_tile(target + j, n_.row(), sums);
      });
    }
  }

  // From errors with respect to hidden vectors to those of the biases and, added up, of the weights, rows padded: a
  // weight row feeds every run after its key and the bias feeds all of them, so sums grow from the last run backwards.
  void finish_errors(const float* rows, const float* errors, float* bias, float* weights) {
    for (long f = 0; f < runs_.frames; ++f, bias += n_.hidden) {
      for_panels(n_.row() / kWidth,
                 [&](auto vectors, long j) { finish_frame<vectors>(f, j, rows, errors, bias, weights); });
    }
  }

 private:
  // body(run, its first key, how many) for the runs of a frame, cut down to the keys [from, to) they have there.
  template <class Body>
  void for_each_run(long frame, long from, long to, Body body) {
    for (long i = runs_.start[frame]; i < runs_.start[frame + 1]; ++i) {
      const long begin = std::max<long>(runs_.all[i].begin, from), end = std::min<long>(runs_.all[i].end, to);
      if (begin < end) body(i, begin, end - begin);
    }
  }

  // One frame of `finish_errors`, in these vectors of columns.
  template <int vectors>
  void finish_frame(long frame, long j, const float* rows, const float* errors, float* bias, float* weights) {
    Vector sums[1][vectors] = {};
    for (long i = runs_.start[frame + 1] - 1; i >= runs_.start[frame]; --i) {
      const long at = i * n_.row() + j;
#pragma GCC unroll 16
      for (int v = 0; v < vectors; ++v) {
        const Vector value = load(rows + at + v * kWidth);
        sums[0][v] += load(errors + at + v * kWidth) * (value - value * value);
      }
      if (i > runs_.start[frame]) add_tile(weights + (runs_.all[i].begin - 1) * n_.row() + j, sums);
    }
    for_each_vector(std::min<long>(vectors * kWidth, n_.hidden - j),
                    [&](long k, auto, auto store) { store(bias + j + k, sums[0][k / kWidth]); });
  }

  // dots[k] = row . right[k], up to the sum over lanes, in these vectors of columns.
  template <int vectors>
  static void find_dots(const float* row, const float* right, long count, Vector* dots) {
    Vector factors[vectors];
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) factors[v] = load(row + v * kWidth);
    for (long k = 0; k < count; ++k, right += vectors * kWidth) {
      Vector even{}, odd{};
#pragma GCC unroll 16
      for (int v = 0; v < vectors; ++v) (v % 2 ? odd : even) += factors[v] * load(right + v * kWidth);
      dots[k] = even + odd;
    }
  }

  // target[k] += the sum over lanes of dots[k].
  static void add_sums(const Vector* dots, long count, float* target) {
    for_each_vector(count, [&](long k, auto load, auto store) {
      Vector square[kWidth];
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; ++i) square[i] = dots[k + i];
      store(target + k, load(target + k) + sums(square));
    });
  }

  template <int count, int vectors>
  static void load_tile(const float* source, long row, Vector (&sums)[count][vectors]) {
#pragma GCC unroll 4
    for (int r = 0; r < count; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < vectors; ++v) sums[r][v] = load(source + r * row + v * kWidth);
    }
  }
  template <int count, int vectors>
  static void store_tile(float* target, long row, const Vector (&sums)[count][vectors]) {
#pragma GCC unroll 4
    for (int r = 0; r < count; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < vectors; ++v) store(target + r * row + v * kWidth, sums[r][v]);
    }
  }
  template <int vectors>
  static void add_tile(float* target, const Vector (&sums)[1][vectors]) {
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) store(target + v * kWidth, load(target + v * kWidth) + sums[0][v]);
  }

  const Nade& n_;
  Scratch& scratch_;
  Runs runs_;
};

void start_logits(const Nade& n, const float* visible_bias, float* logits) {
  std::memcpy(logits, visible_bias, n.rows * n.keys * sizeof(float));
  std::memset(logits + n.rows * n.keys, 0, (n.all_rows - n.rows) * n.keys * sizeof(float));
}

long parts_of(const Nade& n) { return parts_for(n.rows * n.keys * n.hidden); }

// body(part, block, its first frame) for all frames, the parts on as many threads.
template <class Body>
void for_each_block(const Nade& n, const uint8_t* targets, Body body) {
  const long parts = parts_of(n);
  in_parallel(parts, [&](long part) {
    const Range frames = part_of(n.rows, parts, part);
    const long blocks = (frames.size() + kFrames - 1) / kFrames;
    for (long b = 0; b < blocks; ++b) {
      Scratch scratch;
      const Range some = part_of(frames.size(), blocks, b);
      Block block(scratch, n, targets, frames.begin + some.begin, some.size());
      body(part, block, frames.begin + some.begin);
    }
  });
}

float* hidden_vectors(Block& block, const Nade& n, const NadeParameters& p, long first) {
  float* hidden = block.take_rows();
  block.preactivations(p.hidden_bias + first * n.hidden, p.weights,
                       [&](long at, Vector sum) { store(hidden + at, logistic(sum)); });
  return hidden;
}

}  // namespace

long Nade::row() const { return round_up(hidden, kWidth); }

void nade_logits(const Nade& n, const NadeParameters& p, const uint8_t* targets, float* logits) {
  Scratch scratch;
  const Readout readout(scratch, n, p.readout);
  start_logits(n, p.visible_bias, logits);
  for_each_block(n, targets, [&](long, Block& block, long first) {
    block.add_logits(hidden_vectors(block, n, p, first), readout, logits + first * n.keys);
  });
}

void nade_tangent(const Nade& n, const NadeParameters& p, const uint8_t* targets, const NadeParameters& d,
                  float* logits) {
  Scratch scratch;
  const Readout readout(scratch, n, p.readout), change(scratch, n, d.readout);
  start_logits(n, d.visible_bias, logits);
  for_each_block(n, targets, [&](long, Block& block, long first) {
    const float* hidden = hidden_vectors(block, n, p, first);
    float* tangent = block.take_rows();
    block.preactivations(d.hidden_bias + first * n.hidden, d.weights, [&](long at, Vector sum) {
      const Vector value = load(hidden + at);
      store(tangent + at, sum * (value - value * value));
    });
    block.add_logits(hidden, change, logits + first * n.keys);
    block.add_logits(tangent, readout, logits + first * n.keys);
  });
}

void nade_adjoint(const Nade& n, const NadeParameters& p, const uint8_t* targets, const float* cotangent,
                  const NadeCotangents& c) {
  Scratch scratch;
  const long size = round_up(n.keys, kKeysAtOnce) * n.row(), parts = parts_of(n);
  const Readout readout(scratch, n, p.readout);
  // Every part adds up its own cotangents of what all frames share, rows padded.
  float* sums = scratch.take(parts * 2 * size);
  std::memset(sums, 0, parts * 2 * size * sizeof(float));
  for_each_block(n, targets, [&](long part, Block& block, long first) {
    const float* hidden = hidden_vectors(block, n, p, first);
    float *errors = block.take_rows(), *readouts = sums + part * 2 * size, *weights = readouts + size;
    block.run_errors(cotangent + first * n.keys, readout, errors);
    block.add_readout(cotangent + first * n.keys, hidden, readouts);
    block.finish_errors(hidden, errors, c.hidden_bias + first * n.hidden, weights);
  });
  if (parts > 1) sum_of_rows(parts, 2 * size, sums, sums);
  transpose(sums, n.keys, n.hidden, n.row(), c.readout, n.keys);
  for (long key = 0; key < n.keys; ++key) {
    std::memcpy(c.weights + key * n.hidden, sums + size + key * n.row(), n.hidden * sizeof(float));
  }
  std::memset(c.hidden_bias + n.rows * n.hidden, 0, (n.all_rows - n.rows) * n.hidden * sizeof(float));
}

}  // namespace longspan
