import java.io.File;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import org.apache.tsfile.enums.ColumnCategory;
import org.apache.tsfile.enums.TSDataType;
import org.apache.tsfile.file.metadata.TableSchema;
import org.apache.tsfile.file.metadata.enums.CompressionType;
import org.apache.tsfile.file.metadata.enums.TSEncoding;
import org.apache.tsfile.write.TsFileWriter;
import org.apache.tsfile.write.record.Tablet;
import org.apache.tsfile.write.schema.IMeasurementSchema;
import org.apache.tsfile.write.schema.MeasurementSchema;

/**
 * Writes a file of doubles with LZ4: {@code Write FILE plain|aligned|table ENCODING DEVICES ROWS
 * COLUMNS walk|noise}. A walk has two decimals, as a sensor's values have; noise fills its 64 bits.
 */
final class Write {
  private static final int BATCH = 10_000;
  private final Random random = new Random(7);
  private final boolean noise;
  private final double[] last;

  private Write(int columns, boolean noise) {
    this.noise = noise;
    last = new double[columns];
    java.util.Arrays.fill(last, 20);
  }

  public static void main(String[] arguments) throws Exception {
    String kind = arguments[1];
    TSEncoding encoding = TSEncoding.valueOf(arguments[2]);
    int devices = Integer.parseInt(arguments[3]);
    int rows = Integer.parseInt(arguments[4]);
    int columns = Integer.parseInt(arguments[5]);
    Write write = new Write(columns, arguments[6].equals("noise"));
    List<IMeasurementSchema> schemas = new ArrayList<>();
    for (int i = 0; i < columns; i++) {
      schemas.add(new MeasurementSchema("s" + i, TSDataType.DOUBLE, encoding, CompressionType.LZ4));
    }
    try (TsFileWriter writer = new TsFileWriter(new File(arguments[0]))) {
      if (kind.equals("table")) {
        write.table(writer, schemas, devices, rows);
      } else {
        write.tree(writer, schemas, devices, rows, kind.equals("aligned"));
      }
    }
  }

  private void tree(TsFileWriter writer, List<IMeasurementSchema> schemas, int devices, int rows, boolean aligned)
      throws Exception {
    for (int device = 0; device < devices; device++) {
      String name = "root.bench.d" + device;
      if (aligned) {
        writer.registerAlignedTimeseries(name, schemas);
      } else {
        for (IMeasurementSchema schema : schemas) {
          writer.registerTimeseries(name, schema);
        }
      }
      Tablet tablet = new Tablet(name, schemas, BATCH);
      for (int from = 0; from < rows; from += BATCH) {
        tablet.reset();
        for (int row = 0; row < Math.min(BATCH, rows - from); row++) {
          fill(tablet, row, from + row, 0, schemas.size());
        }
        if (aligned) {
          writer.writeAligned(tablet);
        } else {
          writer.writeTree(tablet);
        }
      }
    }
  }

  private void table(TsFileWriter writer, List<IMeasurementSchema> fields, int devices, int rows) throws Exception {
    List<IMeasurementSchema> schemas = new ArrayList<>();
    schemas.add(new MeasurementSchema("id", TSDataType.STRING, TSEncoding.PLAIN, CompressionType.LZ4));
    schemas.addAll(fields);
    List<ColumnCategory> categories = new ArrayList<>(Collections.singletonList(ColumnCategory.TAG));
    categories.addAll(ColumnCategory.nCopy(ColumnCategory.FIELD, fields.size()));
    writer.registerTableSchema(new TableSchema("bench", schemas, categories));
    List<String> names = new ArrayList<>();
    List<TSDataType> types = new ArrayList<>();
    for (IMeasurementSchema schema : schemas) {
      names.add(schema.getMeasurementName());
      types.add(schema.getType());
    }
    for (int device = 0; device < devices; device++) {
      for (int from = 0; from < rows; from += BATCH) {
        Tablet tablet = new Tablet("bench", names, types, categories, BATCH);
        for (int row = 0; row < Math.min(BATCH, rows - from); row++) {
          tablet.addValue(row, 0, "d" + device);
          fill(tablet, row, from + row, 1, schemas.size());
        }
        writer.writeTable(tablet);
      }
    }
  }

  private void fill(Tablet tablet, int row, int number, int first, int end) {
    tablet.addTimestamp(row, 1_700_000_000_000L + number * 1000L);
    for (int column = first; column < end; column++) {
      tablet.addValue(row, column, next(column - first));
    }
  }

  private double next(int column) {
    if (noise) {
      return random.nextDouble();
    }
    last[column] = Math.round(last[column] * 100 + random.nextInt(21) - 10) / 100.0;
    return last[column];
  }
}
