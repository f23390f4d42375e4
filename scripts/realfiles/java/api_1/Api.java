import java.io.IOException;
import org.apache.tsfile.file.metadata.PlainDeviceID;
import org.apache.tsfile.read.common.Path;
import org.apache.tsfile.write.writer.TsFileIOWriter;

/** What is called otherwise in this generation of the library: a device is a path in an object. */
final class Api {
  /** Whether the reader goes by the encoding that a time chunk names, or by its configuration. */
  static final boolean READS_TIME_ENCODING = false;

  private Api() {}

  static void startChunkGroup(TsFileIOWriter file, String device) throws IOException {
    file.startChunkGroup(new PlainDeviceID(device));
  }

  static Path path(String device, String measurement) {
    return new Path(device, measurement, false);
  }

  /** A device's segments as the file has them, as a JSON list. */
  static String deviceJson(String device) {
    return "[" + Rows.json(device) + "]";
  }
}
