// What a core of this machine can do at most: multiplications and additions in registers, and floats read from memory
// of a given size, which then lives in the nearest cache that holds it. Compiled by bounds.py for this very processor.
#include <chrono>

#if defined(__AVX512F__)
constexpr int kWidth = 16;
#elif defined(__AVX__)
constexpr int kWidth = 8;
#else
constexpr int kWidth = 4;
#endif
typedef float Vector __attribute__((vector_size(kWidth * 4), may_alias));

namespace {
constexpr int kSums = 12;  // enough to hide the latency of an addition, few enough for the registers

template <class Body>
double seconds(Body body) {
  const auto began = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

void use(Vector (&sums)[kSums]) {
#pragma GCC unroll 12
  for (Vector& sum : sums) asm volatile("" : "+x"(sum));
}
}  // namespace

// Seconds of `rounds` rounds of 12 vector multiplications with additions, and the operations of each.
extern "C" double multiply_add(long rounds, long* operations) {
  Vector sums[kSums] = {}, factor = {}, other = {};
  asm volatile("" : "+x"(factor), "+x"(other));
  *operations = 2l * kSums * kWidth;
  return seconds([&] {
    for (long i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
      for (Vector& sum : sums) sum += factor * other;
      use(sums);
    }
  });
}

// Seconds of reading `count` floats, a multiple of 192 on a cache line's boundary, `rounds` times.
extern "C" double read_floats(const float* data, long count, long rounds) {
  return seconds([&] {
    Vector sums[kSums] = {};
    for (long i = 0; i < rounds; ++i) {
      for (long j = 0; j < count; j += kSums * kWidth) {
#pragma GCC unroll 12
        for (int k = 0; k < kSums; ++k) sums[k] += *reinterpret_cast<const Vector*>(data + j + k * kWidth);
      }
      use(sums);
    }
  });
}
