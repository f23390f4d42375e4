import java.util.Arrays;
import java.util.List;
import org.apache.tsfile.file.metadata.enums.CompressionType;
import org.apache.tsfile.file.metadata.enums.TSEncoding;

/** A chunk group of an aligned device: columns of one chunk each, whose pages have equal times. */
final class AlignedGroup {
  final List<Series> columns;
  TSEncoding timeEncoding = TSEncoding.TS_2DIFF;
  CompressionType timeCompression = CompressionType.UNCOMPRESSED;

  AlignedGroup(List<Series> columns) {
    this.columns = columns;
    for (Series column : columns) {
      for (int page = 0; page < pages(); page++) {
        if (!Arrays.equals(column.chunks.get(0).get(page).times, columns.get(0).chunks.get(0).get(page).times)) {
          throw new IllegalArgumentException(column.name + ": other times in page " + page);
        }
      }
    }
  }

  AlignedGroup time(TSEncoding encoding, CompressionType compression) {
    timeEncoding = encoding;
    timeCompression = compression;
    return this;
  }

  int pages() {
    return columns.get(0).chunks.get(0).size();
  }
}
