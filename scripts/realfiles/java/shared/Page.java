import java.util.ArrayList;
import java.util.List;

/** The points of one page: times that rise, and a value (or null, in an aligned device) to each. */
final class Page {
  final String pattern;
  final long[] times;
  final Object[] values;

  Page(String pattern, long[] times, Object[] values) {
    if (times.length != values.length) {
      throw new IllegalArgumentException(pattern + ": " + times.length + " times, " + values.length + " values");
    }
    this.pattern = pattern;
    this.times = times;
    this.values = values;
  }

  /** The same page with every value null but those whose row is {@code keep} modulo {@code step}. */
  Page sparse(int keep, int step) {
    Object[] few = new Object[values.length];
    for (int i = 0; i < few.length; i++) {
      few[i] = step > 0 && i % step == keep ? values[i] : null;
    }
    return new Page(pattern, times, few);
  }

  /** The same page without rows {@code from} and later. */
  Page head(int from) {
    int n = Math.min(from, times.length);
    return new Page(pattern, java.util.Arrays.copyOf(times, n), java.util.Arrays.copyOf(values, n));
  }

  int points() {
    int n = 0;
    for (Object value : values) {
      n += value == null ? 0 : 1;
    }
    return n;
  }

  static List<List<Page>> oneChunk(List<Page> pages) {
    List<List<Page>> chunks = new ArrayList<>();
    chunks.add(pages);
    return chunks;
  }
}
