// Vectors of floats as wide as the instruction set this file is compiled for, and the functions the kernels apply
// to them, with a loop over the few bytes of a row that are not zero. Everything is written with GCC/Clang vector
// extensions; intrinsics appear only where the extensions have no word (masked memory access, the denormal mode).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace longspan {

// LONGSPAN_WIDTH may be set from outside, to test the code for one width on a machine with another.
#if defined(LONGSPAN_WIDTH)
constexpr int kWidth = LONGSPAN_WIDTH;
#elif defined(__AVX512F__)
#define LONGSPAN_AVX_512
constexpr int kWidth = 16;
#elif defined(__AVX2__)
#define LONGSPAN_AVX_256
constexpr int kWidth = 8;
#else
constexpr int kWidth = 4;
#endif

typedef float Vector __attribute__((vector_size(kWidth * 4)));
typedef int32_t Integers __attribute__((vector_size(kWidth * 4)));
typedef float UnalignedVector __attribute__((vector_size(kWidth * 4), aligned(4), may_alias));

constexpr long round_up(long count, long multiple) { return (count + multiple - 1) / multiple * multiple; }

// Exact, unlike 0 + value, and folds to one instruction.
inline Vector broadcast(float value) { return value - Vector{}; }
inline Vector load(const float* source) { return *reinterpret_cast<const UnalignedVector*>(source); }
inline void store(float* target, Vector value) { *reinterpret_cast<UnalignedVector*>(target) = value; }

#if defined(LONGSPAN_AVX_256)
inline __m256i first_lanes(long count) {
  alignas(32) static constexpr int32_t window[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(window + 8 - count));
}
#endif

// The first `count` (at most kWidth) floats; the other lanes are zero and their memory is not touched.
inline Vector load_first(const float* source, long count) {
#if defined(LONGSPAN_AVX_512)
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), source);
#elif defined(LONGSPAN_AVX_256)
  return _mm256_maskload_ps(source, first_lanes(count));
#else
  Vector value{};
  for (long i = 0; i < count; ++i) value[i] = source[i];
  return value;
#endif
}

inline void store_first(float* target, Vector value, long count) {
#if defined(LONGSPAN_AVX_512)
  _mm512_mask_storeu_ps(target, static_cast<__mmask16>((1u << count) - 1), value);
#elif defined(LONGSPAN_AVX_256)
  _mm256_maskstore_ps(target, first_lanes(count), value);
#else
  for (long i = 0; i < count; ++i) target[i] = value[i];
#endif
}

// 0, 1, 2, ...
inline Integers lanes() {
  Integers lane{};
  for (int i = 0; i < kWidth; ++i) lane[i] = i;
  return lane;
}

inline Vector first_lanes_of(Vector value, long count, float others = 0.0f) {
  return lanes() < static_cast<int32_t>(count) ? value : broadcast(others);
}

// Calls body(offset, load, store) for whole vectors and once more, with masked access, for what is left.
template <class Body>
inline void for_each_vector(long count, Body body) {
  long i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    body(i, [](const float* p) { return load(p); }, [](float* p, Vector v) { store(p, v); });
  }
  if (const long rest = count - i) {
    body(
        i, [rest](const float* p) { return load_first(p, rest); },
        [rest](float* p, Vector v) { store_first(p, v, rest); });
  }
}

// Units of `unit` lanes of two vectors in turn, from the lower (half = 0) or upper half of each block of `block` lanes.
template <int unit, int block, int half, int... i>
inline Vector interleave(Vector a, Vector b, std::integer_sequence<int, i...>) {
#define LONGSPAN_SOURCE \
  (i / block * block + (half * (block / unit / 2) + i % block / unit / 2) * unit + i % unit + i / unit % 2 * kWidth)
#if defined(__clang__)
  return __builtin_shufflevector(a, b, LONGSPAN_SOURCE...);
#else
  return __builtin_shuffle(a, b, Integers{LONGSPAN_SOURCE...});
#endif
#undef LONGSPAN_SOURCE
}
template <int unit, int block, int half>
inline Vector interleave(Vector a, Vector b) {
  return interleave<unit, block, half>(a, b, std::make_integer_sequence<int, kWidth>());
}

// Exchanges rows and columns of a square of vectors: each round is a perfect shuffle of its lanes.
inline void transpose(Vector (&rows)[kWidth]) {
#pragma GCC unroll 4
  for (int round = 1; round < kWidth; round *= 2) {
    Vector next[kWidth];
#pragma GCC unroll 8
    for (int i = 0; i < kWidth / 2; ++i) {
      next[2 * i] = interleave<1, kWidth, 0>(rows[i], rows[i + kWidth / 2]);
      next[2 * i + 1] = interleave<1, kWidth, 1>(rows[i], rows[i + kWidth / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; ++i) rows[i] = next[i];
  }
}

// A matrix with rows and columns exchanged: whole squares in registers, what is left at the edges number by number.
inline void transpose(const float* source, long rows, long columns, long source_row, float* target, long target_row) {
  for (long i = 0; i < rows; i += kWidth) {
    for (long j = 0; j < columns; j += kWidth) {
      const float* from = source + i * source_row + j;
      float* to = target + j * target_row + i;
      const long height = std::min<long>(kWidth, rows - i), width = std::min<long>(kWidth, columns - j);
      if (height == kWidth && width == kWidth) {
        Vector square[kWidth];
#pragma GCC unroll 16
        for (long r = 0; r < kWidth; ++r) square[r] = load(from + r * source_row);
        longspan::transpose(square);
#pragma GCC unroll 16
        for (long r = 0; r < kWidth; ++r) store(to + r * target_row, square[r]);
      } else {
        for (long r = 0; r < height; ++r) {
          for (long c = 0; c < width; ++c) to[c * target_row + r] = from[r * source_row + c];
        }
      }
    }
  }
}

// Halves the number of partial sums: two of each vector become one, those of a and b in turn.
template <int unit, int block>
inline Vector join(Vector a, Vector b) {
  return interleave<unit, block, 0>(a, b) + interleave<unit, block, 1>(a, b);
}

// Lane i of the result is the sum of the lanes of rows[i]. First within blocks of four lanes, which every instruction
// set shuffles cheaply, then across blocks.
inline Vector sums(const Vector (&rows)[kWidth]) {
  Vector fours[kWidth / 4];
#pragma GCC unroll 4
  for (int i = 0; i < kWidth; i += 4) {
    fours[i / 4] = join<1, 4>(join<1, 4>(rows[i], rows[i + 2]), join<1, 4>(rows[i + 1], rows[i + 3]));
  }
  if constexpr (kWidth == 4) return fours[0];
  if constexpr (kWidth == 8) return join<4, 8>(fours[0], fours[1]);
  if constexpr (kWidth == 16) {
    return join<4, 16>(join<4, 16>(fours[0], fours[2]), join<4, 16>(fours[1], fours[3]));
  }
}

inline float sum(Vector v) {
  for (int half = kWidth / 2; half > 0; half /= 2) v = join<1, kWidth>(v, v);
  return v[0];
}

// Bounds let a NaN fall through to the result, as XLA's do; the x86 instructions return their second operand for it.
// (The masked forms compile to the plain ones, of which GCC 12 warns that they read an uninitialized register.)
inline Vector at_most(Vector x, float bound) {
#if defined(LONGSPAN_AVX_512)
  return _mm512_maskz_min_ps(0xffff, broadcast(bound), x);
#elif defined(LONGSPAN_AVX_256)
  return _mm256_min_ps(broadcast(bound), x);
#else
  return x > bound ? broadcast(bound) : x;
#endif
}
inline Vector at_least(Vector x, float bound) {
#if defined(LONGSPAN_AVX_512)
  return _mm512_maskz_max_ps(0xffff, broadcast(bound), x);
#elif defined(LONGSPAN_AVX_256)
  return _mm256_max_ps(broadcast(bound), x);
#else
  return x < bound ? broadcast(bound) : x;
#endif
}
inline Vector absolute(Vector x) { return (Vector)((Integers)x & 0x7fffffff); }

// Neighboring terms are joined pair by pair: half as long a chain of additions as Horner's, which is what counts.
template <int count>
inline Vector polynomial(Vector x, const float (&coefficients)[count]) {
  Vector terms[count];
  for (int i = 0; i < count; ++i) terms[i] = broadcast(coefficients[i]);
#pragma GCC unroll 4
  for (int left = count; left > 1; left = (left + 1) / 2, x = x * x) {
#pragma GCC unroll 8
    for (int i = 0; i < left / 2; ++i) terms[i] = terms[2 * i] + terms[2 * i + 1] * x;
    if (left % 2) terms[left / 2] = terms[left - 1];
  }
  return terms[0];
}

// e^x to 3e-7 relative for |x| <= 87: x = n ln 2 + r, minimax polynomial in r, n into the exponent bits.
inline Vector bounded_exponential(Vector x) {
  static constexpr float coefficients[] = {1.0f, 1.0f, 0.49999232f, 0.16667115f, 0.041890146f, 0.008312521f};
  constexpr float shift = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  const Vector shifted = x * 1.44269504f + shift, n = shifted - shift;
  const Vector r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  const Vector scale = (Vector)(((Integers)shifted << 23) + (127 << 23));
  return polynomial(r, coefficients) * scale;
}

// e^x for x <= 0, zero where float32 has no normal number for it.
inline Vector decay(Vector x) {
  const Vector value = bounded_exponential(at_least(x, -87.0f));
  return x < -87.0f ? Vector{} : value;
}

// tanh to 4e-7 relative: odd rational minimax on |x| < 9.02, beyond which it is 1 in float32.
inline Vector hyperbolic_tangent(Vector x) {
  static constexpr float numerator[] = {0.99999992f, 0.13349240f, 3.4565745e-3f, 1.9917288e-5f, 1.2310975e-8f};
  static constexpr float denominator[] = {1.0f, 0.46682573f, 2.5731858e-2f, 3.2196466e-4f, 7.3668167e-7f};
  const Vector bounded = at_most(at_least(x, -9.02f), 9.02f), square = bounded * bounded;
  const Vector value = bounded * polynomial(square, numerator) / polynomial(square, denominator);
  return at_most(at_least(value, -1.0f), 1.0f);
}

inline Vector logistic(Vector x) { return 1.0f / (1.0f + bounded_exponential(at_most(at_least(-x, -87.0f), 87.0f))); }

// log(1 + u) for u in [0, 1] to 3e-7 relative: u times a minimax polynomial.
inline Vector log_one_plus(Vector u) {
  static constexpr float coefficients[] = {0.99999997f,  -0.49999491f, 0.33319066f,   -0.24842787f, 0.19105356f,
                                           -0.13662019f, 0.078212767f, -0.029497718f, 0.0052309275f};
  return u * polynomial(u, coefficients);
}

// Decaying gradients reach denormal numbers, which cost many times a normal operation; XLA flushes them too.
class FlushDenormals {
#if defined(__x86_64__)
 public:
  FlushDenormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | 0x8040); }
  ~FlushDenormals() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
#elif defined(__aarch64__)
 public:
  FlushDenormals() {
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    asm volatile("msr fpcr, %0" ::"r"(saved_ | (1ull << 24)));
  }
  ~FlushDenormals() { asm volatile("msr fpcr, %0" ::"r"(saved_)); }

 private:
  uint64_t saved_;
#else
 public:
  FlushDenormals() {}
#endif
};

// Bit i tells whether byte i of up to 64 is not zero. Which keys of a frame are down is hard to foresee, and a wrong
// guess costs more than looking at all of them, so there is no branch on a byte.
inline uint64_t nonzero(const uint8_t* bytes, long count) {
#if defined(LONGSPAN_AVX_512)
  const __m512i all = _mm512_maskz_loadu_epi8(~0ull >> (64 - count), bytes);
  return _mm512_test_epi8_mask(all, all);
#else
  uint64_t bits = 0;
  for (long start = 0; start < count; start += 8) {
    uint64_t group = 0;
    std::memcpy(&group, bytes + start, count - start < 8 ? count - start : 8);
    constexpr uint64_t low = 0x7f7f7f7f7f7f7f7full;
    const uint64_t high = (((group & low) + low) | group) & ~low;  // the top bit of each byte that is not zero
    bits |= ((high >> 7) * 0x0102040810204080ull >> 56) << start;
  }
  return bits;
#endif
}

// Calls body(index, value) for each byte that is not zero.
template <class Body>
inline void for_each_nonzero(const uint8_t* bytes, long count, Body body) {
  for (long start = 0; start < count; start += 64) {
    const long size = count - start < 64 ? count - start : 64;
    for (uint64_t bits = nonzero(bytes + start, size); bits != 0; bits &= bits - 1) {
      const long index = start + __builtin_ctzll(bits);
      body(index, bytes[index]);
    }
  }
}

// Writes down where `at(offset, load)`, vectors of `size` numbers, are not zero; `places` has room for a vector more.
// It gives up, with some count above `most`, as soon as there are more than that: a dense vector is recognised early.
template <class At>
inline long find_places(long size, long most, int32_t first, const At& at, int32_t* places) {
  long count = 0;
  const auto look = [&](long j, const auto& load) {
    const Vector values = at(j, load);
#if defined(LONGSPAN_AVX_512)
    const __mmask16 found = _mm512_cmp_ps_mask(values, _mm512_setzero_ps(), _CMP_NEQ_UQ);
    const __m512i numbers = _mm512_add_epi32((__m512i)lanes(), _mm512_set1_epi32(first + static_cast<int32_t>(j)));
    _mm512_storeu_si512(places + count, _mm512_maskz_compress_epi32(found, numbers));
    count += __builtin_popcount(found);
#else
    for (int i = 0; i < kWidth; ++i) {  // no branch on a number, which would be hard to foresee
      places[count] = first + static_cast<int32_t>(j + i);
      count += values[i] != 0.0f;
    }
#endif
  };
  long j = 0;
  for (; j + kWidth <= size && count <= most; j += kWidth) look(j, [](const float* p) { return load(p); });
  const long rest = size - j;
  if (rest > 0 && count <= most) look(j, [rest](const float* p) { return load_first(p, rest); });
  return count;
}

inline long nonzeros(const float* x, long size, long most, int32_t* places) {
  return find_places(size, most, 0, [=](long j, const auto& load) { return load(x + j); }, places);
}

constexpr long kFewColumnsOf = 16;  // numbers are picked one by one if there are at most a sixteenth of them

inline float sum_of_squares(const float* values, long count) {
  constexpr long at_once = 4 * kWidth;
  const long whole = count - count % at_once;
  Vector sums[4] = {};
  for (long i = 0; i < whole; i += at_once) {
    for (int k = 0; k < 4; ++k) {
      const Vector value = load(values + i + k * kWidth);
      sums[k] += value * value;
    }
  }
  for_each_vector(count - whole, [&](long i, auto load, auto) {
    const Vector value = load(values + whole + i);
    sums[0] += value * value;
  });
  return sum(sums[0] + sums[1] + (sums[2] + sums[3]));
}

}  // namespace longspan
