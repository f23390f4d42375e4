import java.io.Closeable;
import java.io.File;
import java.io.IOException;
import java.io.StringWriter;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.tsfile.enums.TSDataType;
import org.apache.tsfile.file.metadata.enums.CompressionType;
import org.apache.tsfile.file.metadata.enums.TSEncoding;
import org.apache.tsfile.write.writer.TsFileIOWriter;

/**
 * Tries every pattern with every encoding: which the writer refuses, which come back as they were,
 * which come back changed, and which the library cannot read again.
 */
final class Probe {
  static final String DEVICE = "root.probe.d";
  private final File folder;
  /** Of a pair (type, encoding): what became of each pattern. Pairs without a writer are absent. */
  final Map<String, Map<String, String>> outcomes = new LinkedHashMap<>();

  Probe(File folder) {
    this.folder = folder;
  }

  /** The pages that the library reads back, none where the pair does not exist. */
  List<Page> usable(TSDataType type, TSEncoding encoding) {
    List<Page> good = new ArrayList<>();
    Map<String, String> outcome = new LinkedHashMap<>();
    for (Page page : Patterns.of(type.name())) {
      String found = attempt(type, encoding, page);
      outcome.put(page.pattern, found);
      if (found.equals("exact") || found.startsWith("changed")) {
        good.add(page);
      }
    }
    outcomes.put(type + " " + encoding, outcome);
    return good;
  }

  private String attempt(TSDataType type, TSEncoding encoding, Page page) {
    File path = new File(folder, "probe.tsfile");
    path.delete();
    List<List<Page>> chunks = Page.oneChunk(Collections.singletonList(page));
    Series series = new Series("s", type, encoding, CompressionType.UNCOMPRESSED, chunks);
    try {
      write(path, series);
    } catch (Throwable refused) {
      return "refused: " + message(refused);
    }
    StringWriter text = new StringWriter();
    try {
      Query.readSeries(path, DEVICE, series.name, type, new Rows(text));
    } catch (Throwable unreadable) {
      return "unreadable: " + message(unreadable);
    }
    return compare(type, page, text.toString());
  }

  private static void write(File path, Series series) throws IOException {
    TsFileIOWriter file = new TsFileIOWriter(path);
    try (Closeable closing = file::close) {
      PlainDevice.write(file, DEVICE, Collections.singletonList(series));
      file.endFile();
    }
  }

  private static String compare(TSDataType type, Page page, String text) {
    String[] lines = text.isEmpty() ? new String[0] : text.split("\n");
    if (lines.length != page.times.length) {
      return "unreadable: " + lines.length + " of " + page.times.length + " points come back";
    }
    int changed = 0;
    for (int i = 0; i < lines.length; i++) {
      String[] fields = lines[i].split("\t", -1);
      if (!fields[1].equals(String.valueOf(page.times[i]))) {
        return "unreadable: other times come back";
      }
      changed += fields[4].equals(Rows.text(type.name(), page.values[i])) ? 0 : 1;
    }
    return changed == 0 ? "exact" : "changed: " + changed + " of " + lines.length;
  }

  static String message(Throwable thrown) {
    Throwable root = thrown;
    while (root.getCause() != null && root.getCause() != root) {
      root = root.getCause();
    }
    return root.getClass().getSimpleName() + (root.getMessage() == null ? "" : " " + root.getMessage());
  }
}
