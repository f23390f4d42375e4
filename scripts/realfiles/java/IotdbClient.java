import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.List;

import @isession@.SessionDataSet;
import org.apache.iotdb.session.Session;
import @enums@.TSDataType;
import @tsfile@.read.common.Field;
import @tsfile@.read.common.RowRecord;
import @tsfile@.utils.Binary;

/**
 * Hands statements and records to a database over its own session library, and rows back.
 *
 * <p>Standard input is one command a line, its words separated by tabs, texts in Base64:
 *
 * <pre>
 * execute SQL
 * record DEVICE TIME plain|aligned [MEASUREMENT TYPE VALUE]...    (a value: see parse)
 * query SQL
 * </pre>
 *
 * The answer is "ok", or "error MESSAGE", or for a query "columns NAME TYPE ...", one line a row of
 * "TIME TYPE:VALUE ..." (an absent value is "-"), and "end". Values are exact: see text.
 * The words between at-signs in the imports differ between versions of the library; the
 * script that compiles this file fills them in.
 */
public final class IotdbClient {
  private static final String ABSENT = "-";

  private final Session session;
  private final PrintStream out;

  private IotdbClient(Session session, PrintStream out) {
    this.session = session;
    this.out = out;
  }

  /** Arguments: port, dialect ("tree" or "table"). */
  public static void main(String[] args) throws Exception {
    Session session = open(Integer.parseInt(args[0]), args[1]);
    PrintStream out = new PrintStream(System.out, false, "UTF-8");
    IotdbClient client = new IotdbClient(session, out);
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    out.println("ok");
    out.flush();
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      try {
        client.serve(line.split("\t"));
      } catch (Exception e) {
        out.println("error\t" + encode(String.valueOf(e.getMessage())));
      }
      out.flush();
    }
    session.close();
  }

  /** The builder knows dialects from 2.0 on, so it is asked by reflection. */
  private static Session open(int port, String dialect) throws Exception {
    if (dialect.equals("tree")) {
      Session session = new Session("127.0.0.1", port, "root", "root");
      session.open(false);
      return session;
    }
    Object builder = Class.forName("org.apache.iotdb.session.Session$Builder").getConstructor().newInstance();
    Class<?> type = builder.getClass();
    type.getMethod("host", String.class).invoke(builder, "127.0.0.1");
    type.getMethod("port", int.class).invoke(builder, port);
    type.getMethod("sqlDialect", String.class).invoke(builder, dialect);
    Session session = (Session) type.getMethod("build").invoke(builder);
    session.open(false);
    return session;
  }

  private void serve(String[] words) throws Exception {
    switch (words[0]) {
      case "execute":
        session.executeNonQueryStatement(decode(words[1]));
        out.println("ok");
        break;
      case "record":
        record(words);
        out.println("ok");
        break;
      case "query":
        query(decode(words[1]));
        break;
      default:
        throw new IllegalArgumentException("no such command: " + words[0]);
    }
  }

  private void record(String[] words) throws Exception {
    List<String> names = new ArrayList<>();
    List<TSDataType> types = new ArrayList<>();
    List<Object> values = new ArrayList<>();
    for (int i = 4; i < words.length; i += 3) {
      TSDataType type = TSDataType.valueOf(words[i + 1]);
      names.add(decode(words[i]));
      types.add(type);
      values.add(parse(type, decode(words[i + 2])));
    }
    String device = decode(words[1]);
    long time = Long.parseLong(words[2]);
    if (words[3].equals("aligned")) {
      insertAligned(device, time, names, types, values);
    } else {
      session.insertRecord(device, time, names, types, values);
    }
  }

  /** Known from 0.13 on, so it is asked by reflection. */
  private void insertAligned(
      String device, long time, List<String> names, List<TSDataType> types, List<Object> values)
      throws Exception {
    try {
      session
          .getClass()
          .getMethod(
              "insertAlignedRecord", String.class, long.class, List.class, List.class, List.class)
          .invoke(session, device, time, names, types, values);
    } catch (InvocationTargetException e) {
      throw (Exception) e.getCause();
    }
  }

  private void query(String sql) throws Exception {
    SessionDataSet rows = session.executeQueryStatement(sql);
    List<String> names = rows.getColumnNames();
    List<String> types = new ArrayList<>(Collections.nCopies(names.size(), ""));
    for (int i = 0; i < names.size(); i++) {
      types.set(i, String.valueOf(rows.getColumnTypes().get(i)));
    }
    StringBuilder head = new StringBuilder("columns");
    for (int i = 0; i < names.size(); i++) {
      head.append('\t').append(encode(names.get(i))).append('\t').append(types.get(i));
    }
    out.println(head);
    while (rows.hasNext()) {
      RowRecord row = rows.next();
      StringBuilder line = new StringBuilder().append(row.getTimestamp());
      for (Field field : row.getFields()) {
        line.append('\t').append(text(field));
      }
      out.println(line);
    }
    out.println("end");
    rows.closeOperationHandle();
  }

  private static Object parse(TSDataType type, String value) {
    switch (type.name()) {
      case "BOOLEAN":
        return Boolean.parseBoolean(value);
      case "INT32":
        return Integer.parseInt(value);
      case "INT64":
      case "TIMESTAMP":
        return Long.parseLong(value);
      case "FLOAT":
        return Float.parseFloat(value);
      case "DOUBLE":
        return Double.parseDouble(value);
      case "DATE":
        return LocalDate.parse(value);
      case "BLOB":
        return new Binary(Base64.getDecoder().decode(value));
      case "TEXT":
      case "STRING":
        return value;
      default:
        throw new IllegalArgumentException("records of " + type + " are not offered");
    }
  }

  /** Floats in hexadecimal, texts and blobs in Base64, dates as yyyymmdd, all else in decimal. */
  private static String text(Field field) {
    if (field == null || field.getDataType() == null) {
      return ABSENT;
    }
    return field.getDataType().name() + ":" + value(field);
  }

  private static String value(Field field) {
    switch (field.getDataType().name()) {
      case "BOOLEAN":
        return Boolean.toString(field.getBoolV());
      case "INT32":
      case "DATE":
        return Integer.toString(field.getIntV());
      case "INT64":
      case "TIMESTAMP":
        return Long.toString(field.getLongV());
      case "FLOAT":
        return Float.toHexString(field.getFloatV());
      case "DOUBLE":
        return Double.toHexString(field.getDoubleV());
      case "TEXT":
      case "STRING":
      case "BLOB":
        return "=" + Base64.getEncoder().encodeToString(field.getBinaryV().getValues());
      default:
        throw new IllegalArgumentException("a field of " + field.getDataType());
    }
  }

  private static String encode(String text) {
    return "=" + Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
  }

  private static String decode(String word) {
    return new String(Base64.getDecoder().decode(word.substring(1)), StandardCharsets.UTF_8);
  }
}
