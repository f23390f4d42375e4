import java.io.File;
import java.util.Map;

/** What only this generation of the library writes: tables, and files by its public tree writer. */
final class MoreCases {
  private MoreCases() {}

  private interface Maker {
    void make(File path, File rows) throws Exception;
  }

  static void make(File folder, Map<String, String> failures) {
    attempt(folder, "tables", TableCase::make, failures);
    attempt(folder, "tablets", TabletCase::make, failures);
    attempt(folder, "encrypted", EncryptedCase::make, failures);
  }

  private static void attempt(File folder, String name, Maker maker, Map<String, String> failures) {
    try {
      maker.make(new File(folder, name + ".tsfile"), new File(folder, name + ".rows"));
    } catch (Throwable failure) {
      failures.put(name, Probe.message(failure));
      failure.printStackTrace();
    }
  }
}
