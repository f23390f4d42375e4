import java.io.File;
import java.io.IOException;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.apache.tsfile.common.conf.TSFileConfig;
import org.apache.tsfile.common.conf.TSFileDescriptor;
import org.apache.tsfile.enums.ColumnCategory;
import org.apache.tsfile.enums.TSDataType;
import org.apache.tsfile.file.metadata.TableSchema;
import org.apache.tsfile.file.metadata.enums.CompressionType;
import org.apache.tsfile.file.metadata.enums.TSEncoding;
import org.apache.tsfile.read.query.dataset.ResultSet;
import org.apache.tsfile.read.v4.ITsFileReader;
import org.apache.tsfile.read.v4.TsFileReaderBuilder;
import org.apache.tsfile.write.TsFileWriter;
import org.apache.tsfile.write.record.Tablet;
import org.apache.tsfile.write.schema.IMeasurementSchema;
import org.apache.tsfile.write.schema.MeasurementSchema;

/** Three tables: every type and tags with nulls; no tags at all; one tag, two chunks a series. */
final class TableCase {
  private TableCase() {}

  static void make(File path, File rows) throws Exception {
    List<TableSchema> tables = Arrays.asList(everything(), untagged(), meters());
    TSFileConfig config = TSFileDescriptor.getInstance().getConfig();
    int points = config.getMaxNumberOfPointsInPage();
    config.setMaxNumberOfPointsInPage(25);
    try (TsFileWriter writer = new TsFileWriter(path)) {
      for (TableSchema table : tables) {
        writer.registerTableSchema(table);
      }
      writer.writeTable(everyType(tables.get(0)));
      writer.writeTable(plainRows(tables.get(1)));
      writer.writeTable(readings(tables.get(2), 0));
      writer.flush();
      writer.writeTable(readings(tables.get(2), 60_000));
    } finally {
      config.setMaxNumberOfPointsInPage(points);
    }
    try (Writer out = Files.newBufferedWriter(rows.toPath(), StandardCharsets.UTF_8);
        ITsFileReader reader = new TsFileReaderBuilder().file(path).build()) {
      for (TableSchema table : tables) {
        dump(reader, table, new Rows(out));
      }
    }
  }

  private static TableSchema everything() {
    Columns columns = new Columns();
    columns.tag("site").tag("unit");
    columns.field("flag", TSDataType.BOOLEAN, TSEncoding.RLE, CompressionType.SNAPPY);
    columns.field("i32", TSDataType.INT32, TSEncoding.TS_2DIFF, CompressionType.LZ4);
    columns.field("i64", TSDataType.INT64, TSEncoding.RLE, CompressionType.ZSTD);
    columns.field("f32", TSDataType.FLOAT, TSEncoding.GORILLA, CompressionType.GZIP);
    columns.field("f64", TSDataType.DOUBLE, TSEncoding.GORILLA, CompressionType.LZMA2);
    columns.field("txt", TSDataType.TEXT, TSEncoding.DICTIONARY, CompressionType.LZ4);
    columns.field("str", TSDataType.STRING, TSEncoding.PLAIN, CompressionType.LZ4);
    columns.field("blob", TSDataType.BLOB, TSEncoding.PLAIN, CompressionType.UNCOMPRESSED);
    columns.field("day", TSDataType.DATE, TSEncoding.TS_2DIFF, CompressionType.LZ4);
    columns.field("at", TSDataType.TIMESTAMP, TSEncoding.TS_2DIFF, CompressionType.LZ4);
    columns.field("never", TSDataType.DOUBLE, TSEncoding.PLAIN, CompressionType.LZ4);
    return columns.table("every_type");
  }

  private static TableSchema untagged() {
    return new Columns().field("v", TSDataType.DOUBLE, TSEncoding.TS_2DIFF, CompressionType.LZ4).table("untagged");
  }

  private static TableSchema meters() {
    return new Columns()
        .tag("id")
        .field("power", TSDataType.DOUBLE, TSEncoding.CHIMP, CompressionType.LZ4)
        .field("state", TSDataType.INT32, TSEncoding.SPRINTZ, CompressionType.LZ4)
        .table("meters");
  }

  private static Tablet everyType(TableSchema table) {
    String[][] tags = {
      {"berlin", "1"}, {"\u6771\u4eac", null}, {null, "x y"}, {null, null}, {"a.b", "null"}, {"", ""}
    };
    Tablet tablet = tablet(table, 40 * tags.length);
    Random random = new Random(30);
    int row = 0;
    for (String[] tag : tags) {
      int rows = tag == tags[0] ? 40 : 6;
      for (int i = 0; i < rows; i++, row++) {
        tablet.addTimestamp(row, -20_000 + i * 1000L);
        addTag(tablet, row, "site", tag[0]);
        addTag(tablet, row, "unit", tag[1]);
        addFields(tablet, row, i, random);
      }
    }
    return tablet;
  }

  private static void addTag(Tablet tablet, int row, String name, String tag) {
    if (tag != null) {
      tablet.addValue(row, name, tag);
    }
  }

  /** One value in three is null, in another place for each column. */
  private static void addFields(Tablet tablet, int row, int i, Random random) {
    if (i % 3 != 0) {
      tablet.addValue(row, "flag", i % 2 == 0);
      tablet.addValue(row, "i64", Long.MIN_VALUE + i);
      tablet.addValue(row, "f64", i == 1 ? Double.NaN : 20 + i / 10.0);
      tablet.addValue(row, "str", "s" + i + "\u00fc");
      tablet.addValue(row, "day", LocalDate.of(2024, 2, 28).plusDays(i));
    }
    if (i % 3 != 1) {
      tablet.addValue(row, "i32", random.nextInt());
      tablet.addValue(row, "f32", i == 0 ? Float.NEGATIVE_INFINITY : i * 0.5f);
      tablet.addValue(row, "txt", i % 2 == 0 ? "" : "t" + i % 4);
      tablet.addValue(row, "blob", Patterns.noise(random, i % 5));
      tablet.addValue(row, "at", 1_700_000_000_000L + i);
    }
  }

  private static Tablet plainRows(TableSchema table) {
    Tablet tablet = tablet(table, 30);
    for (int row = 0; row < 30; row++) {
      tablet.addTimestamp(row, row);
      tablet.addValue(row, "v", row / 4.0);
    }
    return tablet;
  }

  private static Tablet readings(TableSchema table, long from) {
    Tablet tablet = tablet(table, 2 * 40);
    Random random = new Random(from);
    for (int row = 0; row < 2 * 40; row++) {
      tablet.addTimestamp(row, from + (row % 40) * 1000L);
      tablet.addValue(row, "id", "m" + row / 40);
      tablet.addValue(row, "power", random.nextInt(5000) / 10.0);
      if (row / 40 != 1) {
        tablet.addValue(row, "state", random.nextInt(5));
      }
    }
    return tablet;
  }

  private static Tablet tablet(TableSchema table, int rows) {
    List<String> names = new ArrayList<>();
    List<TSDataType> types = new ArrayList<>();
    for (IMeasurementSchema column : table.getColumnSchemas()) {
      names.add(column.getMeasurementName());
      types.add(column.getType());
    }
    return new Tablet(table.getTableName(), names, types, table.getColumnTypes(), rows);
  }

  private static void dump(ITsFileReader reader, TableSchema table, Rows rows) throws Exception {
    List<String> names = new ArrayList<>();
    for (IMeasurementSchema column : table.getColumnSchemas()) {
      names.add(column.getMeasurementName());
    }
    try (ResultSet found = reader.query(table.getTableName(), names, Long.MIN_VALUE, Long.MAX_VALUE)) {
      while (found.next()) {
        StringBuilder device = new StringBuilder("[" + Rows.json(table.getTableName()));
        for (int i = 0; i < names.size(); i++) {
          if (table.getColumnTypes().get(i) == ColumnCategory.TAG) {
            String tag = found.isNull(names.get(i)) ? null : found.getString(names.get(i));
            device.append(",").append(tag == null ? "null" : Rows.json(tag));
          }
        }
        device.append("]");
        for (int i = 0; i < names.size(); i++) {
          String name = names.get(i);
          if (table.getColumnTypes().get(i) == ColumnCategory.FIELD && !found.isNull(name)) {
            TSDataType type = table.getColumnSchemas().get(i).getType();
            rows.add(device.toString(), found.getLong("Time"), name, type.name(), value(found, name, type));
          }
        }
      }
    }
  }

  private static Object value(ResultSet found, String name, TSDataType type) throws IOException {
    switch (type) {
      case BOOLEAN:
        return found.getBoolean(name);
      case INT32:
        return found.getInt(name);
      case INT64:
      case TIMESTAMP:
        return found.getLong(name);
      case FLOAT:
        return found.getFloat(name);
      case DOUBLE:
        return found.getDouble(name);
      case DATE:
        return found.getDate(name);
      case BLOB:
        return found.getBinary(name);
      default:
        return found.getString(name);
    }
  }

  /** Collects the columns of a table. */
  private static final class Columns {
    private final List<IMeasurementSchema> schemas = new ArrayList<>();
    private final List<ColumnCategory> categories = new ArrayList<>();

    Columns tag(String name) {
      schemas.add(new MeasurementSchema(name, TSDataType.STRING, TSEncoding.PLAIN, CompressionType.UNCOMPRESSED));
      categories.add(ColumnCategory.TAG);
      return this;
    }

    Columns field(String name, TSDataType type, TSEncoding encoding, CompressionType compression) {
      schemas.add(new MeasurementSchema(name, type, encoding, compression));
      categories.add(ColumnCategory.FIELD);
      return this;
    }

    TableSchema table(String name) {
      return new TableSchema(name, schemas, categories);
    }
  }
}
