import java.io.IOException;
import org.apache.tsfile.file.metadata.IDeviceID;
import org.apache.tsfile.read.common.Path;
import org.apache.tsfile.write.writer.TsFileIOWriter;

/** What is called otherwise in this generation of the library: a device is a list of segments. */
final class Api {
  /** Whether the reader goes by the encoding that a time chunk names, or by its configuration. */
  static final boolean READS_TIME_ENCODING = true;

  private Api() {}

  static void startChunkGroup(TsFileIOWriter file, String device) throws IOException {
    file.startChunkGroup(deviceId(device));
  }

  static Path path(String device, String measurement) {
    return new Path(deviceId(device), measurement, false);
  }

  /** A device's segments as the file has them, as a JSON list. */
  static String deviceJson(String device) {
    return deviceJson(deviceId(device));
  }

  static String deviceJson(IDeviceID id) {
    StringBuilder json = new StringBuilder("[");
    for (int i = 0; i < id.segmentNum(); i++) {
      Object segment = id.segment(i);
      json.append(i == 0 ? "" : ",").append(segment == null ? "null" : Rows.json(segment.toString()));
    }
    return json.append("]").toString();
  }

  private static IDeviceID deviceId(String device) {
    return IDeviceID.Factory.DEFAULT_FACTORY.create(device);
  }
}
