import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import org.apache.tsfile.enums.TSDataType;
import org.apache.tsfile.read.TsFileReader;
import org.apache.tsfile.read.TsFileSequenceReader;
import org.apache.tsfile.read.common.Field;
import org.apache.tsfile.read.common.RowRecord;
import org.apache.tsfile.read.expression.QueryExpression;
import org.apache.tsfile.read.query.dataset.QueryDataSet;

/** Reads through the library's query: what an application sees. */
final class Query {
  private Query() {}

  /** All points of one series. */
  static void readSeries(File file, String device, String measurement, TSDataType type, Rows rows) throws IOException {
    try (TsFileSequenceReader sequence = new TsFileSequenceReader(file.getPath());
        TsFileReader reader = new TsFileReader(sequence)) {
      QueryExpression all =
          QueryExpression.create(new ArrayList<>(Collections.singletonList(Api.path(device, measurement))), null);
      QueryDataSet found = reader.query(all);
      String json = Api.deviceJson(device);
      while (found.hasNext()) {
        RowRecord row = found.next();
        Field field = row.getFields().get(0);
        if (field != null && field.getDataType() != null) {
          rows.add(json, row.getTimestamp(), measurement, type.name(), field.getObjectValue(type));
        }
      }
    }
  }
}
