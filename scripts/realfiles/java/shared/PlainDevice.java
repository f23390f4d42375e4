import java.io.IOException;
import java.util.List;
import org.apache.tsfile.enums.TSDataType;
import org.apache.tsfile.utils.Binary;
import org.apache.tsfile.write.chunk.ChunkWriterImpl;
import org.apache.tsfile.write.writer.TsFileIOWriter;

/** Writes devices as the database's flush does: chunk writers into chunk groups. */
final class PlainDevice {
  private PlainDevice() {}

  /** One chunk group for each chunk that the longest series has. */
  static void write(TsFileIOWriter file, String device, List<Series> all) throws IOException {
    int groups = 0;
    for (Series series : all) {
      groups = Math.max(groups, series.chunks.size());
    }
    for (int group = 0; group < groups; group++) {
      Api.startChunkGroup(file, device);
      for (Series series : all) {
        if (group < series.chunks.size()) {
          ChunkWriterImpl writer = new ChunkWriterImpl(series.schema());
          fill(writer, series.type, series.chunks.get(group));
          writer.writeToFileWriter(file);
        }
      }
      file.endChunkGroup();
    }
  }

  private static void fill(ChunkWriterImpl writer, TSDataType type, List<Page> pages) {
    for (Page page : pages) {
      for (int i = 0; i < page.times.length; i++) {
        if (page.values[i] != null) {
          put(writer, page.times[i], page.values[i]);
        }
      }
      writer.sealCurrentPage();
    }
  }

  private static void put(ChunkWriterImpl writer, long time, Object value) {
    if (value instanceof Boolean) {
      writer.write(time, (boolean) value);
    } else if (value instanceof Integer) {
      writer.write(time, (int) value);
    } else if (value instanceof Long) {
      writer.write(time, (long) value);
    } else if (value instanceof Float) {
      writer.write(time, (float) value);
    } else if (value instanceof Double) {
      writer.write(time, (double) value);
    } else {
      writer.write(time, new Binary((byte[]) value));
    }
  }
}
