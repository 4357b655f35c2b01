// Rows of bytes that are nearly all zero: the keys of a frame.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace longspan {

// Calls body(index, value) for each byte that is not zero, looking at eight bytes at a time.
template <class Body>
inline void for_each_nonzero(const uint8_t* bytes, long count, Body body) {
  for (long start = 0; start < count; start += 8) {
    uint64_t group = 0;
    if (count - start >= 8) {
      std::memcpy(&group, bytes + start, 8);
    } else {
      std::memcpy(&group, bytes + start, count - start);
    }
    while (group != 0) {
      const int skip = __builtin_ctzll(group) / 8;
      const long index = start + skip;
      body(index, bytes[index]);
      group &= ~(0xffull << (8 * skip));
    }
  }
}

}  // namespace longspan
