import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.tsfile.enums.TSDataType;
import org.apache.tsfile.file.metadata.enums.CompressionType;
import org.apache.tsfile.file.metadata.enums.TSEncoding;
import org.apache.tsfile.write.schema.MeasurementSchema;

/** A series to write: its schema, and its chunks, each a list of pages. */
final class Series {
  final String name;
  final TSDataType type;
  final TSEncoding encoding;
  final CompressionType compression;
  final Map<String, String> properties;
  final List<List<Page>> chunks;

  Series(String name, TSDataType type, TSEncoding encoding, CompressionType compression, List<List<Page>> chunks) {
    this(name, type, encoding, compression, Collections.<String, String>emptyMap(), chunks);
  }

  Series(
      String name,
      TSDataType type,
      TSEncoding encoding,
      CompressionType compression,
      Map<String, String> properties,
      List<List<Page>> chunks) {
    this.name = name;
    this.type = type;
    this.encoding = encoding;
    this.compression = compression;
    this.properties = properties;
    this.chunks = chunks;
  }

  MeasurementSchema schema() {
    return properties.isEmpty()
        ? new MeasurementSchema(name, type, encoding, compression)
        : new MeasurementSchema(name, type, encoding, compression, properties);
  }

  int points() {
    int n = 0;
    for (List<Page> chunk : chunks) {
      for (Page page : chunk) {
        n += page.points();
      }
    }
    return n;
  }
}
