import java.io.File;
import java.util.Map;

/** This generation of the library has no tables. */
final class MoreCases {
  private MoreCases() {}

  static void make(File folder, Map<String, String> failures) {}
}
