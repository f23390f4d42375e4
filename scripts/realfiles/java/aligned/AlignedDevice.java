import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.tsfile.common.conf.TSFileConfig;
import org.apache.tsfile.common.conf.TSFileDescriptor;
import org.apache.tsfile.utils.Binary;
import org.apache.tsfile.write.chunk.AlignedChunkWriterImpl;
import org.apache.tsfile.write.schema.IMeasurementSchema;
import org.apache.tsfile.write.writer.TsFileIOWriter;

/** Writes a chunk group of an aligned device, row by row. */
final class AlignedDevice {
  static final boolean EXISTS = true;

  private AlignedDevice() {}

  static void write(TsFileIOWriter file, String device, AlignedGroup group) throws IOException {
    TSFileConfig config = TSFileDescriptor.getInstance().getConfig();
    String encoding = config.getTimeEncoder();
    String compression = config.getCompressor().name();
    config.setTimeEncoder(group.timeEncoding.name());
    config.setCompressor(group.timeCompression.name());
    try {
      Api.startChunkGroup(file, device);
      List<IMeasurementSchema> schemas = new ArrayList<>();
      for (Series column : group.columns) {
        schemas.add(column.schema());
      }
      AlignedChunkWriterImpl writer = new AlignedChunkWriterImpl(schemas);
      for (int page = 0; page < group.pages(); page++) {
        fill(writer, group.columns, page);
        writer.sealCurrentPage();
      }
      writer.writeToFileWriter(file);
      file.endChunkGroup();
    } finally {
      config.setTimeEncoder(encoding);
      config.setCompressor(compression);
    }
  }

  private static void fill(AlignedChunkWriterImpl writer, List<Series> columns, int page) {
    long[] times = columns.get(0).chunks.get(0).get(page).times;
    for (int row = 0; row < times.length; row++) {
      for (Series column : columns) {
        put(writer, times[row], column.type.name(), column.chunks.get(0).get(page).values[row]);
      }
      writer.write(times[row]);
    }
  }

  private static void put(AlignedChunkWriterImpl writer, long time, String type, Object value) {
    boolean isNull = value == null;
    switch (type) {
      case "BOOLEAN":
        writer.write(time, !isNull && (boolean) value, isNull);
        break;
      case "INT32":
      case "DATE":
        writer.write(time, isNull ? 0 : (int) value, isNull);
        break;
      case "INT64":
      case "TIMESTAMP":
        writer.write(time, isNull ? 0L : (long) value, isNull);
        break;
      case "FLOAT":
        writer.write(time, isNull ? 0.0f : (float) value, isNull);
        break;
      case "DOUBLE":
        writer.write(time, isNull ? 0.0 : (double) value, isNull);
        break;
      default:
        writer.write(time, isNull ? new Binary(new byte[0]) : new Binary((byte[]) value), isNull);
    }
  }
}
