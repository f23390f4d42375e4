import java.io.File;
import java.io.PrintWriter;
import java.util.Map;
import java.util.TreeMap;

/** Writes all cases that this version of the library has: {@code Main FOLDER}. */
final class Main {
  private Main() {}

  public static void main(String[] arguments) throws Exception {
    File folder = new File(arguments[0]);
    Cases cases = new Cases(folder);
    Map<String, String> failures = new TreeMap<>();
    for (Case each : cases.all()) {
      try {
        each.make(folder);
      } catch (Throwable failure) {
        failures.put(each.name, Probe.message(failure));
        failure.printStackTrace();
      }
    }
    MoreCases.make(folder, failures);
    new File(folder, "probe.tsfile").delete();
    try (PrintWriter out = new PrintWriter(new File(folder, "probe.tsv"), "UTF-8")) {
      cases.probe.outcomes.forEach(
          (pair, outcomes) ->
              outcomes.forEach((page, found) -> out.println(pair + "\t" + page + "\t" + oneLine(found))));
      failures.forEach((name, message) -> out.println("case " + name + "\t\t" + oneLine(message)));
    }
  }

  private static String oneLine(String text) {
    return text.replaceAll("\\s+", " ");
  }
}
