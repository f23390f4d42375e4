import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.function.IntFunction;

/**
 * What is written: a few pages of values for each type, the same ones for every encoding and every
 * run. A value is a Boolean, Integer, Long, Float, Double or byte[].
 */
final class Patterns {
  private static final int[] INT_EDGES = {
    Integer.MIN_VALUE, Integer.MAX_VALUE, 0, -1, 1, Integer.MIN_VALUE, Integer.MIN_VALUE,
    Integer.MAX_VALUE, Integer.MAX_VALUE, Integer.MIN_VALUE + 1, Integer.MAX_VALUE - 1, 1 << 30, -(1 << 30)
  };
  private static final long[] LONG_EDGES = {
    Long.MIN_VALUE, Long.MAX_VALUE, 0, -1, 1, Long.MIN_VALUE, Long.MIN_VALUE, Long.MAX_VALUE,
    Long.MAX_VALUE, Long.MIN_VALUE + 1, Long.MAX_VALUE - 1, 1L << 62, -(1L << 62), 1L << 31, 1L << 32
  };
  static final double[] DOUBLE_SPECIALS = {
    0.0, -0.0, Double.NaN, Double.longBitsToDouble(0xfff8000000000000L), Double.POSITIVE_INFINITY,
    Double.NEGATIVE_INFINITY, 1.0, Double.NaN, Double.NaN, -1.0
  };
  static final double[] DOUBLE_EDGES = {
    Double.MIN_VALUE, -Double.MIN_VALUE, Double.MIN_NORMAL, Double.MIN_NORMAL / 3, Double.MAX_VALUE,
    -Double.MAX_VALUE, 0.1, 1e15 + 0.5, -1e15, 1e300, 1.0 / 3
  };
  private static final float[] FLOAT_SPECIALS = {
    0.0f, -0.0f, Float.NaN, Float.intBitsToFloat(0xffc00000), Float.POSITIVE_INFINITY,
    Float.NEGATIVE_INFINITY, 1.0f, Float.NaN, Float.NaN, -1.0f
  };
  private static final float[] FLOAT_EDGES = {
    Float.MIN_VALUE, -Float.MIN_VALUE, Float.MIN_NORMAL, Float.MIN_NORMAL / 3, Float.MAX_VALUE,
    -Float.MAX_VALUE, 0.1f, 8388607.5f, -1e15f, 1e30f, 1.0f / 3
  };
  private static final String[] WORDS = {
    "", "a", "on", "off", "\u00e4\u00f6\u00fc\u00df", "\u6e29\u5ea6", "\ud83d\ude80 rocket", "null",
    "\"quoted\", with a comma", "line one\nline two\r\n", "tab\there", "\u0000zero", "trailing "
  };

  private Patterns() {}

  /** The pages of a type, by its name; each begins behind the one before it. */
  static List<Page> of(String type) {
    switch (type) {
      case "BOOLEAN":
        return booleans();
      case "INT32":
        return integers();
      case "DATE":
        return dates();
      case "INT64":
        return longs();
      case "TIMESTAMP":
        return timestamps();
      case "FLOAT":
        return floats();
      case "DOUBLE":
        return doubles();
      case "TEXT":
      case "STRING":
        return texts();
      case "BLOB":
        return blobs();
      default:
        throw new IllegalArgumentException(type);
    }
  }

  private static List<Page> booleans() {
    Random random = new Random(1);
    Pages pages = new Pages();
    pages.add("constant", 20, i -> true);
    pages.add("alternating", 40, i -> i % 2 == 0);
    pages.add("runs", 80, i -> (i / 29) % 2 == 1 || i < 9);
    pages.add("random", 40, i -> random.nextBoolean());
    pages.add("single", 1, i -> true);
    return pages.list;
  }

  private static List<Page> integers() {
    Random random = new Random(2);
    int[] walk = {1000};
    Pages pages = new Pages();
    pages.add("extremes", INT_EDGES.length, i -> INT_EDGES[i]);
    pages.add("constant", 12, i -> 7);
    pages.add("increasing", 24, i -> -50 + 3 * i);
    pages.add("walk", 132, i -> walk[0] += random.nextInt(9) - 4);
    pages.add("random", 8, i -> random.nextInt());
    pages.add("runs", 24, i -> (int) Math.sqrt(4.0 * i));
    pages.add("single", 1, i -> -12345);
    return pages.list;
  }

  private static List<Page> dates() {
    Random random = new Random(3);
    int[] edges = {10000101, 99991231, 19691231, 19700101, 20000229, 20240229, 20231231, 20240101};
    Pages pages = new Pages();
    pages.add("extremes", edges.length, i -> edges[i]);
    pages.add("increasing", 12, i -> 20240201 + i);
    pages.add("constant", 9, i -> 20240229);
    pages.add("random", 12, i -> date(random));
    pages.add("single", 1, i -> 20200101);
    return pages.list;
  }

  private static int date(Random random) {
    return (1900 + random.nextInt(200)) * 10000 + (1 + random.nextInt(12)) * 100 + 1 + random.nextInt(28);
  }

  private static List<Page> longs() {
    Random random = new Random(4);
    long[] walk = {1L << 40};
    Pages pages = new Pages();
    pages.add("extremes", LONG_EDGES.length, i -> LONG_EDGES[i]);
    pages.add("constant", 12, i -> 1234567890123L);
    pages.add("increasing", 24, i -> 1600000000000L + 1000L * i);
    pages.add("walk", 132, i -> walk[0] += random.nextInt(9) - 4);
    pages.add("random", 8, i -> random.nextLong());
    pages.add("runs", 24, i -> (long) Math.sqrt(4.0 * i));
    pages.add("single", 1, i -> -1234567890123L);
    return pages.list;
  }

  private static List<Page> timestamps() {
    Random random = new Random(9);
    long[] walk = {1_700_000_000_000_000_000L};
    Pages pages = new Pages();
    pages.add("extremes", LONG_EDGES.length, i -> LONG_EDGES[i]);
    pages.add("walk", 30, i -> walk[0] += random.nextInt(1_000_000));
    pages.add("constant", 9, i -> 0L);
    pages.add("single", 1, i -> -1L);
    return pages.list;
  }

  private static List<Page> floats() {
    Random random = new Random(5);
    int[] walk = {2150};
    Pages pages = new Pages();
    pages.add("specials", FLOAT_SPECIALS.length, i -> FLOAT_SPECIALS[i]);
    pages.add("extremes", FLOAT_EDGES.length, i -> FLOAT_EDGES[i]);
    pages.add("constant", 12, i -> 21.5f);
    pages.add("decimals", 132, i -> (walk[0] += random.nextInt(21) - 10) / 100.0f);
    pages.add("random", 8, i -> random.nextFloat() * 2 - 1);
    pages.add("runs", 24, i -> (float) (i / 7));
    pages.add("single", 1, i -> -1.5f);
    return pages.list;
  }

  private static List<Page> doubles() {
    Random random = new Random(6);
    int[] walk = {2150};
    Pages pages = new Pages();
    pages.add("specials", DOUBLE_SPECIALS.length, i -> DOUBLE_SPECIALS[i]);
    pages.add("extremes", DOUBLE_EDGES.length, i -> DOUBLE_EDGES[i]);
    pages.add("constant", 12, i -> 21.5);
    pages.add("decimals", 132, i -> (walk[0] += random.nextInt(21) - 10) / 100.0);
    pages.add("random", 8, i -> random.nextDouble() * 2 - 1);
    pages.add("runs", 24, i -> (double) (i / 7));
    pages.add("single", 1, i -> -1.5);
    return pages.list;
  }

  private static List<Page> texts() {
    Random random = new Random(7);
    Pages pages = new Pages();
    pages.add("words", 26, i -> bytes(WORDS[i % WORDS.length]));
    pages.add("constant", 9, i -> bytes("same"));
    pages.add("empty", 9, i -> bytes(""));
    pages.add("numbered", 16, i -> bytes("value " + random.nextInt(20)));
    pages.add("single", 1, i -> bytes("\u00e9"));
    return pages.list;
  }

  private static List<Page> blobs() {
    Random random = new Random(8);
    Pages pages = new Pages();
    pages.add("random", 8, i -> noise(random, i * 3));
    pages.add("empty", 5, i -> new byte[0]);
    pages.add("binary", 20, i -> new byte[] {(byte) 0xff, (byte) i, 0, (byte) 0xc3, 0x28});
    pages.add("single", 1, i -> new byte[] {0});
    return pages.list;
  }

  static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  static byte[] noise(Random random, int length) {
    byte[] bytes = new byte[length];
    random.nextBytes(bytes);
    return bytes;
  }

  /** Collects pages, one behind another in time; every third one has irregular steps. */
  static final class Pages {
    final List<Page> list = new ArrayList<>();
    private final Random random = new Random(99);
    private long time;

    Pages() {
      this(-2500);
    }

    Pages(long start) {
      time = start;
    }

    void add(String pattern, int number, IntFunction<Object> value) {
      boolean irregular = list.size() % 3 == 2;
      long[] times = new long[number];
      Object[] values = new Object[number];
      for (int i = 0; i < number; i++) {
        time += irregular ? 1 + random.nextInt(300) : 10;
        times[i] = time;
        values[i] = value.apply(i);
      }
      time = (time / 1000 + 1) * 1000;
      list.add(new Page(pattern, times, values));
    }
  }
}
