import java.io.File;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.apache.tsfile.common.conf.TSFileConfig;
import org.apache.tsfile.common.conf.TSFileDescriptor;
import org.apache.tsfile.encrypt.EncryptParameter;
import org.apache.tsfile.enums.TSDataType;
import org.apache.tsfile.file.metadata.enums.CompressionType;
import org.apache.tsfile.file.metadata.enums.TSEncoding;
import org.apache.tsfile.write.TsFileWriter;
import org.apache.tsfile.write.record.Tablet;
import org.apache.tsfile.write.schema.IMeasurementSchema;
import org.apache.tsfile.write.schema.MeasurementSchema;

/** The tree model by the public writer: it cuts the pages itself. */
final class TabletCase {
  private static final String PLAIN = "root.tablets.plain";
  private static final String ALIGNED = "root.tablets.aligned";

  private static final int PARTS = 2;

  private TabletCase() {}

  static void make(File path, File rows) throws Exception {
    try (TsFileWriter writer = new TsFileWriter(path)) {
      fill(writer, PARTS);
    }
    dump(path, rows);
  }

  static void encrypted(File path, File rows, EncryptParameter parameter) throws Exception {
    try (TsFileWriter writer = new TsFileWriter(path, parameter)) {
      fill(writer, 1);
    }
    dump(path, rows);
  }

  private static List<IMeasurementSchema> columns() {
    return Arrays.asList(
        new MeasurementSchema("counter", TSDataType.INT64, TSEncoding.TS_2DIFF, CompressionType.LZ4),
        new MeasurementSchema("value", TSDataType.DOUBLE, TSEncoding.GORILLA, CompressionType.LZ4),
        new MeasurementSchema("word", TSDataType.TEXT, TSEncoding.DICTIONARY, CompressionType.SNAPPY),
        new MeasurementSchema("unused", TSDataType.INT32, TSEncoding.RLE, CompressionType.LZ4));
  }

  private static void fill(TsFileWriter writer, int parts) throws Exception {
    TSFileConfig config = TSFileDescriptor.getInstance().getConfig();
    int points = config.getMaxNumberOfPointsInPage();
    config.setMaxNumberOfPointsInPage(15);
    try {
      for (IMeasurementSchema column : columns()) {
        writer.registerTimeseries(PLAIN, column);
      }
      writer.registerAlignedTimeseries(ALIGNED, columns());
      for (int part = 0; part < parts; part++) {
        writer.writeTree(tablet(PLAIN, part));
        writer.writeAligned(tablet(ALIGNED, part));
        writer.flush();
      }
    } finally {
      config.setMaxNumberOfPointsInPage(points);
    }
  }

  private static Tablet tablet(String device, int part) {
    Tablet tablet = new Tablet(device, columns(), 50);
    Random random = new Random(40 + part);
    long[] time = {1_600_000_000_000L + part * 1_000_000L};
    for (int row = 0; row < 50; row++) {
      time[0] += row % 10 == 0 ? 977 : 100;
      tablet.addTimestamp(row, time[0]);
      tablet.addValue(row, "counter", (long) row * row);
      if (row % 3 > 0) {
        tablet.addValue(row, "value", random.nextInt(1000) / 100.0);
      }
      if (row >= 35) {
        tablet.addValue(row, "word", "w" + random.nextInt(3));
      }
    }
    return tablet;
  }

  private static void dump(File path, File rows) throws Exception {
    try (Writer out = Files.newBufferedWriter(rows.toPath(), StandardCharsets.UTF_8)) {
      for (String device : new String[] {PLAIN, ALIGNED}) {
        for (IMeasurementSchema column : columns().subList(0, 3)) {
          Query.readSeries(path, device, column.getMeasurementName(), column.getType(), new Rows(out));
        }
      }
    }
  }
}
