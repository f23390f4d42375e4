import java.io.IOException;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.time.LocalDate;
import org.apache.tsfile.utils.Binary;

/** Writes what a reader returned, a line a point: device, time, measurement, type, value. */
final class Rows {
  private final Writer out;
  long count;

  Rows(Writer out) {
    this.out = out;
  }

  void add(String deviceJson, long time, String measurement, String type, Object value) throws IOException {
    if (value == null) {
      return;
    }
    out.write(deviceJson + "\t" + time + "\t" + json(measurement) + "\t" + type + "\t" + text(type, value) + "\n");
    count++;
  }

  static String text(String type, Object value) {
    if (value instanceof Double) {
      double d = (double) value;
      return Double.isNaN(d) && Double.doubleToRawLongBits(d) < 0 ? "-NaN" : Double.toHexString(d);
    }
    if (value instanceof Float) {
      float f = (float) value;
      return Float.isNaN(f) && Float.floatToRawIntBits(f) < 0 ? "-NaN" : Double.toHexString(f);
    }
    if (value instanceof LocalDate) {
      LocalDate date = (LocalDate) value;
      return String.valueOf(date.getYear() * 10000 + date.getMonthValue() * 100 + date.getDayOfMonth());
    }
    if (value instanceof Binary) {
      return text(type, ((Binary) value).getValues());
    }
    if (value instanceof byte[]) {
      byte[] bytes = (byte[]) value;
      return type.equals("BLOB") ? hex(bytes) : json(new String(bytes, StandardCharsets.UTF_8));
    }
    if (value instanceof String) {
      return json((String) value);
    }
    return String.valueOf(value);
  }

  static String hex(byte[] bytes) {
    StringBuilder text = new StringBuilder();
    for (byte each : bytes) {
      text.append(String.format("%02x", each));
    }
    return text.toString();
  }

  static String json(String text) {
    StringBuilder quoted = new StringBuilder("\"");
    for (char each : text.toCharArray()) {
      if (each == '"' || each == '\\') {
        quoted.append('\\').append(each);
      } else if (each < 0x20 || each > 0x7e) {
        quoted.append(String.format("\\u%04x", (int) each));
      } else {
        quoted.append(each);
      }
    }
    return quoted.append('"').toString();
  }
}
