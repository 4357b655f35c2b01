// A few threads that wait for parts of a kernel. Work is claimed, never assigned: the calling thread takes whatever no
// worker has taken yet, so a worker that the system is slow to wake, or that a fork left behind, costs nothing.
#pragma once

namespace longspan {

// How many threads a kernel may use, the caller's included; 1 until set.
void set_threads(long count);
long threads();

namespace detail {
void run_parts(long parts, void (*call)(const void* body, long part), const void* body);
}

// Calls body(part) once for every part in [0, parts), in any order and from several threads. The first exception is
// thrown on to the caller, after all parts are done.
template <class Body>
void in_parallel(long parts, const Body& body) {
  detail::run_parts(parts, [](const void* b, long part) { (*static_cast<const Body*>(b))(part); }, &body);
}

struct Range {
  long begin, end;
  long size() const { return end - begin; }
};

// One of several nearly equal parts of [0, count), cut at multiples of `unit`.
inline Range part_of(long count, long parts, long part, long unit = 1) {
  const long units = (count + unit - 1) / unit;
  const long begin = units * part / parts * unit, end = units * (part + 1) / parts * unit;
  return {begin < count ? begin : count, end < count ? end : count};
}

// Threads worth waking for this many elementary operations: fewer take less time than the waking.
inline long parts_for(long operations) { return operations < (1 << 17) ? 1 : threads(); }

// Between two looks at a flag that another thread will set: brief at first, then giving the processor away.
class Patience {
 public:
  void wait();

 private:
  long looks_ = 0;
};

}  // namespace longspan
