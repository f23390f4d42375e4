import java.io.Closeable;
import java.io.File;
import java.io.IOException;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.tsfile.common.conf.TSFileConfig;
import org.apache.tsfile.common.conf.TSFileDescriptor;
import org.apache.tsfile.file.metadata.enums.TSEncoding;
import org.apache.tsfile.write.writer.TsFileIOWriter;

/** One file of the tree model: its devices, plain and aligned; written, and read again. */
final class Case {
  final String name;
  private int degree = 256;
  private TSEncoding timeEncoding = TSEncoding.TS_2DIFF;
  private final Map<String, List<Series>> plain = new LinkedHashMap<>();
  private final Map<String, List<AlignedGroup>> aligned = new LinkedHashMap<>();

  Case(String name) {
    this.name = name;
  }

  /** Children of an index node, at most. */
  Case degree(int children) {
    degree = children;
    return this;
  }

  /** How plain chunks encode times: known to who writes and who reads, the file does not name it. */
  Case timeEncoding(TSEncoding encoding) {
    timeEncoding = encoding;
    return this;
  }

  Case plain(String device, List<Series> series) {
    if (!series.isEmpty()) {
      plain.computeIfAbsent(device, any -> new ArrayList<>()).addAll(series);
    }
    return this;
  }

  Case aligned(String device, AlignedGroup... groups) {
    for (AlignedGroup group : groups) {
      aligned.computeIfAbsent(device, any -> new ArrayList<>()).add(group);
    }
    return this;
  }

  /** Writes {@code <name>.tsfile} and, as the library reads it, {@code <name>.rows}. */
  void make(File folder) throws IOException {
    TSFileConfig config = TSFileDescriptor.getInstance().getConfig();
    String encoding = config.getTimeEncoder();
    int children = config.getMaxDegreeOfIndexNode();
    config.setTimeEncoder(timeEncoding.name());
    config.setMaxDegreeOfIndexNode(degree);
    try {
      File path = new File(folder, name + ".tsfile");
      write(path);
      dump(path, new File(folder, name + ".rows"));
    } finally {
      config.setTimeEncoder(encoding);
      config.setMaxDegreeOfIndexNode(children);
    }
  }

  private void write(File path) throws IOException {
    TsFileIOWriter file = new TsFileIOWriter(path);
    try (Closeable closing = file::close) {
      for (Map.Entry<String, List<Series>> device : plain.entrySet()) {
        PlainDevice.write(file, device.getKey(), device.getValue());
      }
      for (Map.Entry<String, List<AlignedGroup>> device : aligned.entrySet()) {
        for (AlignedGroup group : device.getValue()) {
          AlignedDevice.write(file, device.getKey(), group);
        }
      }
      file.endFile();
    }
  }

  private void dump(File path, File target) throws IOException {
    try (Writer out = Files.newBufferedWriter(target.toPath(), StandardCharsets.UTF_8)) {
      Rows rows = new Rows(out);
      for (Map.Entry<String, List<Series>> device : plain.entrySet()) {
        for (Series series : device.getValue()) {
          read(path, device.getKey(), series, series.points(), rows);
        }
      }
      for (Map.Entry<String, List<AlignedGroup>> device : aligned.entrySet()) {
        Map<String, Integer> points = new LinkedHashMap<>();
        Map<String, Series> columns = new LinkedHashMap<>();
        for (AlignedGroup group : device.getValue()) {
          for (Series column : group.columns) {
            points.merge(column.name, column.points(), Integer::sum);
            columns.put(column.name, column);
          }
        }
        for (Series column : columns.values()) {
          read(path, device.getKey(), column, points.get(column.name), rows);
        }
      }
    }
  }

  private void read(File path, String device, Series series, int points, Rows rows) throws IOException {
    long before = rows.count;
    Query.readSeries(path, device, series.name, series.type, rows);
    if (rows.count - before != points) {
      throw new IOException(
          name + ": " + device + "." + series.name + ": " + points + " written, " + (rows.count - before) + " read");
    }
  }
}
