import java.io.File;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.function.BiPredicate;
import org.apache.tsfile.enums.TSDataType;
import org.apache.tsfile.file.metadata.enums.CompressionType;
import org.apache.tsfile.file.metadata.enums.TSEncoding;

/** What files there are: pairs of type and encoding, compressions, nulls, times, names. */
final class Cases {
  private static final List<String> NO_VALUES = Arrays.asList("VECTOR", "UNKNOWN", "OBJECT");
  /** Names that are only reserved: no version has a compressor for them. */
  private static final List<String> RESERVED = Arrays.asList("SDT", "PAA", "PLA", "LZO");
  final Probe probe;
  /** Type to encoding to the pages that come back. */
  private final Map<TSDataType, Map<TSEncoding, List<Page>>> pairs = new TreeMap<>();
  private final List<CompressionType> compressions = new ArrayList<>();

  Cases(File folder) {
    probe = new Probe(folder);
    for (CompressionType each : CompressionType.values()) {
      if (!RESERVED.contains(each.name())) {
        compressions.add(each);
      }
    }
    for (TSDataType type : TSDataType.values()) {
      if (NO_VALUES.contains(type.name())) {
        continue;
      }
      for (TSEncoding encoding : TSEncoding.values()) {
        List<Page> usable = probe.usable(type, encoding);
        if (!usable.isEmpty()) {
          pairs.computeIfAbsent(type, any -> new TreeMap<>()).put(encoding, usable);
        }
      }
    }
  }

  /** What some version writes otherwise than the next one, or not at all any more. */
  private static boolean changed(TSDataType type, TSEncoding encoding) {
    boolean real = type == TSDataType.FLOAT || type == TSDataType.DOUBLE;
    boolean integer = type == TSDataType.INT32 || type == TSDataType.INT64;
    return real && Arrays.asList("RLE", "TS_2DIFF", "RLBE").contains(encoding.name())
        || integer && encoding == TSEncoding.REGULAR;
  }

  /** Types that came after the first six, with the encodings that are used most. */
  private static boolean later(TSDataType type, TSEncoding encoding) {
    return type.ordinal() > TSDataType.TEXT.ordinal()
        && Arrays.asList("PLAIN", "TS_2DIFF", "DICTIONARY").contains(encoding.name());
  }

  List<Case> all() {
    List<Case> cases = new ArrayList<>();
    cases.add(pairs("pairs", (type, encoding) -> true, Integer.MAX_VALUE));
    cases.add(pairs("short_pairs", (type, encoding) -> true, 12));
    cases.add(pairs("changed_pairs", Cases::changed, Integer.MAX_VALUE));
    cases.add(pairs("later_types", Cases::later, 16));
    cases.add(precision("precision"));
    cases.add(compressions("compressions"));
    cases.add(texts("long_texts"));
    cases.add(times("times"));
    cases.add(names("names"));
    cases.add(new Case("no_devices"));
    for (TSEncoding encoding : Arrays.asList(TSEncoding.PLAIN, TSEncoding.RLE)) {
      cases.add(times(low(encoding) + "_times").timeEncoding(encoding));
    }
    if (AlignedDevice.EXISTS) {
      cases.add(alignedPairs("aligned_pairs"));
      cases.add(nulls("nulls"));
      if (Api.READS_TIME_ENCODING) {
        cases.add(alignedTimes("aligned_times"));
      }
    }
    return cases;
  }

  /** Another one for each encoding of a type, so that all are met. */
  private CompressionType compression(TSDataType type, TSEncoding encoding) {
    return compressions.get((type.ordinal() * 5 + encoding.ordinal()) % compressions.size());
  }

  /**
   * Types with every encoding they have: a chunk of many pages, and one of a single page.
   *
   * @param most rows of a page; a quarter as many pages of a series
   */
  private Case pairs(String name, BiPredicate<TSDataType, TSEncoding> wanted, int most) {
    Case file = new Case(name);
    for (TSDataType type : pairs.keySet()) {
      List<Series> all = new ArrayList<>();
      for (Map.Entry<TSEncoding, List<Page>> encoding : pairs.get(type).entrySet()) {
        if (!wanted.test(type, encoding.getKey())) {
          continue;
        }
        List<Page> pages = new ArrayList<>();
        encoding.getValue().stream().limit(most / 4).forEach(page -> pages.add(page.head(most)));
        List<List<Page>> chunks = new ArrayList<>();
        int cut = pages.size() > 2 ? pages.size() - 1 : pages.size();
        chunks.add(pages.subList(0, cut));
        if (cut < pages.size()) {
          chunks.add(pages.subList(cut, pages.size()));
        }
        CompressionType compression = compression(type, encoding.getKey());
        all.add(new Series(low(encoding.getKey()), type, encoding.getKey(), compression, chunks));
      }
      file.plain("root.pairs.of_" + low(type), all);
    }
    return file;
  }

  /** Reals that keep other than two decimals. */
  private Case precision(String name) {
    Case file = new Case(name);
    for (TSDataType type : Arrays.asList(TSDataType.FLOAT, TSDataType.DOUBLE)) {
      List<Series> all = new ArrayList<>();
      for (TSEncoding encoding : Arrays.asList(TSEncoding.RLE, TSEncoding.TS_2DIFF)) {
        for (String decimals : new String[] {"0", "1", "6"}) {
          List<Page> pages = new ArrayList<>();
          pairs.get(type).get(encoding).stream()
              .filter(page -> Arrays.asList("decimals", "random").contains(page.pattern))
              .forEach(page -> pages.add(page.head(16)));
          Map<String, String> properties = Collections.singletonMap("max_point_number", decimals);
          String column = low(encoding) + "_" + decimals;
          all.add(new Series(column, type, encoding, CompressionType.SNAPPY, properties, Page.oneChunk(pages)));
        }
      }
      file.plain("root.precision.of_" + low(type), all);
    }
    return file;
  }

  /** All in aligned devices: a few short pages, each encoding with nulls in other places. */
  private Case alignedPairs(String name) {
    Case file = new Case(name);
    for (Map.Entry<TSDataType, Map<TSEncoding, List<Page>>> type : pairs.entrySet()) {
      List<Series> columns = new ArrayList<>();
      int number = 0;
      for (Map.Entry<TSEncoding, List<Page>> encoding : type.getValue().entrySet()) {
        CompressionType compression = compression(type.getKey(), encoding.getKey());
        List<Page> pages = alignedPages(type.getKey(), encoding.getValue(), number++);
        columns.add(series(low(encoding.getKey()), type.getKey(), encoding.getKey(), compression, pages));
      }
      file.aligned("root.aligned.of_" + low(type.getKey()), new AlignedGroup(columns));
    }
    return file;
  }

  private static List<Page> alignedPages(TSDataType type, List<Page> usable, int number) {
    List<Page> pages = new ArrayList<>();
    for (Page page : Patterns.of(type.name()).subList(0, 3)) {
      boolean comesBack = usable.stream().anyMatch(each -> each.pattern.equals(page.pattern));
      pages.add(comesBack ? page.head(14).sparse(number % 2, 2 + number % 2) : page.head(14).sparse(0, 0));
    }
    return pages;
  }

  /** Every compression with pages that shrink well, and such that do not, plain and aligned. */
  private Case compressions(String name) {
    Case file = new Case(name);
    for (CompressionType compression : compressions) {
      Random random = new Random(20);
      Patterns.Pages shrinks = new Patterns.Pages(1_600_000_000_000L);
      shrinks.add("constant", 40, i -> 5L);
      shrinks.add("repeating", 40, i -> (long) (i % 7) << 32);
      Patterns.Pages grows = new Patterns.Pages(1_600_000_000_000L);
      grows.add("noise", 9, i -> Patterns.noise(random, 9));
      grows.add("single", 1, i -> Patterns.bytes("x"));
      file.plain(
          "root.compression." + low(compression),
          Arrays.asList(
              series("shrinks", TSDataType.INT64, TSEncoding.PLAIN, compression, shrinks.list),
              series("grows", TSDataType.TEXT, TSEncoding.PLAIN, compression, asText(grows.list))));
      if (AlignedDevice.EXISTS) {
        List<Page> pages = shrinks.list;
        List<Page> few = Arrays.asList(pages.get(0).head(20).sparse(1, 2), pages.get(1).head(20).sparse(0, 0));
        Series column = series("c", TSDataType.INT64, TSEncoding.TS_2DIFF, compression, few);
        file.aligned(
            "root.compression.aligned." + low(compression),
            new AlignedGroup(Collections.singletonList(column)).time(TSEncoding.TS_2DIFF, compression));
      }
    }
    return file;
  }

  private static List<Page> asText(List<Page> pages) {
    for (Page page : pages) {
      for (int i = 0; i < page.values.length; i++) {
        page.values[i] = Patterns.bytes(Rows.hex((byte[]) page.values[i]));
      }
    }
    return pages;
  }

  /** Texts of up to 70,000 bytes, more than a page holds; STRING less, its statistics hold four. */
  private Case texts(String name) {
    Case file = new Case(name);
    List<Series> all = new ArrayList<>();
    for (TSDataType type : pairs.keySet()) {
      if (Arrays.asList("TEXT", "STRING", "BLOB").contains(type.name())) {
        for (TSEncoding encoding : pairs.get(type).keySet()) {
          Patterns.Pages pages = new Patterns.Pages();
          int longest = type.name().equals("TEXT") ? 5900 : type.name().equals("BLOB") ? 5000 : 40;
          int[] times = {1, 12, 14, longest, 3};
          pages.add("long", 5, i -> repeated("0123456789\u00e9", times[i]));
          all.add(series(low(type) + "_" + low(encoding), type, encoding, strongest(), pages.list));
        }
      }
    }
    return file.plain("root.text.d", all);
  }

  private CompressionType strongest() {
    return compressions.stream().filter(each -> each.name().equals("GZIP")).findFirst().get();
  }

  private static byte[] repeated(String text, int times) {
    StringBuilder all = new StringBuilder();
    for (int i = 0; i < times; i++) {
      all.append(text);
    }
    return Patterns.bytes(all.toString());
  }

  private static final long[][] TIMES = {
    {Long.MIN_VALUE + 1, Long.MIN_VALUE + 2, -(1L << 62), -1, 0, 1, 1L << 62, Long.MAX_VALUE - 1},
    {-3_000_000_000_000L, -2_999_999_999_999L, -1_000_000_000_000L, -999_999_999_000L},
    {1_700_000_000_000_000_000L, 1_700_000_000_000_000_001L, 1_700_000_000_000_001_000L, 1_800_000_000_000_000_000L},
    {42},
  };

  /** Times at the ends of their range, in nanoseconds, negative, and a single one. */
  private Case times(String name) {
    Case file = new Case(name);
    for (int i = 0; i < TIMES.length; i++) {
      List<Page> pages = Collections.singletonList(countingPage(TIMES[i]));
      file.plain(
          "root.times.t" + i,
          Collections.singletonList(
              series("s", TSDataType.INT32, TSEncoding.TS_2DIFF, CompressionType.UNCOMPRESSED, pages)));
    }
    return file;
  }

  /** Time columns of aligned devices in each encoding that a time column can have. */
  private Case alignedTimes(String name) {
    Case file = new Case(name);
    for (TSEncoding encoding : pairs.get(TSDataType.INT64).keySet()) {
      if (encoding == TSEncoding.REGULAR) {
        continue; // made for one step between all values: other times make it fail
      }
      for (int i = 0; i < TIMES.length; i++) {
        if (i == 0 && !probe.outcomes.get("INT64 " + encoding).get("extremes").equals("exact")) {
          continue;
        }
        if (i > 0 && !probe.outcomes.get("INT64 " + encoding).get("random").equals("exact")) {
          continue;
        }
        Series column =
            series(
                "s", TSDataType.INT32, TSEncoding.PLAIN, CompressionType.UNCOMPRESSED,
                Collections.singletonList(countingPage(TIMES[i])));
        file.aligned(
            "root.times." + low(encoding) + ".t" + i,
            new AlignedGroup(Collections.singletonList(column)).time(encoding, CompressionType.SNAPPY));
      }
    }
    return file;
  }

  private static Page countingPage(long[] times) {
    Object[] values = new Object[times.length];
    for (int i = 0; i < values.length; i++) {
      values[i] = i;
    }
    return new Page("counting", times, values);
  }

  /** Many devices and series, so that the index has inner nodes; names that need quotes. */
  private Case names(String name) {
    Case file = new Case(name).degree(4);
    for (int i = 0; i < 12; i++) {
      List<Series> all = new ArrayList<>();
      for (int j = 0; j < (i == 5 ? 20 : 2); j++) {
        all.add(
            series("s" + j, TSDataType.INT32, TSEncoding.PLAIN, CompressionType.UNCOMPRESSED,
                Collections.singletonList(countingPage(new long[] {i * 1000 + j}))));
      }
      file.plain("root.names.d" + i, all);
    }
    for (String device : new String[] {"root.names.`a.b`", "root.names.`1`.x", "root.names.\u6e29\u5ea6.x.y.z"}) {
      file.plain(
          device,
          Collections.singletonList(
              series("`m.1`", TSDataType.INT32, TSEncoding.RLE, CompressionType.SNAPPY,
                  Collections.singletonList(countingPage(new long[] {1, 2, 3})))));
    }
    return file;
  }

  /** Nulls of an aligned device: none, all, whole pages, whole chunks, columns that come later. */
  private Case nulls(String name) {
    List<Page> pages = Patterns.of("DOUBLE").subList(2, 5);
    List<Page> none = new ArrayList<>();
    List<Page> first = new ArrayList<>();
    List<Page> last = new ArrayList<>();
    List<Page> middle = new ArrayList<>();
    List<Page> all = new ArrayList<>();
    for (int i = 0; i < pages.size(); i++) {
      Page page = pages.get(i).head(i == 0 ? 129 : 20);
      Page empty = page.sparse(0, 0);
      all.add(page);
      none.add(empty);
      first.add(i == 0 ? page.sparse(2, 3) : empty);
      last.add(i == 2 ? page.sparse(0, 7) : empty);
      middle.add(i == 1 ? page : empty);
    }
    return new Case(name)
        .aligned("root.nulls.d0", group(all, none, first, last, middle))
        .aligned("root.nulls.empty", group(none))
        .aligned("root.nulls.two_chunks", group(all, none, none), group(later(none), later(all), later(none)));
  }

  private static AlignedGroup group(List<?>... columns) {
    List<Series> all = new ArrayList<>();
    for (int i = 0; i < columns.length; i++) {
      @SuppressWarnings("unchecked")
      List<Page> pages = (List<Page>) columns[i];
      all.add(series("c" + i, TSDataType.DOUBLE, TSEncoding.GORILLA, CompressionType.LZ4, pages));
    }
    return new AlignedGroup(all).time(TSEncoding.TS_2DIFF, CompressionType.LZ4);
  }

  private static List<Page> later(List<Page> pages) {
    List<Page> moved = new ArrayList<>();
    for (Page page : pages) {
      moved.add(new Page(page.pattern, Arrays.stream(page.times).map(time -> time + 100_000).toArray(), page.values));
    }
    return moved;
  }

  private static Series series(
      String name, TSDataType type, TSEncoding encoding, CompressionType compression, List<Page> pages) {
    return new Series(name, type, encoding, compression, Page.oneChunk(pages));
  }

  private static String low(Enum<?> each) {
    return each.name().toLowerCase(java.util.Locale.ROOT);
  }
}
